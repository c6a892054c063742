"""Fills the cache of the kernels: in a child process, so that nothing here waits for a compiler."""

import importlib.util
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

_log = logging.getLogger("klog.kernels")

_TIMEOUT_S = 300
_LOOK_EVERY_S = 0.1
# The cache is one for all brokers of the process: who comes while a child fills it waits for that.
_compiling = threading.Lock()


def fill_cache(modules: Iterable[str], is_stopping: Callable[[], bool]) -> bool:
    """Whether the kernels of these modules of klog_broker are in their cache, put there by a child
    process if they were not. Blocks, but gives up soon once `is_stopping`. Imports no numba."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return False
    if importlib.util.find_spec("numba") is None:
        _log.info("numba is not installed: requests are served without kernels, more slowly")
        return False
    # Not at the start of each broker: it takes importlib.metadata and others with it.
    from pyspark_klog.records.kernels import cache

    sources = [_source(module) for module in modules]
    with _compiling:
        if all(map(cache.is_warm, sources)):
            return True
        if is_stopping():
            return False
        _log.info("kernels are compiled by a child process, once: python -m klog_broker.warm")
        status = _compile(is_stopping)
        if is_stopping():
            return False
        if status == 0 and all(map(cache.is_warm, sources)):
            return True
    _log.warning("kernels could not be compiled, status=%s", status)
    return False


def _source(module: str) -> str:
    """The file of one of klog_broker's modules, which is not imported for that."""
    return str(Path(__file__).parents[2].joinpath(*module.split(".")).with_suffix(".py"))


def _compile(is_stopping: Callable[[], bool]) -> int | None:
    """The exit status of the child that compiles; None if it was not let finish."""
    command = [sys.executable, "-P", "-m", "klog_broker.warm"]
    quiet = subprocess.DEVNULL
    # A session of its own: it has children itself, which must end with it.
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, start_new_session=True) as child:
        for _ in range(int(_TIMEOUT_S / _LOOK_EVERY_S)):
            try:
                return child.wait(_LOOK_EVERY_S)
            except subprocess.TimeoutExpired:
                if is_stopping():
                    break
        os.killpg(child.pid, signal.SIGKILL)
    return None
