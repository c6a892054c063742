"""Loads the kernels that the planned path needs, without importing numba before."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from klog_broker.log.record_checks import kernel_checks
from klog_broker.runtime.compiling import fill_cache
from klog_broker.runtime.switching import brisk_switching

_MODULE = "klog_broker.produce.kernel"
_SOCKET_MODULE = "klog_broker.runtime.socket_kernel"
_CONVERSION_MODULE = "pyspark_klog.records.kernels.down"

LoadKernel = Callable[[Callable[[], bool]], Any | None]
"""Loads the kernel's module; None where there is none. Runs in a helper thread and may block, but
gives up soon when what it is given says that the broker stops."""

CompileKernel = Callable[[Callable[[], bool]], bool]
"""Sees to it that loading will take no compiling; False where it cannot be. Runs and ends as
LoadKernel does, without importing numba."""


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
        kernel_checks()  # so that the loop finds them made
        return module if module.IS_COMPILED else None


def compile_produce_kernel(is_stopping: Callable[[], bool]) -> bool:
    """Whether the kernels are in their cache, put there by a child process if they were not."""
    return fill_cache((_MODULE, _SOCKET_MODULE), is_stopping)
