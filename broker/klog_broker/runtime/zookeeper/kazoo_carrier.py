"""A `Carrier`, which sends the requests of one ZooKeeper session, through the library kazoo.

No other module imports kazoo.

Here, kazoo's client has one thread, for its connection. The thread posts responses and watches to
the loop in the order in which the server sent them. kazoo's own handlers have a thread for
responses and another one for watches, so that a watch can overtake a response.

An expired session must stay expired. kazoo would open a new session by itself, without the broker's
ephemeral znodes. kazoo asks its handler for each connection, so after the expiry the handler ends
kazoo's thread instead of connecting.
"""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers import utils
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.hosts import collect_hosts
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import Callback, KazooState, ZnodeStat
from kazoo.retry import KazooRetry

from klog_broker.runtime.system.rate_limit import RateLimit
from klog_broker.runtime.zookeeper.requests import (
    Exists,
    Get,
    ListChildren,
    Multi,
    Request,
    Sync,
    describe,
)
from klog_broker.runtime.zookeeper.session import CarriedSession
from klog_broker.runtime.zookeeper.sessions import (
    BadVersion,
    Check,
    Children,
    ConnectionLost,
    Create,
    Created,
    Delete,
    MultiFailed,
    NoAuth,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    RequestRefused,
    Result,
    SessionEvent,
    SessionLoop,
    Set,
    Stat,
    Watch,
    ZooKeeperError,
)

_log = logging.getLogger("klog.zookeeper")
_kazoos_log = logging.getLogger("klog.kazoo")
# kazoo logs each step at INFO, and a warning for each failed attempt to connect. Drop the INFO
# lines, and limit the rate of the warnings.
_kazoos_log.setLevel(logging.WARNING)

_FIRST_RETRY_S = 0.1
_LONGEST_RETRY_S = 1.0
_NEVER = -1

_ERRORS: dict[type[Exception], tuple[type[ZooKeeperError], str]] = {
    exceptions.NoNodeError: (NoNode, "the znode, or its parent, does not exist"),
    exceptions.NodeExistsError: (NodeExists, "the znode already exists"),
    exceptions.BadVersionError: (
        BadVersion,
        "the znode has another data version than expected: it was changed meanwhile",
    ),
    exceptions.NotEmptyError: (NotEmpty, "the znode has children"),
    exceptions.NoAuthError: (NoAuth, "the access control list of the znode does not allow it"),
    exceptions.NoChildrenForEphemeralsError: (
        RequestRefused,
        "the parent is an ephemeral znode, which cannot have children",
    ),
    exceptions.BadArgumentsError: (RequestRefused, "ZooKeeper refused the arguments as invalid"),
    exceptions.OperationTimeoutError: (ConnectionLost, "ZooKeeper gave it up: it may be done"),
    exceptions.RequestTimeoutError: (ConnectionLost, "ZooKeeper gave it up: it may be done"),
}


class _NowAndThen(logging.Filter):
    """A filter for kazoo's log: passes all errors, and limits the rate of all other lines."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = RateLimit()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR or self._limit.allows(time.monotonic_ns() // 10**6)


_kazoos_log.addFilter(_NowAndThen())


class _SessionOver(BaseException):
    """Ends kazoo's thread: a BaseException, because kazoo catches every Exception."""


class _Handler:
    """Implements kazoo's IHandler (threads, locks and sockets) with one thread and no queues."""

    name = "klog"
    timeout_exception = KazooTimeoutError
    sleep_func = staticmethod(time.sleep)
    running = False
    """False makes kazoo run the callback of a finished request at once, in kazoo's thread.
    KazooCarrier's callbacks post to the loop."""

    def __init__(
        self,
        loop: SessionLoop,
        on_thread_end: Callable[[Exception | None], None],
        check_link: Callable[[], None] | None,
    ) -> None:
        self._loop = loop
        self._on_thread_end = on_thread_end
        self._check_link = check_link
        self.is_over = False
        self.servers = 1
        """The number of ZooKeeper servers that kazoo tries one after another."""

    def start(self) -> None:
        """Do nothing: this handler has no thread except that of kazoo's connection, which `spawn`
        starts."""

    def stop(self) -> None:
        """Do nothing: kazoo itself ends the thread of its connection."""

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> threading.Thread:
        def run() -> None:
            failure: Exception | None = None
            try:
                func(*args, **kwargs)
            except _SessionOver:
                pass
            except Exception as error:
                failure = error
            self._on_thread_end(failure)

        thread = threading.Thread(target=run, name="klog-zookeeper", daemon=True)
        thread.start()
        return thread

    def dispatch_callback(self, callback: Callback) -> None:
        self._loop.post(lambda: callback.func(*callback.args))

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> Any:
        if self.is_over:
            raise _SessionOver
        if self._check_link is not None:
            self._check_link()
        # kazoo waits up to the whole session timeout for each server. Divide the time between the
        # servers, as ZooKeeper's Java client does, so that one silent server does not use up the
        # session timeout.
        timeout /= self.servers
        return utils.create_tcp_connection(socket, *args, timeout=timeout, **kwargs)

    def create_socket_pair(self) -> Any:
        return utils.create_socket_pair(socket)

    def select(self, *args: Any, **kwargs: Any) -> Any:
        ready = utils.selector_select(*args, **kwargs)
        # kazoo calls this method before it sends or receives, and handles an OSError from it as
        # the loss of the connection.
        if self._check_link is not None:
            self._check_link()
        return ready

    def async_result(self) -> Any:
        return utils.AsyncResult(self, threading.Condition, KazooTimeoutError)

    def event_object(self) -> threading.Event:
        return threading.Event()

    def lock_object(self) -> Any:
        return threading.Lock()

    def rlock_object(self) -> Any:
        return threading.RLock()


