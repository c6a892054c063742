"""Loads the kernels before they are needed, while nobody waits.

If the kernels' cache is cold a child process compiles them; that takes many seconds and begins at
once. Loading takes 0.3 s of this process, in which the loop stalls for up to 30 ms, and 130 MB of
memory. So it waits for the first Produce, and then for a moment in which no connection is used.
When many requests come, turns.py loads the kernels without waiting for such a moment. A leader with
followers never has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klog_broker.network.server import Server
    from klog_broker.produce.loading import CompileKernel
    from klog_broker.produce.turns import TurnPlans

_LOOK_AGAIN_MS = 1000
# Without a request for this long the broker is quiet. A consumer that waits for records sends one
# every half a second, so there are quiet moments between its requests.
_QUIET_MS = 250


class IdleKernels:
    """Loop thread only. ``compile_kernel`` as for TurnPlans; it runs in a helper thread."""

    def __init__(self, server: Server, plans: TurnPlans, compile_kernel: CompileKernel) -> None:
        self._server = server
        self._loop = server.loop
        self._plans = plans
        self._compile_kernel = compile_kernel

    def begin(self) -> None:
        """To be called when the broker serves: compiles the kernels, if their cache is cold."""
        self._server.helpers.submit(
            lambda: self._compile_kernel(lambda: self._plans.is_closed), self._compiled
        )

    def _compiled(self, is_there: bool | None, _: BaseException | None) -> None:
        # If compiling failed, the first load tries again and logs the reason.
        if is_there:
            self._look()

    def _look(self) -> None:
        if self._plans.is_asked_for or self._plans.is_closed:
            return
        if self._plans.is_wanted and self._is_quiet():
            self._plans.load()
            return
        self._loop.call_later(_LOOK_AGAIN_MS, self._look)

    def _is_quiet(self) -> bool:
        last_used_ms = self._server.last_used_ms
        return last_used_ms is None or self._loop.now_ms() - last_used_ms >= _QUIET_MS
