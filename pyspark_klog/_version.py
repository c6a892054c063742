"""The one place where klog's version is written."""

__version__ = "0.1.0"
"""The version of klog: of the packages pyspark_klog (connector) and klog_broker (broker)."""
