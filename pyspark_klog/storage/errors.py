"""The error that is raised when a file of a log cannot be decoded."""

from pyspark_klog.errors import KlogError


class StorageFormatError(KlogError):
    """A file of a data directory cannot be decoded, for example an index or a checkpoint, or its
    name is invalid. The text of the error names the kind of file, the content that was found and
    the content that was expected. Damaged records raise CorruptRecords instead."""
