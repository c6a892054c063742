"""The refusals of the exactly-once sink."""

from pyspark_klog.errors import KlogError


class ExactlyOnceRefused(KlogError):
    """Going on could double rows or leave some out; the text says what was found and what to do."""
