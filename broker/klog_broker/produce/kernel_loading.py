"""Loads the compiled kernels with which an event-loop turn serves many Produce requests at once;
numba is imported only when they are loaded."""

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
"""Loads the module of the produce kernel; returns None if that is impossible, such as without
numba. Runs in a helper thread and may block. The argument is a function that returns True once the
broker stops: the loading then soon gives up."""

CompileKernel = Callable[[Callable[[], bool]], bool]
"""Compiles the kernels (functions for numba) that serve Produce requests into their cache on disk,
so that a LoadKernel function has nothing to compile; returns False if that is impossible, such as
without numba. Runs in a helper thread, has the same argument as LoadKernel (a function that returns
True once the broker stops), and does not import numba in this process."""


def load_produce_kernel(is_stopping: Callable[[], bool]) -> Any | None:
    """Return the module of the produce kernel (the compiled code for Produce requests); None if it
    cannot be compiled, such as without numba, or if the broker stops meanwhile. The call blocks for
    0.3 s, and much longer if a child process first has to compile the kernel into its cache on
    disk."""
    if not compile_produce_kernel(is_stopping):
        return None
    with short_switch_interval():
        module = importlib.import_module(_MODULE)
        importlib.import_module(_SOCKET_MODULE)
        importlib.import_module(_CONVERSION_MODULE)
        # Loads the kernels (compiled functions) that validate the batches of ordinary Produce
        # requests (log/validation) in this helper thread, not in the loop thread.
        kernel_checks()
        return module if module.IS_COMPILED else None


def compile_produce_kernel(is_stopping: Callable[[], bool]) -> bool:
    """Compile the kernels (functions for numba) that serve Produce requests in a child process if
    they are not in their cache on disk. Return whether the cache has them now."""
    return fill_cache((_MODULE, _SOCKET_MODULE), is_stopping)
