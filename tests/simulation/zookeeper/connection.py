"""One connection of a session to a server: both directions in order, until it breaks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from klog_broker.runtime.zookeeper.requests import Exists, Get, ListChildren, Request, Sync
from klog_broker.runtime.zookeeper.sessions import Watch
from tests.simulation.zookeeper.servers import Entry

if TYPE_CHECKING:
    from tests.simulation.zookeeper.clients import Carrier
    from tests.simulation.zookeeper.servers import Server, ServerSession

_READS = (Get, Exists, ListChildren)
Action = Callable[[], None]


class EndSession(NamedTuple):
    """The request with which a client ends its session."""

    path: str = ""


class _Pipe:
    """One direction: messages arrive in order, while the direction is not cut."""

    def __init__(self, connection: Connection, direction: str) -> None:
        self._connection = connection
        self._direction = direction
        self._under_way: deque[Action] = deque()
        self._last_due_ms = 0

    def put(self, action: Action) -> None:
        zookeeper = self._connection.zookeeper
        self._under_way.append(action)
        now_ms = zookeeper.world.now_ms
        self._last_due_ms = max(self._last_due_ms, now_ms + zookeeper.delay_ms())
        zookeeper.world.after(self._last_due_ms - now_ms, self._arrive)

    def cut_to(self, length: int) -> None:
        """Drop all messages but the first ``length``."""
        while len(self._under_way) > length:
            self._under_way.pop()

    def __len__(self) -> int:
        return len(self._under_way)

    def _arrive(self) -> None:
        client = self._connection.carrier.client
        if self._under_way and client.is_cut(self._direction):
            client.when_mended(self._direction, self._arrive)
        elif self._under_way:
            self._under_way.popleft()()


class Connection:
    """A connection; the server handles all requests that arrived before the client closed it."""

    def __init__(self, carrier: Carrier, server: Server) -> None:
        self.carrier = carrier
        self.zookeeper = carrier.client.zookeeper
        self.server = server
        self.session: ServerSession | None = None
        self.is_open = True
        self._to_server = _Pipe(self, "to")
        self._to_client = _Pipe(self, "from")
        self._arrived: deque[tuple[Request | EndSession, Callable[[Any], None], Watch | None]]
        self._arrived = deque()
        self._is_busy = False

    def send(
        self, request: Request | EndSession, on_response: Callable[[Any], None], watch: Watch | None
    ) -> None:
        def arrive() -> None:
            self._arrived.append((request, on_response, watch))
            self._serve_next()

        self._to_server.put(arrive)

    def to_client(self, action: Action) -> None:
        """Send a response or a watch event to the client."""
        if self.is_open:
            self._to_client.put(lambda: self.carrier.client.post(action))

    def break_off(self) -> None:
        """Close the client's end: some messages to the server still arrive, none to the client."""
        self.is_open = False
        self.server.forget(self)
        self._to_client.cut_to(0)
        is_cut = self.carrier.client.is_cut("to")
        self._to_server.cut_to(
            0 if is_cut else self.zookeeper.world.between(0, len(self._to_server))
        )
        if self.session is not None:
            self.zookeeper.lost_contact(self.session)

    def ended_by_server(self) -> None:
        """The server reports that the session is over."""
        self.carrier.ended_by_server(self)

    def _serve_next(self) -> None:
        session = self.session
        if self._is_busy or not self._arrived or session is None or not self._is_served(session):
            return
        request, on_response, watch = self._arrived.popleft()
        self._is_busy = True

        def on_served(answer: Any) -> None:
            self.carrier.seen = max(self.carrier.seen, self.server.applied)
            self.to_client(lambda: on_response(answer))
            self._is_busy = False
            self._serve_next()

        def at_leader() -> None:
            if not self._is_served(session):
                return
            if isinstance(request, EndSession):
                self.zookeeper.end_session(session)
            elif not isinstance(request, Sync):
                self.zookeeper.commit(Entry(session.session_id, request))
            # A sync waits until the last write is applied; that write's response is not for it.
            own = on_served if not isinstance(request, Sync) else lambda _: on_served(None)
            self.server.when_applied(len(self.zookeeper.entries), own)

        if isinstance(request, _READS):
            on_served(self.server.read(self, request, watch if self.is_open else None))
        else:
            self.zookeeper.world.after(self.zookeeper.delay_ms(), at_leader)

    def _is_served(self, session: ServerSession) -> bool:
        return not session.is_over and session.connection is self and not self.zookeeper.is_down
