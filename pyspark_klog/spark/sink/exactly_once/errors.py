"""The refusals of the exactly-once sink."""

from pyspark_klog.errors import KlogError


class ExactlyOnceRefused(KlogError):
    """The sink stops, since it could double or lose rows; the text says why and what to do."""
