"""The error that is raised when a file of a log cannot be decoded."""

from pyspark_klog.errors import KlogError


class StorageFormatError(KlogError):
    """An index, checkpoint or other file beside the records of a log has no valid content. The
    text names the kind of file, the content that was found and the content that was expected."""
