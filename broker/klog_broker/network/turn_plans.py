"""Which connections a turn's produce plan looks at, and when the kernel for it is loaded.

Until the first pipelined turn nothing here costs anything: numba is not imported, and the generic
handler serves all. Then a helper thread loads the kernel, if need be after a child process has
compiled it; from there on each turn makes one plan for all connections that begin with Produce.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klog_broker.log.checks import kernel_checks
from klog_broker.runtime.helpers import Helpers
from klog_broker.runtime.loop import Loop

if TYPE_CHECKING:
    from klog_broker.network.connection import Connection
    from klog_broker.network.produce_plan import ProducePlanner

_log = logging.getLogger("klog.kernels")

_MODULE = "klog_broker.network.produce_kernel"
# So many requests in one receive, or connections that begin with Produce in one turn, are a load
# that is worth the kernel.
_PIPELINED_REQUESTS = 4
_READY_CONNECTIONS = 16
# One request of this size, too: its records are checked by a kernel, or one by one in Python.
_LARGE_REQUEST_BYTES = 32 * 1024
_COMPILE_TIMEOUT_S = 300
# While numba is imported beside the loop, the loop gets its turn this soon.
_SWITCH_INTERVAL_S = 0.0005


LoadKernel = Callable[[Callable[[], bool]], Any | None]
"""Loads the kernel's module; None where there is none. Runs in a helper thread and may block, but
gives up soon when what it is given says that the broker stops."""


class TurnPlans:
    """Collects a turn's connections for the planner. Loop thread only."""

    def __init__(
        self,
        loop: Loop,
        helpers: Helpers,
        load_kernel: LoadKernel,
        make_planner: Callable[[Any], ProducePlanner],
    ) -> None:
        self.planner: ProducePlanner | None = None
        self._loop = loop
        self._helpers = helpers
        self._load_kernel = load_kernel
        self._make_planner = make_planner
        self._is_asked_for = False
        self._waiting: list[Connection] = []
        self._turn = -1
        self._offers = 0
        self._is_closed = False

    def close(self) -> None:
        """The broker stops: a kernel that is being compiled is not waited for."""
        self._is_closed = True

    def offer(self, connection: Connection, first_frame_bytes: int, received_bytes: int) -> bool:
        """Whether the connection waits for the turn's plan (then it is not parsed before)."""
        if self.planner is None:
            if not self._is_asked_for:
                is_load = first_frame_bytes >= _LARGE_REQUEST_BYTES
                is_load |= received_bytes >= _PIPELINED_REQUESTS * first_frame_bytes
                self._maybe_load(is_load)
            return False
        if first_frame_bytes > received_bytes:
            return False
        if not self._waiting:
            self._loop.call_at_append(self._run)
        self._waiting.append(connection)
        return True

    def _run(self) -> None:
        waiting, self._waiting = self._waiting, []
        assert self.planner is not None
        self.planner.run(waiting)

    def _maybe_load(self, is_load: bool) -> None:
        if self._turn != self._loop.turn:
            self._turn = self._loop.turn
            self._offers = 0
        self._offers += 1
        if is_load or self._offers >= _READY_CONNECTIONS:
            self.load()

    def load(self) -> None:
        """Has the kernel loaded, once; plans begin when it is there."""
        if not self._is_asked_for:
            self._is_asked_for = True
            self._helpers.submit(lambda: self._load_kernel(lambda: self._is_closed), self._loaded)

    def _loaded(self, kernel: Any | None, error: BaseException | None) -> None:
        if error is not None:
            _log.warning("the produce kernel cannot be loaded: %r", error)
        elif kernel is not None and not self._is_closed:
            self.planner = self._make_planner(kernel)
            _log.debug("the produce kernel is loaded")


def load_produce_kernel(is_stopping: Callable[[], bool]) -> Any | None:
    """The kernel's module, compiled by a child process if its cache is cold; None without numba.

    Blocks for 0.3 s with a warm cache.
    """
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return None
    if importlib.util.find_spec("numba") is None:
        _log.info("numba is not installed: requests are served without kernels, more slowly")
        return None
    from pyspark_klog.records.kernels import cache

    source = str(Path(__file__).with_name("produce_kernel.py"))
    if not cache.is_warm(source):
        status = _compile(is_stopping)
        if is_stopping():
            return None
        if status != 0 or not cache.is_warm(source):
            _log.warning("kernels could not be compiled, status=%s", status)
            return None
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        module = importlib.import_module(_MODULE)
        kernel_checks()  # so that the loop finds them made
        return module if module.IS_COMPILED else None
    finally:
        sys.setswitchinterval(before)


def _compile(is_stopping: Callable[[], bool]) -> int | None:
    """The exit status of the child that compiles; None if it was not let finish."""
    command = [sys.executable, "-P", "-m", "klog_broker.warm"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=quiet) as child:
        for _ in range(_COMPILE_TIMEOUT_S * 10):
            try:
                return child.wait(0.1)
            except subprocess.TimeoutExpired:
                if is_stopping():
                    break
        child.kill()
    return None
