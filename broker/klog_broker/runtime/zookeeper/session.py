"""A `Session` on top of a carrier, which sends the session's requests: through kazoo, or to a
simulated server.

The session adds those guarantees of `runtime/zookeeper/sessions.py` that a carrier does not give.
At most `REQUESTS_IN_FLIGHT` requests are at the server, and responses come in order. When the
connection breaks, every request gets a response or an error, and no watch is called any more. The
session creates the chroot if it is missing, and all paths lie below it. A request for which a
server would close the connection is not sent.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol

from klog_broker.runtime.zookeeper.requests import (
    Exists,
    Get,
    ListChildren,
    Multi,
    Request,
    Sync,
    create_with_parents,
    describe,
    refusal,
)
from klog_broker.runtime.zookeeper.sessions import (
    REQUESTS_IN_FLIGHT,
    Children,
    ConnectionLost,
    Create,
    Created,
    Delete,
    Done,
    Node,
    NodeExists,
    Operation,
    Result,
    SessionEvent,
    SessionExpired,
    SessionLoop,
    Set,
    Stat,
    Watch,
    ZooKeeperError,
)

_log = logging.getLogger("klog.zookeeper")


class Carrier(Protocol):
    """Owns the connection of one session to ZooKeeper: sends the session's requests, and calls back
    in the loop's thread."""

    def send(
        self, request: Request, on_response: Callable[[Any], None], watch: Watch | None = None
    ) -> None:
        """Send a request with absolute paths, after all earlier requests.

        ``on_response`` receives the value or a `ZooKeeperError`. If the connection breaks first,
        ``on_response`` is never called, and `CarriedSession.disconnected` or `expired` is called
        instead. ``watch`` is called at most once. The callbacks are called in the order in which
        the server sent the responses and the watch events. A carrier may also call ``watch`` when
        the connection breaks.
        """

    def close(self, done: Callable[[], None]) -> None:
        """End the session at the ZooKeeper server, if a server can be reached; then call
        ``done``."""


class _State(Enum):
    UNCONNECTED = 0
    PREPARING = 1
    CONNECTED = 2
    EXPIRED = 3
    CLOSED = 4


class _PendingRequest:
    """A request that waits to be sent, or for its response: its callback ``done`` was not called
    yet."""

    __slots__ = ("answer", "done", "has_answer", "request", "watch")

    def __init__(self, request: Request, done: Callable[[Any], None], watch: Watch | None) -> None:
        self.request = request
        self.done = done
        self.watch = watch
        self.has_answer = False
        self.answer: Any = None


