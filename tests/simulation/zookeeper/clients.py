"""Processes that use ZooKeeper, with their sessions and the faults of their connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from klog_broker.runtime.zookeeper.requests import Request, split_connect
from klog_broker.runtime.zookeeper.session import CarriedSession
from klog_broker.runtime.zookeeper.sessions import (
    OpenSession,
    Session,
    SessionEvent,
    SessionLoop,
    Watch,
)
from tests.simulation.zookeeper.connection import Action, Connection, EndSession
from tests.simulation.zookeeper.servers import ServerSession, SimulatedZooKeeper

_RETRY_MS = (100, 1_000)


class Carrier:
    """Carries one session: connects again and again, until the session is over."""

    def __init__(self, client: Client, session: CarriedSession, timeout_ms: int) -> None:
        self.client = client
        self.seen = 0
        """The latest zxid that the session has seen: servers with less are not used."""
        self.known: ServerSession | None = None
        self._session = session
        self._timeout_ms = timeout_ms
        self._connection: Connection | None = None
        self._late: list[Request] = []
        self._on_closed: Action | None = None
        self._is_over = False
        self._world = client.zookeeper.world
        self._world.after(client.zookeeper.delay_ms(), self._connect)

    # --- the session's calls ---------------------------------------------------------------------
    def send(
        self, request: Request, on_response: Callable[[Any], None], watch: Watch | None = None
    ) -> None:
        if self.is_up:
            self._connection.send(request, on_response, watch)
        elif self._world.chance(0.5):
            # The request was sent after the connection had broken and before the loop knew it:
            # the next connection sends it, as kazoo does.
            self._late.append(request)

    def close(self, done: Action) -> None:
        self._on_closed = done
        if self.is_up:
            self._connection.send(EndSession(), lambda _: self._be_closed(), None)
        else:
            self._be_closed()

    # --- the connection --------------------------------------------------------------------------
    @property
    def is_up(self) -> bool:
        return self._connection is not None and self._connection.is_open

    def lose(self) -> None:
        """The connection breaks; the client's end notices after a delay."""
        connection = self._connection
        if connection is None or not connection.is_open:
            return
        connection.break_off()

        def notice() -> None:
            self._connection = None
            self.client.post(self._session.disconnected)
            if self._on_closed is not None:
                self._be_closed()
            else:
                self._try_later()

        self._world.after(self.client.zookeeper.delay_ms(), notice)

    def ended_by_server(self, connection: Connection) -> None:
        if connection is self._connection and self._on_closed is None:
            self.lose()

    def _be_closed(self) -> None:
        if not self._is_over:
            self._is_over = True
            self.client.post(self._on_closed)

    def _try_later(self) -> None:
        self._world.after(self._world.between(*_RETRY_MS), self._connect)

    def _connect(self) -> None:
        client, zookeeper = self.client, self.client.zookeeper
        if client.is_gone or self._is_over or self._on_closed is not None:
            return
        server = zookeeper.server_for(self.seen)
        if server is None or client.is_paused or client.is_cut("to") or client.is_cut("from"):
            self._try_later()
            return
        if self.known is not None and self.known.is_over:
            self._is_over = True
            client.post(self._session.expired)
            return
        if self.known is None:
            self.known = zookeeper.create_session(self._timeout_ms)
        self._connection = connection = Connection(self, server)
        zookeeper.attach(self.known, connection)
        session_id, timeout_ms = self.known.session_id, self.known.timeout_ms
        connection.to_client(lambda: self._session.connected(session_id, timeout_ms))
        late, self._late = self._late, []
        for request in late:
            connection.send(request, lambda _answer: None, None)


class Client:
    """A process, as ZooKeeper sees it. Its loop is that of the sessions that it opens."""

    def __init__(self, zookeeper: SimulatedZooKeeper, name: str) -> None:
        self.zookeeper = zookeeper
        self.name = name
        self.is_gone = False
        self.is_paused = False
        self._cut: dict[str, None] = {}
        self._held: dict[str, list[Action]] = {"to": [], "from": []}
        self._carriers: list[Carrier] = []
        self._posts: deque[Action] = deque()
        self._loop: SessionLoop | None = None

    def opener(self, session_timeout_ms: int, connect: str = "zookeeper:2181") -> OpenSession:
        """The function with which the broker opens its sessions."""
        _hosts, chroot = split_connect(connect)

        def open_session(loop: SessionLoop, on_event: Callable[[SessionEvent], None]) -> Session:
            self._loop = loop
            session = CarriedSession(loop, on_event, chroot)
            session.carrier = Carrier(self, session, session_timeout_ms)
            self._carriers.append(session.carrier)
            return session

        return open_session

    def post(self, action: Action) -> None:
        """Run ``action`` in the process's loop, unless it is dead; later, if it is suspended."""
        if self.is_paused:
            self._posts.append(action)
        elif self._loop is not None and not self.is_gone:
            self._loop.post(action)

    # --- faults -----------------------------------------------------------------------------------
    def is_cut(self, direction: str) -> bool:
        """Whether nothing passes to the servers ("to"), or from them ("from")."""
        return direction in self._cut

    def cut(self, *directions: str) -> None:
        """Let nothing pass in these directions, by default in both.

        An end that receives nothing closes the connection after a while.
        """
        for direction in directions or ("to", "from"):
            self._cut[direction] = None
        self._fall_silent(not_heard=self.is_cut("to"))

    def mend(self) -> None:
        """Let all data pass again; connections that still exist deliver their delayed data."""
        self._cut.clear()
        for direction, held in self._held.items():
            self._held[direction] = []
            for action in held:
                action()
        self._be_heard()

    def pause(self) -> None:
        """Suspend the process."""
        self.is_paused = True
        self._fall_silent(not_heard=True)

    def resume(self) -> None:
        """Resume the process."""
        self.is_paused = False
        while self._posts:
            self.post(self._posts.popleft())
        self._be_heard()

    def reset(self) -> None:
        """Break all connections of the process."""
        for carrier in self._carriers:
            carrier.lose()

    def die(self) -> None:
        """End the process; its sessions expire after their timeout."""
        self.is_gone = True
        self.reset()

    def when_mended(self, direction: str, action: Action) -> None:
        """Run ``action`` once messages pass in this direction again."""
        self._held[direction].append(action)

    def _fall_silent(self, *, not_heard: bool) -> None:
        for carrier in self._carriers:
            known = carrier.known
            if not carrier.is_up or known is None:
                continue
            if not_heard:
                self.zookeeper.lost_contact(known)

            def give_up(carrier: Carrier = carrier) -> None:
                if self._cut:
                    carrier.lose()

            self.zookeeper.world.after(known.timeout_ms * 2 // 3, give_up)

    def _be_heard(self) -> None:
        if self.is_paused or self._cut:
            return
        for carrier in self._carriers:
            if carrier.is_up and carrier.known is not None:
                self.zookeeper.in_contact(carrier.known)
