"""Runs a child process that compiles the broker's kernels (functions for numba) and stores the
compiled code in a cache on disk.

The child has an interpreter lock (GIL) of its own, so that the broker's threads run while the child
compiles.
"""

import importlib.util
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable

_log = logging.getLogger("klog.kernels")

_TIMEOUT_S = 300
_LOOK_EVERY_S = 0.1
# All brokers of the process share one cache: while a child process fills the cache, other calls of
# fill_cache wait for this lock.
_compiling = threading.Lock()


def fill_cache(modules: Iterable[str], is_stopping: Callable[[], bool]) -> bool:
    """Make sure that the cache on disk has the compiled kernels (numba functions) of these modules.

    If some are missing, a child process compiles all kernels of the broker. Returns whether the
    cache has all kernels of `modules` now; False, too, if numba is missing or disabled, or if the
    broker stops meanwhile. Blocks, but ends the child soon after `is_stopping` returns True. Does
    not import numba.
    """
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return False
    if importlib.util.find_spec("numba") is None:
        _log.info("numba is not installed: the broker runs without compiled code, more slowly")
        return False
    # Imported here, because `cache` imports importlib.metadata and other modules, which would slow
    # down the start-up of every broker.
    from pyspark_klog.records.kernels import cache

    sources = [kernel_source(module) for module in modules]
    with _compiling:
        if all(map(cache.is_warm, sources)):
            return True
        if is_stopping():
            return False
        _log.info(
            "compiling the broker's kernels (numba functions), once, in a child process: python -m"
            " klog_broker.warm"
        )
        status = _compile(is_stopping)
        if is_stopping():
            return False
        if status == 0 and all(map(cache.is_warm, sources)):
            return True
    _log.warning(
        "the child process did not fill the cache of compiled kernels, status=%s: the broker runs"
        " without compiled code, more slowly; run `python -m klog_broker.warm` to see the cause",
        status,
    )
    return False


def kernel_source(module: str) -> str:
    """Return the path of a module with kernels (numba functions), without importing the module.

    :raises ModuleNotFoundError: if there is no such module
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"there is no module {module} with kernels", name=module)
    return spec.origin


def _compile(is_stopping: Callable[[], bool]) -> int | None:
    """Run the compiling child process and return its exit status; None if this function killed it.

    The child is killed when the broker stops, or after `_TIMEOUT_S`.
    """
    command = [sys.executable, "-P", "-m", "klog_broker.warm"]
    quiet = subprocess.DEVNULL
    # The child starts processes, too. As the leader of a new session the child shares a process
    # group with them, so one killpg ends all of them.
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, start_new_session=True) as child:
        for _ in range(int(_TIMEOUT_S / _LOOK_EVERY_S)):
            try:
                return child.wait(_LOOK_EVERY_S)
            except subprocess.TimeoutExpired:
                if is_stopping():
                    break
        os.killpg(child.pid, signal.SIGKILL)
    return None
