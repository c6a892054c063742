"""The lines of `klog broker` on stderr."""

import logging
import sys

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
DEFAULT_LEVEL = "INFO"


def write_log_to_stderr(level: str) -> None:
    """Write log lines of this level and worse to stderr. The kernels' compiler (numba), which has
    thousands of lines at DEBUG, writes warnings and worse only."""
    logging.basicConfig(
        stream=sys.stderr,
        level=level,
        format="%(asctime)s level=%(levelname)s logger=%(name)s %(message)s",
    )
    at_least = max(logging.WARNING, logging.getLevelNamesMapping()[level])
    logging.getLogger("numba").setLevel(at_least)
