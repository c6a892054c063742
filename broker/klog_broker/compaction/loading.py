"""Loads the log cleaner's kernels, and numba with them, before the first log is cleaned."""

import importlib
import logging
from collections.abc import Callable

from klog_broker.runtime.event_loop.switching import short_switch_interval
from klog_broker.runtime.system.compiling import fill_cache
from pyspark_klog.records.kernels import kernels_compiled, not_compiled_reason

_MODULE = "klog_broker.compaction.kernel"
_log = logging.getLogger("klog.cleaner")


def load_cleaner_kernels(is_stopping: Callable[[], bool]) -> bool:
    """Load the kernels; a child process compiles them first if the cache of compiled kernels does
    not have them.

    Blocks, so call it in a helper thread. Gives up soon, and returns False, once the broker shuts
    down.
    """
    fill_cache((_MODULE,), is_stopping)
    if is_stopping():
        return False
    with short_switch_interval():
        importlib.import_module(_MODULE)
        if not kernels_compiled():
            _log.warning(
                "the log cleaner has no compiled kernels, so it is slow and delays requests: %s",
                not_compiled_reason(),
            )
    return True
