"""Collects the connections of each event-loop turn's produce plan (a kernel's list of appends for
many Produce requests), and loads the produce kernel.

Before the kernel is loaded there are no plans: numba is not imported, and the ordinary Produce
handler serves all requests. Loading begins when a client pipelines Produce requests or sends a
large one, when many are received (in one turn: _READY_CONNECTIONS; altogether: UNPLANNED_REQUESTS),
or at a moment without requests (quiet_loading.py). A helper thread loads the kernel, after a child
process has compiled it if necessary. From then on the connections whose received bytes begin with a
whole Produce request are in the event-loop turn's plan.

A readable connection without other work may join the turn's plan (``offer_readable``). One call
receives from all joined connections, and another one sends the responses that are not delayed. If
receiving from a connection fails, or the plan leaves some of its requests or responses, the
connection continues as if it had received the bytes itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from klog_broker.network.bounds import LEAST_RECEIVE_BYTES, RECEIVE_BYTES
from klog_broker.produce.kernel_loading import LoadKernel
from klog_broker.produce.planner_interfaces import NOTHING_RECEIVED, Received
from klog_broker.runtime.net.socket_calls import ARENA_FULL, MAX_SOCKETS

if TYPE_CHECKING:
    from klog_broker.network.connection import Connection
    from klog_broker.network.server import Server
    from klog_broker.produce.planner import ProducePlanner

_log = logging.getLogger("klog.kernels")

# Load the produce kernel (compiled code that serves many requests at once) when one receive brings
# _PIPELINED_REQUESTS times the bytes of its first Produce request, or when _READY_CONNECTIONS
# connections receive Produce requests in one event-loop turn.
_PIPELINED_REQUESTS = 4
_READY_CONNECTIONS = 16
# Load the produce kernel (compiled code) also for one request of this size: without the kernel,
# Python code checks the request's records one by one.
_LARGE_REQUEST_BYTES = 32 * 1024
UNPLANNED_REQUESTS = 5_000
"""Load the produce kernel (compiled code) also when connections have received Produce requests this
many times: serving the requests without the kernel has cost as much time as loading it.
quiet_loading.py may not load the kernel on a busy leader with followers: it waits for a moment
without requests, but the followers send fetches all the time."""


class TurnPlans:
    """Collects the connections that an event-loop turn's produce plan serves together (the compiled
    kernel's list of appends). Loop thread only."""

    def __init__(
        self,
        server: Server,
        load_kernel: LoadKernel,
        make_planner: Callable[[Any], ProducePlanner],
    ) -> None:
        self.planner: ProducePlanner | None = None
        self._server = server
        self._loop = server.loop
        self._load_kernel = load_kernel
        self._make_planner = make_planner
        self.is_load_requested = False
        """Whether loading was requested: the produce kernel (the compiled code for Produce
        requests) is loaded, is being loaded, or could not be loaded."""
        self.is_closed = False
        """Whether the broker is stopping: a compilation of the produce kernel (the compiled code
        for Produce requests) is then abandoned."""
        self._asked_ms = 0
        self._waiting: list[Connection] = []
        self._joined: list[Connection] = []
        self._turn = -1
        self._offers = 0
        self._offers_ever = 0

    def close(self) -> None:
        """Set ``is_closed``, because the broker is stopping."""
        self.is_closed = True

    @property
    def is_planning(self) -> bool:
        """Whether the compiled produce kernel is loaded, so that it serves Produce requests of many
        connections together (in produce plans)."""
        return self.planner is not None

    @property
    def is_wanted(self) -> bool:
        """Whether any client has sent a Produce request, so that the produce kernel (the compiled
        code for Produce requests) is useful."""
        return self._turn >= 0

    def offer_received(
        self, connection: Connection, first_frame_bytes: int, received_bytes: int
    ) -> bool:
        """Add a connection that has received Produce requests to this event-loop turn's produce
        plan, in which the compiled kernel serves many connections together. The connection must
        then not parse its bytes before its ``on_planned`` is called. Return False if the plan does
        not take the connection."""
        if self.planner is None:
            if not self.is_load_requested:
                is_load = first_frame_bytes >= _LARGE_REQUEST_BYTES
                is_load |= received_bytes >= _PIPELINED_REQUESTS * first_frame_bytes
                self._maybe_load(is_load)
            return False
        if first_frame_bytes > received_bytes:
            return False
        self._schedule()
        self._waiting.append(connection)
        return True

    def offer_readable(self, connection: Connection) -> bool:
        """Let a readable connection join this event-loop turn's produce plan, in which the compiled
        kernel serves many connections together: one call then receives from all joined connections.
        Return False if the connection has to receive by itself."""
        joined = self._joined
        if not joined:
            if not self.receives:
                return False
            self._schedule()
        elif len(joined) == MAX_SOCKETS:
            return False
        joined.append(connection)
        return True

    @property
    def receives(self) -> bool:
        """Whether readable connections may join produce plans (the compiled kernel serves many
        connections together): the kernel is loaded, and the system can receive from many
        connections in one call of compiled code."""
        return self.planner is not None and self.planner.calls is not None

    def _schedule(self) -> None:
        if not self._waiting and not self._joined:
            self._loop.call_at_append(self._run)

    def _run(self) -> None:
        waiting, self._waiting = self._waiting, []
        joined, self._joined = self._joined, []
        assert self.planner is not None
        arena = self._server.memory.arena
        before_bytes = arena.used_bytes
        received = self._receive(joined) if joined else NOTHING_RECEIVED
        after_bytes = received.bounds[-1] if received.connections else before_bytes
        if self.planner.run(waiting, received):
            # All requests of the connections for which this turn's produce plan received are served
            # and answered, so their bytes in the arena (receive buffer) are free again.
            arena.unmark(before_bytes, after_bytes)

    def _receive(self, joined: list[Connection]) -> Received:
        assert self.planner is not None
        calls, arena = self.planner.calls, self._server.memory.arena
        assert calls is not None
        ready = [each for each in joined if each.is_open]
        start = arena.used_bytes
        descriptors = [each.descriptor for each in ready]
        counts = calls.receive(descriptors, start, RECEIVE_BYTES, LEAST_RECEIVE_BYTES)
        others: list[tuple[Connection, int]] = []
        if min(counts, default=1) <= 0:
            rows = list(zip(ready, counts, strict=True))
            others = [row for row in rows if row[1] <= 0]
            ready = [connection for connection, count in rows if count > 0]
            counts = [count for count in counts if count > 0]
        bounds = list(accumulate(counts, initial=start))
        arena.mark_used(bounds[-1] - start)
        self._server.touch_all(ready)
        for connection, count in others:
            if count == ARENA_FULL:
                connection.put_off()
            else:
                # The connection's stream has ended, the receive failed, or no bytes were there: the
                # connection's ``receive`` handles each case.
                connection.receive()
        return Received(ready, bounds)

    def _maybe_load(self, is_load: bool) -> None:
        if self._turn != self._loop.turn:
            self._turn = self._loop.turn
            self._offers = 0
        self._offers += 1
        self._offers_ever += 1
        is_load |= self._offers_ever >= UNPLANNED_REQUESTS
        if is_load or self._offers >= _READY_CONNECTIONS:
            self.load()

    def load(self) -> None:
        """Load the produce kernel (compiled code) once, in a helper thread. Once it is loaded, it
        serves Produce requests of many connections together (in produce plans)."""
        if not self.is_load_requested:
            self.is_load_requested = True
            self._asked_ms = self._loop.now_ms()
            self._server.helpers.submit(
                lambda: self._load_kernel(lambda: self.is_closed), self._loaded
            )

    def _loaded(self, kernel: Any | None, error: BaseException | None) -> None:
        if error is not None:
            _log.warning(
                "the Produce kernel cannot be loaded, so Python handles each request: %r", error
            )
        elif kernel is not None and not self.is_closed:
            self.planner = self._make_planner(kernel)
            _log.info("kernels loaded took_ms=%d", self._loop.now_ms() - self._asked_ms)
