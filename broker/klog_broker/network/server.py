"""Listeners and connections of one broker: accepting, limits, closing idle connections, and
offering Produce requests to the event-loop turn's produce plan (the compiled kernel serves many
connections together)."""

from __future__ import annotations

import errno
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from klog_broker.metrics.requests import RequestTimes
from klog_broker.network.bounds import (
    ACCEPT_PAUSE_MS,
    ACCEPTS_PER_TURN,
    BULK_RECEIVE_BYTES,
    RECEIVE_BYTES,
)
from klog_broker.network.connection import Connection
from klog_broker.network.connection_states import CLOSING, ENDING
from klog_broker.network.memory import ReceiveMemory
from klog_broker.network.plans import Plans
from klog_broker.network.responses import QueuedResponse
from klog_broker.network.single_requests import SingleRequests, SingleResponse
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.wheel import Timer
from klog_broker.runtime.net.poller import READABLE
from klog_broker.runtime.net.sockets import ListeningSocket, Network, StreamSocket
from klog_broker.runtime.system.descriptors import describe_exhaustion, is_exhausted
from klog_broker.runtime.system.rate_limit import RateLimit
from klog_broker.runtime.threads.helpers import Helpers

_log = logging.getLogger("klog.network")

FrameHandler = Callable[[memoryview, QueuedResponse | SingleResponse, Connection], bool]
"""Serves a request. Its arguments are the request's frame, the slot (the place for the response)
and the connection. Returns whether the frame's bytes may be reused now."""

_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True)
class NetworkLimits:
    """The limits of connections and requests, from Kafka's settings such as max.connections,
    connections.max.idle.ms and socket.request.max.bytes."""

    max_request_bytes: int = 104_857_600
    max_idle_ms: int = 600_000
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    queued_max_request_bytes: int = -1
    backlog: int = 50

    def per_ip(self, address: str) -> int:
        """The most connections that clients with this IP address may have."""
        return self.max_connections_per_ip_overrides.get(address, self.max_connections_per_ip)


