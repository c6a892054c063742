"""The error with which an exactly-once sink refuses to write or to commit."""

from pyspark_klog.errors import KlogError


class ExactlyOnceRefused(KlogError):
    """The sink stops, since it could double or lose rows, or a transaction failed. The text says
    why."""
