"""Loads the compiled kernels that speed up the loading of shards (partitions of a state topic).

Helper threads load the kernels that check records, once the shards of a state topic have read more
than KERNEL_WORTHWHILE_BYTES of their logs without kernels. Kernels that are not in the cache on
disk are not compiled: no shard waits for a compiler, because Python code can load a shard, too.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from klog_broker.runtime.event_loop.switching import short_switch_interval
from klog_broker.runtime.system.compiling import kernel_source

KERNEL_WORTHWHILE_BYTES = 3 * 1024 * 1024
"""How many bytes of a log Python code checks and applies in about the time that it takes to load
the compiled kernels that check records."""


class PlainReads:
    """Counts the bytes of a state topic that were loaded without compiled kernels. Loop thread
    only."""

    def __init__(self) -> None:
        self._bytes = 0

    def is_kernel_worthwhile(self, size_bytes: int) -> bool:
        """Add ``size_bytes`` to the count; return whether the count exceeds
        KERNEL_WORTHWHILE_BYTES, so that loading the kernels is worth it."""
        self._bytes += size_bytes
        return self._bytes > KERNEL_WORTHWHILE_BYTES


def records_kernels_loaded() -> bool:
    """Load the kernels that check records, if the cache of compiled kernels on disk has them.

    Returns whether the kernels are loaded and run compiled. Call in a helper thread: the first call
    blocks for 0.3 s.
    """
    from pyspark_klog.records.kernels import kernels_are_cached, kernels_compiled

    if not kernels_are_cached():
        return False
    with short_switch_interval():
        importlib.import_module("pyspark_klog.records.kernels.scan")
        return kernels_compiled()


def loaded_kernel(module: str) -> Any | None:
    """Import a kernel's module; return None if it does not run compiled.

    A module that is not in the cache of compiled kernels on disk is not imported. Call in a helper
    thread: the first call of a module blocks.
    """
    from pyspark_klog.records.kernels import cache, kernels_compiled

    if module not in sys.modules and not cache.is_warm(kernel_source(module)):
        return None
    with short_switch_interval():
        # Import even a module in sys.modules: another helper thread may still be loading it.
        found = importlib.import_module(module)
        return found if kernels_compiled() else None