class Server:
    """The listeners and connections of a broker. Loop thread only."""

    def __init__(
        self,
        loop: Loop,
        helpers: Helpers,
        network: Network,
        limits: NetworkLimits,
        handle_frame: FrameHandler,
        pipelined_apis: frozenset[int],
        requests: RequestTimes | None = None,
    ) -> None:
        self.loop = loop
        self.requests = requests or RequestTimes(lambda _, __: True)
        loop.on_turn_over = self.requests.count_turn
        self.helpers = helpers
        self.handle_frame = handle_frame
        self.pipelined_apis = pipelined_apis
        self.max_request_bytes = limits.max_request_bytes
        self._handle_frame_of_broker = handle_frame
        self._plans: Plans | None = None
        self._plans_set_aside: Plans | None = None
        self.join_plan: Callable[[Connection], bool] = _joins_nothing
        """Offers a readable connection to the event-loop turn's produce plan, which serves the
        Produce requests of many connections together; returns whether the plan receives from the
        connection."""
        self.memory = ReceiveMemory(loop, limits.queued_max_request_bytes)
        self.single_requests = SingleRequests(loop)
        self.counters: Counter[str] = Counter()
        self._network = network
        self._limits = limits
        self._listeners: dict[str, ListeningSocket] = {}
        # The open connections in the order of last use, the least recently used connection first.
        self._connections: OrderedDict[Connection, None] = OrderedDict()
        self._by_address: Counter[str] = Counter()
        self._accepted = 0
        self._accepting = True
        self._idle_timer: Timer | None = None
        self._refusals = RateLimit()
        self._accept_failures = RateLimit()

    def set_limits(self, limits: NetworkLimits) -> None:
        """Apply new limits of connections; open connections stay open."""
        self._limits = limits
        if len(self._connections) < limits.max_connections:
            self._set_accepting(True)

    # -- opening and closing listeners, accepting connections ---------------------------------

    def listen(self, name: str, host: str, port: int) -> int:
        """Open the listener ``name``, and return its port; OSError if that fails."""
        listening = self._network.listen(host, port, self._limits.backlog)
        self._listeners[name] = listening
        self.loop.register(listening.fileno(), READABLE, lambda _: self._accept(name, listening))
        return listening.address()[1]

    def stop_accepting(self) -> None:
        """Close the listeners; connections stay open."""
        for listening in self._listeners.values():
            self.loop.unregister(listening.fileno())
            listening.close()
        self._listeners.clear()

    def close(self) -> None:
        """Close listeners and connections; unsent responses are lost."""
        self.stop_accepting()
        for connection in list(self._connections):
            connection.close("the broker stops")
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def end_connections(self, most: int) -> bool:
        """Make up to ``most`` connections end once their received requests are answered.

        Returns whether there are further connections that neither end nor close; the caller then
        calls this method again.
        """
        ended = 0
        for connection in list(self._connections):
            if connection.state is not ENDING and connection.state is not CLOSING:
                if ended == most:
                    return True
                connection.drain_and_close()
                ended += 1
        return False

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def max_connections(self) -> int:
        """The most open connections: max.connections, or fewer if `ulimit -n` allows fewer."""
        return self._limits.max_connections

    @property
    def accepted(self) -> int:
        """The number of connections accepted so far, without those that were refused because of
        max.connections.per.ip."""
        return self._accepted

    @property
    def last_used_ms(self) -> int | None:
        """The last time in ms at which an open connection was accepted, received or sent bytes, or
        was not closed as idle because it awaited a response; None if no connection is open."""
        last = next(reversed(self._connections), None)
        return None if last is None else last.last_used_ms

    def _accept(self, name: str, listening: ListeningSocket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if not self._may_accept():
                return
            try:
                stream = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._pause_accepting(error)
                    return
                # Usually the client disconnected before it was accepted. Try to accept the next
                # client.
                self._warn(self._accept_failures, f"a connection could not be accepted: {error}")
                continue
            self._add_connection(name, stream)

    def _add_connection(self, name: str, stream: StreamSocket) -> None:
        address, port = stream.remote_address()
        if self._by_address[address] >= self._limits.per_ip(address):
            stream.close()
            self.count("connections-refused-by-address")
            self._warn(
                self._refusals,
                f"connection refused: {address} has {self._by_address[address]} connections, the"
                " most that max.connections.per.ip allows",
            )
            return
        self._accepted += 1
        local_host, local_port = stream.local_address()
        connection_id = f"{local_host}:{local_port}-{address}:{port}-{self._accepted}"
        connection = Connection(self, stream, name, connection_id)
        self._connections[connection] = None
        self._by_address[address] += 1
        self.loop.register(stream.fileno(), READABLE, connection.on_ready)
        self._start_idle_timer()

    def _may_accept(self) -> bool:
        """Whether a connection may be accepted. At max.connections, stop accepting: new connections
        wait in the backlog until one closes."""
        if len(self._connections) < self._limits.max_connections:
            return True
        self._warn(
            self._accept_failures,
            f"{len(self._connections)} connections are open, the most that max.connections and"
            " `ulimit -n` allow: new ones wait until one closes",
        )
        self._set_accepting(False)
        return False

    def _pause_accepting(self, error: OSError) -> None:
        reason = describe_exhaustion(error) if is_exhausted(error) else error
        self._warn(self._accept_failures, f"cannot accept connections for now: {reason}")
        self._set_accepting(False)
        self.loop.call_later(ACCEPT_PAUSE_MS, lambda: self._set_accepting(True))

    def _set_accepting(self, accepting: bool) -> None:
        if accepting != self._accepting:
            self._accepting = accepting
            for listening in self._listeners.values():
                self.loop.modify(listening.fileno(), READABLE if accepting else 0)

    # -- open connections: last use, refusal and closing --------------------------------------

    def touch(self, connection: Connection) -> None:
        """Record that bytes were received or sent, so that the connection is not idle."""
        now_ms = self.loop.time_ms
        if connection.last_used_ms != now_ms:
            connection.last_used_ms = now_ms
            self._connections.move_to_end(connection)

    def touch_all(self, connections: Iterable[Connection]) -> None:
        """Record that bytes were received or sent on many connections."""
        now_ms, move_to_end = self.loop.now_ms(), self._connections.move_to_end
        for connection in connections:
            connection.last_used_ms = now_ms
            move_to_end(connection)

    def refuse(self, connection: Connection, reason: str) -> None:
        """Close a connection because of an error in its requests; log the reason at a limited
        rate."""
        self.count("connections-closed-for-bad-input")
        self._warn(self._refusals, f"closing {connection.connection_id}: {reason}")
        connection.close(reason)

    def on_closed(self, connection: Connection, reason: str) -> None:
        """Remove a connection that has closed itself from the open connections."""
        del self._connections[connection]
        left = self._by_address[connection.client_address] - 1
        if left:
            self._by_address[connection.client_address] = left
        else:
            del self._by_address[connection.client_address]
        if not self._accepting and len(self._connections) < self._limits.max_connections:
            self._set_accepting(True)
        _log.debug("closed connection=%s reason=%s", connection.connection_id, reason)

    def count(self, name: str) -> None:
        """Add one to ``name``, one of the network's counters that the metrics show."""
        self.counters[name] += 1

    def _start_idle_timer(self) -> None:
        if self._idle_timer is None and self._limits.max_idle_ms > 0:
            delay_ms = self._limits.max_idle_ms
            self._idle_timer = self.loop.call_later(delay_ms, self._close_idle)

    def _close_idle(self) -> None:
        self._idle_timer = None
        limit_ms = self.loop.now_ms() - self._limits.max_idle_ms
        while self._connections:
            connection = next(iter(self._connections))
            if connection.last_used_ms > limit_ms:
                due_ms = connection.last_used_ms + self._limits.max_idle_ms
                self._idle_timer = self.loop.call_at(due_ms, self._close_idle)
                return
            if connection.awaits_broker:
                self.touch(connection)
                continue
            self.count("connections-closed-idle")
            connection.close("idle for longer than connections.max.idle.ms")

    def _warn(self, limit: RateLimit, text: str) -> None:
        if limit.allows(self.loop.now_ms()):
            _log.warning("%s%s", text, limit.pop_suppressed_note())

    # -- serving Produce requests of many connections together ---------------------------------

    def use_plans(self, plans: Plans) -> None:
        """Offer Produce requests to ``plans`` from now on, which serves those of many connections
        together, usually once in an event-loop turn. Before this call, the handler of Produce
        serves each request by itself."""
        self._plans = plans
        self.join_plan = plans.offer_readable

    def intercept_requests(self, handle_frame: FrameHandler) -> None:
        """Pass each request to ``handle_frame`` until ``end_interception`` is called, and none to
        produce plans. For faults that a test adds (klog_broker.faults)."""
        self.handle_frame = handle_frame
        if self._plans is not None:
            self._plans_set_aside, self._plans = self._plans, None
            self.join_plan = _joins_nothing

    def end_interception(self) -> None:
        """Serve requests as before ``intercept_requests``."""
        self.handle_frame = self._handle_frame_of_broker
        if self._plans_set_aside is not None:
            self.use_plans(self._plans_set_aside)
            self._plans_set_aside = None

    @property
    def is_planning(self) -> bool:
        """Whether Produce requests may be offered to the event-loop turn's produce plan, which
        serves many connections together: the compiled kernel that makes the plans is loaded."""
        return self._plans is not None and self._plans.is_planning

    def offer_to_plan(
        self, connection: Connection, first_frame_bytes: int, received_bytes: int
    ) -> bool:
        """Offer received bytes that begin with a Produce request to this event-loop turn's produce
        plan, which serves the Produce requests of many connections together.

        Returns whether the plan takes the bytes; if not, the connection parses them.
        """
        if self._plans is None:
            return False
        return self._plans.offer_received(connection, first_frame_bytes, received_bytes)

    def bulk_share_bytes(self) -> int:
        """Return how many bytes to receive at most in this event-loop turn from one connection that
        sends in bulk: BULK_RECEIVE_BYTES shared among the turn's ready connections, but at least
        RECEIVE_BYTES."""
        return max(RECEIVE_BYTES, BULK_RECEIVE_BYTES // max(1, self.loop.ready_count))


def _joins_nothing(_: Connection) -> bool:
    return False
