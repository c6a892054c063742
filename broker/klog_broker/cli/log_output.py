"""The lines of `klog broker` on stderr."""

import logging
import sys

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
DEFAULT_LEVEL = "INFO"
_OWN_LOGGERS = ("klog", "klog_broker", "pyspark_klog")


def write_log_to_stderr(level: str) -> None:
    """From this level on, klog's own lines; of the packages that it uses only warnings and worse:
    the compiler of the kernels writes thousands of lines at DEBUG."""
    logging.basicConfig(
        stream=sys.stderr,
        level=max(logging.WARNING, logging.getLevelNamesMapping()[level]),
        format="%(asctime)s level=%(levelname)s logger=%(name)s %(message)s",
    )
    for name in _OWN_LOGGERS:
        logging.getLogger(name).setLevel(level)
