"""The servers: the list of commits, the trees that follow it, sessions and their expiry."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from klog_broker.runtime.zookeeper.requests import Exists, ListChildren, Request
from klog_broker.runtime.zookeeper.sessions import Watch
from tests.simulation.world import Event, World
from tests.simulation.zookeeper.tree import Change, Tree

if TYPE_CHECKING:
    from tests.simulation.zookeeper.clients import Client
    from tests.simulation.zookeeper.connection import Connection

_TICK_MS = 50


class Entry(NamedTuple):
    """A committed write, or the end of the session (None)."""

    session_id: int
    request: Request | None


class ServerSession:
    """A session, as the servers know it."""

    def __init__(self, session_id: int, timeout_ms: int) -> None:
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        self.is_over = False
        self.connection: Connection | None = None
        self.end: Event | None = None


class Server:
    """A copy of the tree, and the watches of the sessions at this server."""

    def __init__(self, zookeeper: SimulatedZooKeeper) -> None:
        self._zookeeper = zookeeper
        self.tree = Tree()
        self.applied = 0
        """How many entries the server has applied."""
        self._waits: dict[int, list[Callable[[Any], None]]] = {}
        self._watches: dict[Change, list[tuple[Connection, Watch]]] = {}
        self._last_due_ms = 0

    def follow(self) -> None:
        """Apply the new entry after a delay, and after the entries before it."""
        world = self._zookeeper.world
        self._last_due_ms = max(self._last_due_ms, world.now_ms + self._zookeeper.lag_ms())
        world.after(self._last_due_ms - world.now_ms, self._apply_next)

    def when_applied(self, entries: int, then: Callable[[Any], None]) -> None:
        """Call ``then`` with the response of entry ``entries``; None if that is applied."""
        if self.applied >= entries:
            then(None)
        else:
            self._waits.setdefault(entries, []).append(then)

    def read(self, connection: Connection, request: Request, watch: Watch | None) -> Any:
        """Answer a Get, Exists or ListChildren from the entries that are applied here."""
        answer = self.tree.read(request)
        if watch is not None and (isinstance(request, Exists) or not isinstance(answer, Exception)):
            change = Change(request.path, isinstance(request, ListChildren))
            self._watches.setdefault(change, []).append((connection, watch))
        return answer

    def forget(self, connection: Connection) -> None:
        """Drop the watches of a connection."""
        for change in list(self._watches):
            left = [each for each in self._watches[change] if each[0] is not connection]
            if left:
                self._watches[change] = left
            else:
                del self._watches[change]

    def _apply_next(self) -> None:
        entry = self._zookeeper.entries[self.applied]
        self.applied += 1
        zxid = self.applied
        answer: Any = None
        if entry.request is None:
            changes = self.tree.end_session(entry.session_id, zxid)
        else:
            answer, changes = self.tree.write(entry.request, zxid, entry.session_id)
        for change in changes:
            for connection, watch in self._watches.pop(change, ()):
                connection.to_client(watch)
        for then in self._waits.pop(zxid, ()):
            then(answer)


class SimulatedZooKeeper:
    """All servers together."""

    def __init__(self, world: World, *, servers: int = 3) -> None:
        self.world = world
        self.entries: list[Entry] = []
        """All writes and ends of sessions; the index plus one is the zxid."""
        self.is_down = False
        self.min_session_timeout_ms = 0
        self._servers = [Server(self) for _ in range(servers)]
        self._sessions: dict[int, ServerSession] = {}
        self._clients: list[Client] = []

    def client(self, name: str) -> Client:
        """A process that can open sessions."""
        from tests.simulation.zookeeper.clients import Client

        client = Client(self, name)
        self._clients.append(client)
        return client

    # --- faults -----------------------------------------------------------------------------------
    def stop(self) -> None:
        """Stop all servers; committed entries stay."""
        self.is_down = True
        for session in self._sessions.values():
            self.in_contact(session)
        for client in self._clients:
            client.reset()

    def start(self) -> None:
        """Start the servers again. Each session gets its full timeout again."""
        self.is_down = False
        for session in self._sessions.values():
            self.lost_contact(session)

    def expire(self, session_id: int) -> None:
        """End the session now."""
        self.end_session(self._sessions[session_id])

    def paths(self) -> list[str]:
        """The paths of all nodes in the tree of the server that has applied most entries."""
        return sorted(max(self._servers, key=lambda each: each.applied).tree.paths())

    # --- for clients -----------------------------------------------------------------------------
    def delay_ms(self) -> int:
        """How long a message is under way."""
        return self.world.between(0, 60 if self.world.chance(0.05) else 3)

    def lag_ms(self) -> int:
        """How long after its commit a server applies a write."""
        return self.world.between(0, 400 if self.world.chance(0.05) else 4)

    def server_for(self, seen: int) -> Server | None:
        """A random server that has applied at least ``seen`` entries; None: there is none."""
        if self.is_down:
            return None
        able = [each for each in self._servers if each.applied >= seen]
        return self.world.random.choice(able) if able else None

    def create_session(self, timeout_ms: int) -> ServerSession:
        """Begin a new session."""
        timeout_ms = max(timeout_ms, self.min_session_timeout_ms)
        session = ServerSession((1 << 56) + len(self._sessions) + 1, timeout_ms)
        self._sessions[session.session_id] = session
        return session

    def attach(self, session: ServerSession, connection: Connection) -> None:
        """Move the session to this connection."""
        session.connection = connection
        connection.session = session
        self.in_contact(session)

    def in_contact(self, session: ServerSession) -> None:
        """The session's pings arrive: stop its timeout."""
        if session.end is not None:
            session.end.cancel()
            session.end = None

    def lost_contact(self, session: ServerSession) -> None:
        """The session's pings have stopped: it expires one timeout after the last ping."""
        if session.is_over or session.end is not None or self.is_down:
            return
        left_ms = self.world.between(session.timeout_ms * 2 // 3, session.timeout_ms + _TICK_MS)
        session.end = self.world.after(left_ms, lambda: self.end_session(session))

    def end_session(self, session: ServerSession) -> None:
        """End a session, for its client or after its timeout."""
        if session.is_over:
            return
        session.is_over = True
        self.in_contact(session)
        self.commit(Entry(session.session_id, None))
        if session.connection is not None:
            session.connection.ended_by_server()

    def commit(self, entry: Entry) -> None:
        """Commit an entry: all servers will apply it."""
        self.entries.append(entry)
        for server in self._servers:
            server.follow()