class KazooCarrier:
    """Sends the requests of one ZooKeeper session through kazoo, from the session's first
    connection to its end. Implements `Carrier`."""

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        loop: SessionLoop,
        session: CarriedSession,
        check_link: Callable[[], None] | None,
    ) -> None:
        """:raises ValueError: if ``hosts`` is not a list of host:port"""
        self._loop = loop
        self._session = session
        self._hosts = hosts
        self._handler = _Handler(loop, self._thread_ended, check_link)
        self._on_closed: Callable[[], None] | None = None
        self._has_thread_ended = False
        self._timeout_ms = session_timeout_ms
        """The session's time-out as the server has set it."""
        self._client = KazooClient(
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            handler=self._handler,
            connection_retry=KazooRetry(
                max_tries=_NEVER,
                delay=_FIRST_RETRY_S,
                max_delay=_LONGEST_RETRY_S,
                sleep_func=self._handler.sleep_func,
            ),
            logger=_kazoos_log,
        )
        self._handler.servers = len(self._client.hosts)
        self._client.add_listener(self._state_changed)
        _resolve_patiently(self._client)
        self._note_timeout()
        self._client.start_async()

    # --- methods that the loop's thread calls ----------------------------------------------------
    def send(
        self, request: Request, on_response: Callable[[Any], None], watch: Watch | None = None
    ) -> None:
        def on_result(result: Any) -> None:
            error = result.exception
            if isinstance(error, exceptions.ConnectionLoss | exceptions.SessionExpiredError):
                return  # kazoo also calls `_state_changed`, so the session fails all its requests
            answer = result.value if error is None else error
            self._loop.post(lambda: on_response(_answer(request, answer)))

        changed = None if watch is None else lambda _event: watch()
        self._begin(request, changed).rawlink(on_result)

    def close(self, done: Callable[[], None]) -> None:
        self._on_closed = done
        if self._has_thread_ended:
            self._loop.post(self._report_closed)
            return
        # `_stop` waits for kazoo's thread, which may be in the middle of connecting. So another
        # thread runs `_stop`, and the loop is not blocked.
        threading.Thread(target=self._stop, name="klog-zookeeper-close", daemon=True).start()

    def _report_closed(self) -> None:
        done, self._on_closed = self._on_closed, None
        if done is not None:
            done()

    def _begin(self, request: Request, watch: Callable[[Any], None] | None) -> Any:
        client = self._client
        match request:
            case Get(path):
                return client.get_async(path, watch)
            case Exists(path):
                return client.exists_async(path, watch)
            case ListChildren(path):
                return client.get_children_async(path, watch, include_data=True)
            case Create(path, data, ephemeral, sequential):
                return client.create_async(
                    path, data, ephemeral=ephemeral, sequence=sequential, include_data=True
                )
            case Set(path, data, version):
                return client.set_async(path, data, version)
            case Delete(path, version):
                return client.delete_async(path, version)
            case Sync(path):
                return client.sync_async(path)
            case Check(path, version):
                operations: tuple[Operation, ...] = (request,)
            case Multi(operations):
                pass
        transaction = client.transaction()
        for each in operations:
            match each:
                case Create(path, data, ephemeral, sequential):
                    transaction.create(path, data, ephemeral=ephemeral, sequence=sequential)
                case Set(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        return transaction.commit_async()

    # --- methods that kazoo's thread calls, or the thread that waits for the end of kazoo's thread
    def _state_changed(self, state: str) -> None:
        session = self._session
        if state == KazooState.CONNECTED:
            session_id, _password = self._client.client_id
            timeout_ms = self._timeout_ms
            _log.info(
                "session=0x%x connected to ZooKeeper hosts=%s session_timeout_ms=%d",
                session_id & (1 << 64) - 1,
                self._hosts,
                timeout_ms,
            )
            self._loop.post(lambda: session.connected(session_id, timeout_ms))
        elif state == KazooState.SUSPENDED:
            _log.warning("disconnected from ZooKeeper hosts=%s", self._hosts)
            self._loop.post(session.disconnected)
        else:
            self._handler.is_over = True
            self._loop.post(session.expired)

    def _note_timeout(self) -> None:
        """Make the client note the session time-out of each response to a connect request, which
        kazoo does not keep."""
        connection = self._client._connection
        invoke = connection._invoke

        def invoke_and_note(timeout_s: float, request: Any, xid: int | None = None) -> Any:
            answer = invoke(timeout_s, request, xid)
            if isinstance(request, Connect):
                self._timeout_ms = answer[0].time_out
            return answer

        connection._invoke = invoke_and_note

    def _thread_ended(self, failure: Exception | None) -> None:
        self._client.close()
        # Set the flag before looking at `_on_closed`, because `close` sets `_on_closed` before it
        # looks at the flag: so at least one of the two posts `_report_closed`.
        self._has_thread_ended = True
        if self._on_closed is not None:
            self._loop.post(self._report_closed)
        elif not self._handler.is_over:
            # If kazoo's thread fails before its first connection, kazoo does not call
            # `_state_changed`, so report the end of the session here.
            _log.error("kazoo's thread has failed, a new session will be opened", exc_info=failure)
            self._handler.sleep_func(_LONGEST_RETRY_S)
            self._handler.is_over = True
            self._loop.post(self._session.expired)

    def _stop(self) -> None:
        # kazoo's `stop` raises if kazoo's thread has just ended, or does not end in time.
        with contextlib.suppress(Exception):
            self._client.stop()


def _resolve_patiently(client: KazooClient) -> None:
    """Make the client retry after every failed look-up of the ZooKeeper servers' names.

    kazoo handles only socket.gaierror: any other error of a look-up would end kazoo's thread. After
    another error, this function gives kazoo an empty list of addresses, so that kazoo tries again
    later.
    """
    connection = client._connection
    resolve = connection._expand_client_hosts

    def resolve_or_nothing() -> Any:
        try:
            return resolve()
        except (OSError, UnicodeError) as error:
            _kazoos_log.warning("Cannot resolve the names of ZooKeeper's servers: %s", error)
            return []

    connection._expand_client_hosts = resolve_or_nothing


def check_hosts(hosts: str) -> None:
    """Check the servers of a connect string.

    :raises ValueError: if ``hosts`` is not a list of host:port or host, separated by commas
    """
    try:
        collect_hosts(hosts)
    except ValueError as error:
        raise ValueError(
            f"{hosts!r} is not a list of ZooKeeper servers ({error}); expected "
            "host:port,host:port or host:port,host:port/chroot"
        ) from None


def open_kazoo_session(
    hosts: str,
    chroot: str,
    session_timeout_ms: int,
    loop: SessionLoop,
    on_event: Callable[[SessionEvent], None],
    requests_in_flight: int,
    check_link: Callable[[], None] | None,
) -> CarriedSession:
    """Open a session whose requests kazoo sends. `hosts` are the ZooKeeper servers, without the
    chroot; `check_link` is that of `sessions_by_kazoo`."""
    session = CarriedSession(loop, on_event, chroot, requests_in_flight)
    session.carrier = KazooCarrier(hosts, session_timeout_ms, loop, session, check_link)
    return session


# --- conversion of kazoo's responses and errors to the classes of sessions.py --------------------


def _answer(request: Request, answer: Any) -> Any:
    if isinstance(answer, Exception):
        return _error(request, answer)
    match request:
        case Get():
            data, stat = answer
            return Node(data or b"", _stat(stat))
        case Exists():
            return None if answer is None else _stat(answer)
        case ListChildren():
            names, stat = answer
            return Children(tuple(sorted(names)), _stat(stat))
        case Create():
            path, stat = answer
            return Created(path, _stat(stat))
        case Set():
            return _stat(answer)
        case Multi(operations):
            return _results(operations, answer)
    return None


def _results(operations: tuple[Operation, ...], answers: list[Any]) -> Any:
    for index, (operation, answer) in enumerate(zip(operations, answers, strict=True)):
        # Skip the operations before the failed one: their result is RolledBackError.
        if isinstance(answer, Exception) and not isinstance(answer, exceptions.RolledBackError):
            return MultiFailed(index, _error(operation, answer))
    results: list[Result] = []
    for answer in answers:
        if isinstance(answer, ZnodeStat):
            results.append(_stat(answer))
        else:
            results.append(Created(answer, None) if isinstance(answer, str) else None)
    return tuple(results)


def _error(request: Request, error: Exception) -> ZooKeeperError:
    kind, why = _ERRORS.get(type(error), (ZooKeeperError, f"ZooKeeper answered {error!r}"))
    return kind(f"{describe(request)}: {why}")


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.czxid, stat.mzxid, stat.version, stat.ephemeralOwner, stat.numChildren)
