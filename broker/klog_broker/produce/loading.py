"""Loads the kernels that planned Produce needs; numba is imported only then."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from klog_broker.log.validation.kernel_checks import kernel_checks
from klog_broker.runtime.event_loop.switching import brisk_switching
from klog_broker.runtime.system.compiling import fill_cache

_MODULE = "klog_broker.produce.kernel"
_SOCKET_MODULE = "klog_broker.runtime.net.socket_kernel"
_CONVERSION_MODULE = "pyspark_klog.records.kernels.down"

LoadKernel = Callable[[Callable[[], bool]], Any | None]
"""Loads the kernel's module; returns None if it cannot be had. Runs in a helper thread and may
block, but gives up soon once its argument, a function, says that the broker stops."""

CompileKernel = Callable[[Callable[[], bool]], bool]
"""Fills the kernels' cache, so that loading needs no compiling; returns False if that is not
possible. Runs and ends as LoadKernel does, and does not import numba."""


def load_produce_kernel(is_stopping: Callable[[], bool]) -> Any | None:
    """The kernel's module, compiled by a child process if its cache is cold; None without numba.

    Blocks for 0.3 s with a warm cache.
    """
    if not compile_produce_kernel(is_stopping):
        return None
    with brisk_switching():
        module = importlib.import_module(_MODULE)
        importlib.import_module(_SOCKET_MODULE)
        importlib.import_module(_CONVERSION_MODULE)
        kernel_checks()  # made here, so that the loop need not make them
        return module if module.IS_COMPILED else None


def compile_produce_kernel(is_stopping: Callable[[], bool]) -> bool:
    """Have a child process compile the kernels if their cache is cold; returns whether the cache
    has them now."""
    return fill_cache((_MODULE, _SOCKET_MODULE), is_stopping)
