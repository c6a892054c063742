"""The error with which an exactly-once sink refuses to write or to commit."""

from pyspark_klog.errors import KlogError


class ExactlyOnceRefused(KlogError):
    """An exactly-once sink refuses to write or to commit, for example because it could double or
    lose rows, or because a transaction failed. The text says why."""
