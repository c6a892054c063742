"""The refusals of the exactly-once sink."""

from pyspark_klog.errors import KlogError


class ExactlyOnceRefused(KlogError):
    """Going on could double or lose rows; the text says what was found and what to do."""
