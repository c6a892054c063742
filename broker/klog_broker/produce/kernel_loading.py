"""Loads the kernels that planned Produce needs; numba is imported only when they are loaded."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from klog_broker.log.validation.kernel_checks import kernel_checks
from klog_broker.runtime.event_loop.switching import short_switch_interval
from klog_broker.runtime.system.compiling import fill_cache

_MODULE = "klog_broker.produce.kernel"
_SOCKET_MODULE = "klog_broker.runtime.net.socket_kernel"
_CONVERSION_MODULE = "pyspark_klog.records.kernels.down_conversion"

LoadKernel = Callable[[Callable[[], bool]], Any | None]
"""Loads the kernel's module, or returns None if that is impossible. Runs in a helper thread and may
block, but gives up soon after its argument, a function, returns True because the broker stops."""

CompileKernel = Callable[[Callable[[], bool]], bool]
"""Fills the kernels' cache, so that loading compiles nothing; returns False if that is impossible.
Runs in a helper thread, gives up like LoadKernel, and does not import numba."""


def load_produce_kernel(is_stopping: Callable[[], bool]) -> Any | None:
    """Return the kernel's module; None without numba. A child process compiles the kernel if its
    cache is cold. Blocks for 0.3 s with a warm cache."""
    if not compile_produce_kernel(is_stopping):
        return None
    with short_switch_interval():
        module = importlib.import_module(_MODULE)
        importlib.import_module(_SOCKET_MODULE)
        importlib.import_module(_CONVERSION_MODULE)
        kernel_checks()  # loads the kernels of log/validation here, not in the loop thread
        return module if module.IS_COMPILED else None


def compile_produce_kernel(is_stopping: Callable[[], bool]) -> bool:
    """Compile the kernels in a child process if their cache is cold. Return whether the cache has
    the kernels now."""
    return fill_cache((_MODULE, _SOCKET_MODULE), is_stopping)
