"""The kernels that loading uses. They are loaded beside the loop once there is much to load, and
only if their cache has them: nobody waits for a compiler, the plain way loads as well."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from klog_broker.runtime.event_loop.switching import brisk_switching
from klog_broker.runtime.system.compiling import kernel_source

MUCH_BYTES = 3 * 1024 * 1024
"""Of a state topic's logs: so much in the plain way takes as long as it takes to load kernels."""


class PlainReads:
    """How much the loaders of a state topic have read in the plain way. Loop thread only."""

    def __init__(self) -> None:
        self._bytes = 0

    def are_enough(self, size_bytes: int) -> bool:
        """Whether the kernels are worth loading, with so much more to be read."""
        self._bytes += size_bytes
        return self._bytes > MUCH_BYTES


def records_kernels_loaded() -> bool:
    """Load the kernels of records, unless that takes compiling. In a helper thread; blocks for
    0.3 s at the first call."""
    from pyspark_klog.records.kernels import kernels_are_cached, kernels_compiled

    if not kernels_are_cached():
        return False
    with brisk_switching():
        importlib.import_module("pyspark_klog.records.kernels.scan")
        return kernels_compiled()


def loaded_kernel(module: str) -> Any | None:
    """A kernel's module of klog_broker; None if its cache has not got it, or if it is not compiled.
    In a helper thread; blocks at the first call."""
    from pyspark_klog.records.kernels import cache, kernels_compiled

    if module not in sys.modules and not cache.is_warm(kernel_source(module)):
        return None
    with brisk_switching():
        # Also if it is there: another helper may be loading it.
        found = importlib.import_module(module)
        return found if kernels_compiled() else None
