"""Loads the compiled kernels for Produce while the broker is quiet (no connection has sent or
received bytes for 250 ms), before many Produce requests need them.

If the kernels are not in their cache on disk, a child process starts to compile them at once, which
takes many seconds. Loading takes 0.3 s in this process, during which the event loop stalls for up
to 30 ms, and 130 MB of memory. So loading waits for the first Produce request, and then until the
broker is quiet. When many Produce requests come, turn_plans.py loads the kernels without waiting.
While records come to a leader with followers, the broker is hardly ever quiet, because the
followers fetch all the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klog_broker.network.server import Server
    from klog_broker.produce.kernel_loading import CompileKernel
    from klog_broker.produce.turn_plans import TurnPlans

_LOOK_AGAIN_MS = 1000
# The broker is quiet, so that the kernels for Produce (compiled code) may be loaded, if no
# connection has sent or received bytes for this long. A waiting consumer sends a Fetch every 500
# ms, so there are quiet moments between its requests.
_QUIET_MS = 250


class QuietKernelLoader:
    """Loads the kernels for Produce (compiled code) after the first Produce request, once no
    connection of the broker has sent or received bytes for 250 ms (_QUIET_MS). Loop thread only.
    ``compile_kernel`` runs in a helper thread."""

    def __init__(self, server: Server, plans: TurnPlans, compile_kernel: CompileKernel) -> None:
        self._server = server
        self._loop = server.loop
        self._plans = plans
        self._compile_kernel = compile_kernel

    def start_compiling(self) -> None:
        """Start to compile the kernels for Produce (functions for numba) if they are not in their
        cache on disk. Called once the broker accepts requests."""
        self._server.helpers.submit(
            lambda: self._compile_kernel(lambda: self._plans.is_closed), self._compiled
        )

    def _compiled(self, is_there: bool | None, _: BaseException | None) -> None:
        # If the kernels could not be compiled, this module does not load them. Once many Produce
        # requests come, turn_plans.py tries to load the kernels, and first compiles them again.
        if is_there:
            self._look()

    def _look(self) -> None:
        if self._plans.is_load_requested or self._plans.is_closed:
            return
        if self._plans.is_wanted and self._is_quiet():
            self._plans.load()
            return
        self._loop.call_later(_LOOK_AGAIN_MS, self._look)

    def _is_quiet(self) -> bool:
        last_used_ms = self._server.last_used_ms
        return last_used_ms is None or self._loop.now_ms() - last_used_ms >= _QUIET_MS
