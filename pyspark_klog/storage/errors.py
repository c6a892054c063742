"""The error that is raised when a file of a log cannot be decoded."""

from pyspark_klog.errors import KlogError


class StorageFormatError(KlogError):
    """A file of a data directory cannot be decoded, for example an index or a checkpoint, or a
    file's or directory's name is invalid. The text of the error says what was found and why it is
    invalid. Damaged records raise CorruptRecords instead."""