class CarriedSession:
    """Implements `Session`. The carrier, which owns the connection to ZooKeeper, calls `connected`,
    `disconnected` and `expired`, in the loop's thread."""

    def __init__(
        self,
        loop: SessionLoop,
        on_event: Callable[[SessionEvent], None],
        chroot: str = "",
        requests_in_flight: int = REQUESTS_IN_FLIGHT,
    ) -> None:
        """``chroot`` is a path without a slash at its end; "" for none. The caller sets `carrier`
        (the object that sends the requests to ZooKeeper) at once. ``requests_in_flight`` can lower
        the limit `REQUESTS_IN_FLIGHT`, but not raise it.
        """
        self.session_id = 0
        self.timeout_ms = 0
        self.carrier: Carrier
        self._loop = loop
        self._on_event = on_event
        self._chroot = chroot
        self._window = min(requests_in_flight, REQUESTS_IN_FLIGHT)
        self._has_chroot = not chroot
        self._state = _State.UNCONNECTED
        self._connections = 0
        """Raised by 1 when a connection breaks, and when the session expires or is closed.
        Callbacks of requests that were sent before are ignored then."""
        self._waiting: deque[_PendingRequest] = deque()
        self._under_way: deque[_PendingRequest] = deque()
        self._at_server = 0

    # --- methods of `Session` --------------------------------------------------------------------
    def get(self, path: str, done: Done[Node], *, watch: Watch | None = None) -> None:
        self._enqueue(Get(self._absolute(path)), done, watch)

    def exists(self, path: str, done: Done[Stat | None], *, watch: Watch | None = None) -> None:
        self._enqueue(Exists(self._absolute(path)), done, watch)

    def children(self, path: str, done: Done[Children], *, watch: Watch | None = None) -> None:
        self._enqueue(ListChildren(self._absolute(path)), done, watch)

    def create(
        self,
        path: str,
        data: bytes,
        done: Done[Created],
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        makes_parents: bool = False,
    ) -> None:
        def on_created(answer: Any) -> None:
            done(self._relative(answer))

        request = Create(self._absolute(path), data, ephemeral, sequential)
        if makes_parents:
            create_with_parents(self._enqueue, request, on_created)
        else:
            self._enqueue(request, on_created)

    def set(self, path: str, data: bytes, version: int, done: Done[Stat]) -> None:
        self._enqueue(Set(self._absolute(path), data, version), done)

    def delete(self, path: str, version: int, done: Done[None]) -> None:
        self._enqueue(Delete(self._absolute(path), version), done)

    def multi(self, operations: Sequence[Operation], done: Done[tuple[Result, ...]]) -> None:
        def on_response(answer: Any) -> None:
            if isinstance(answer, ZooKeeperError):
                done(answer)
            else:
                done(tuple(map(self._relative, answer)))

        absolute = tuple(each._replace(path=self._absolute(each.path)) for each in operations)
        self._enqueue(Multi(absolute), on_response)

    def sync(self, done: Done[None]) -> None:
        self._enqueue(Sync("/"), done)

    def close(self, done: Callable[[], None] | None = None) -> None:
        before, self._state = self._state, _State.CLOSED
        self._connections += 1
        self._waiting.clear()
        self._under_way.clear()
        if before in (_State.EXPIRED, _State.CLOSED):
            if done is not None:
                self._loop.call_soon(done)
            return
        self.carrier.close(done or _nothing)

    # --- methods that the carrier, owner of ZooKeeper's connection, calls ------------------------
    def connected(self, session_id: int, timeout_ms: int) -> None:
        """Handle a new connection, on which a ZooKeeper server has accepted the session with a
        time-out of ``timeout_ms``."""
        if self._state is not _State.UNCONNECTED:
            return
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        self._state = _State.PREPARING
        connection = self._connections

        def enter_connected() -> None:
            if connection == self._connections:
                self._enter_connected()

        def caught_up(_answer: Any) -> None:
            if self._has_chroot:
                enter_connected()
            else:
                self._make_chroot(enter_connected)

        # The new ZooKeeper server may lag behind the previous one: without a sync, a write whose
        # response was lost could look as if it had not been processed.
        self.carrier.send(Sync("/"), caught_up)

    def disconnected(self) -> None:
        """Handle a broken connection. The carrier, which owns the connection to ZooKeeper, tries to
        connect again until the session ends."""
        if self._state is _State.CONNECTED:
            self._fail_all(_State.UNCONNECTED, ConnectionLost, SessionEvent.DISCONNECTED)
        elif self._state is _State.PREPARING:
            self._connections += 1
            self._state = _State.UNCONNECTED

    def expired(self) -> None:
        """Handle the expiry of the session: the session never connects again."""
        if self._state not in (_State.EXPIRED, _State.CLOSED):
            self._fail_all(_State.EXPIRED, SessionExpired, SessionEvent.EXPIRED)

    # --- the queue of waiting requests, sending, and responses -----------------------------------
    def _enqueue(
        self, request: Request, done: Callable[[Any], None], watch: Watch | None = None
    ) -> None:
        if self._state is _State.EXPIRED:
            error = SessionExpired(f"{describe(request)}: the session with ZooKeeper is over")
            self._loop.call_soon(lambda: done(error) if self._state is _State.EXPIRED else None)
        elif self._state is not _State.CLOSED:
            self._waiting.append(_PendingRequest(request, done, watch))
            self._send()

    def _send(self) -> None:
        while self._waiting and self._at_server < self._window and self._state is _State.CONNECTED:
            pending = self._waiting.popleft()
            self._under_way.append(pending)
            refused = refusal(pending.request)
            if refused is not None:
                pending.has_answer = True
                pending.answer = refused
                self._loop.call_soon(self._answer)
                continue
            self._at_server += 1
            self._send_one(pending)

    def _send_one(self, pending: _PendingRequest) -> None:
        connection = self._connections
        watch = pending.watch

        def on_response(answer: Any) -> None:
            if connection == self._connections and not pending.has_answer:
                pending.has_answer = True
                pending.answer = answer
                self._at_server -= 1
                self._answer()
                self._send()

        def changed() -> None:
            if connection == self._connections and watch is not None:
                watch()

        self.carrier.send(pending.request, on_response, None if watch is None else changed)

    def _answer(self) -> None:
        while self._under_way and self._under_way[0].has_answer:
            pending = self._under_way.popleft()
            pending.done(pending.answer)

    def _enter_connected(self) -> None:
        self._has_chroot = True
        self._state = _State.CONNECTED
        self._on_event(SessionEvent.CONNECTED)
        self._send()

    def _fail_all(self, state: _State, error: type[ZooKeeperError], event: SessionEvent) -> None:
        why = (
            "the connection to ZooKeeper was lost before the response came: the request may "
            "have been carried out"
            if error is ConnectionLost
            else "the session with ZooKeeper has ended: the request may have been carried out"
        )
        self._state = state
        self._connections += 1
        self._at_server = 0
        unanswered = (*self._under_way, *self._waiting)
        self._under_way.clear()
        self._waiting.clear()
        for pending in unanswered:
            if self._state is not state:
                return  # one of the callbacks has closed the session
            lost = error(f"{describe(pending.request)}: {why}")
            pending.done(pending.answer if pending.has_answer else lost)
        if self._state is state:
            self._on_event(event)

    def _make_chroot(self, then: Callable[[], None]) -> None:
        def made(answer: Any) -> None:
            if isinstance(answer, ZooKeeperError) and not isinstance(answer, NodeExists):
                # Enter CONNECTED without the chroot: requests for znodes below it fail with NoNode.
                _log.error("chroot=%s cannot be created: %s", self._chroot, answer)
            then()

        def looked(answer: Any) -> None:
            if answer is None:
                create_with_parents(self.carrier.send, Create(self._chroot, b""), made)
            else:
                then()

        self.carrier.send(Exists(self._chroot), looked)

    def _absolute(self, path: str) -> str:
        if path == "/":
            return self._chroot or path
        # A path that does not begin with a slash is invalid. Leave it unchanged, so that the error
        # from `refusal` (the check of each request) shows the caller's path.
        return self._chroot + path if path.startswith("/") else path

    def _relative(self, result: Any) -> Any:
        if isinstance(result, Created) and self._chroot:
            return result._replace(path=result.path.removeprefix(self._chroot))
        return result


def _nothing() -> None:
    pass
