"""What reading the files of a log can raise."""

from pyspark_klog.errors import KlogError


class StorageFormatError(KlogError):
    """A file of the log (not its records) cannot be what its name says. The text names the file's
    kind, what was found and what was expected."""
