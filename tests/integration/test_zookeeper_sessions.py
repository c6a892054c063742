"""kazoo behind its seam, with a real ZooKeeper: the contract that the simulated one keeps, too."""

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net.poller import default_poller
from klog_broker.runtime.system.clock import SystemClock
from klog_broker.runtime.zookeeper.opening import ZooKeeperClientMissing, sessions_by_kazoo
from klog_broker.runtime.zookeeper.sessions import (
    ConnectionLost,
    OpenSession,
    Session,
    SessionEvent,
    SessionLoop,
)
from tests.support.eventually import eventually
from tests.support.zookeeper.contract import ZooKeeperContract
from tests.support.zookeeper.logged_session import Opened
from tests.support.zookeeper.server import ZooKeeper, expire

CONNECTED, DISCONNECTED, EXPIRED = SessionEvent
SESSION_MS = 8_000
DEADLINE_S = 60.0


class RealWorld:
    """A server and a loop."""

    def __init__(self, server: ZooKeeper) -> None:
        self.server = server
        self.loop = Loop(SystemClock(), default_poller())
        self._sessions: list[Session] = []

    def opener(self, chroot: str) -> OpenSession:
        open_session = sessions_by_kazoo(self.server.address + chroot, SESSION_MS)

        def noted(loop: SessionLoop, on_event: Callable[[SessionEvent], None]) -> Session:
            self._sessions.append(open_session(loop, on_event))
            return self._sessions[-1]

        return noted

    def close(self) -> None:
        """Close the sessions that the test has left open."""
        ended: list[bool] = []
        for session in self._sessions:
            session.close(lambda: ended.append(True))
        self.until(lambda: len(ended) == len(self._sessions), "the end of all sessions")
        self.loop.close()

    def until(self, is_so: Callable[[], Any], what: str) -> Any:
        def turn() -> Any:
            self.loop.run_turn(0)
            return is_so()

        return eventually(turn, DEADLINE_S, what)

    def expire(self, session_id: int) -> None:
        expire(self.server, session_id)

    def stop(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self.server.start()

    def pause(self) -> None:
        self.server.pause()

    def resume(self) -> None:
        self.server.resume()


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeper]:
    with ZooKeeper() as server:
        yield server


@pytest.fixture
def world(server: ZooKeeper) -> Iterator[RealWorld]:
    if not server.is_running:  # a test that failed has left it so
        server.start()
    world = RealWorld(server)
    yield world
    if server.is_running:
        server.resume()
    world.close()


class TestTheContract(ZooKeeperContract):
    """The contract, tested with kazoo and a server."""


def own_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("klog-zookeeper")]


def test_an_expired_session_makes_no_new_one_and_leaves_no_thread(world: RealWorld) -> None:
    other = Opened(world, "")
    # With a second host in the list, kazoo would begin a new session at once, without a pause.
    connect = f"{world.server.address},{world.server.address}"
    log: list[Any] = []
    session = sessions_by_kazoo(connect, SESSION_MS)(world.loop, log.append)
    world.until(lambda: log, "a session")
    first = other.call_zookeeper("create", "/counts-", sequential=True).stat.czxid
    world.expire(session.session_id)
    world.until(lambda: EXPIRED in log, "the end of the session")
    world.until(lambda: len(own_threads()) == 1, "the end of its thread")
    # Sessions begin and end by transactions: there was one end, and this write.
    assert other.call_zookeeper("create", "/counts-", sequential=True).stat.czxid == first + 2
    assert log[-1] is EXPIRED


def test_a_session_has_the_time_out_that_the_server_sets(world: RealWorld) -> None:
    log: list[Any] = []
    session = sessions_by_kazoo(world.server.address, 100)(world.loop, log.append)
    world.until(lambda: log, "a session")
    assert session.timeout_ms == 500  # two of its ticks
    session.close()


def test_no_bytes_pass_to_a_server_that_is_cut_off(world: RealWorld) -> None:
    is_cut = False

    def check_link() -> None:
        if is_cut:
            raise OSError("cut off")

    events: list[SessionEvent] = []
    open_session = sessions_by_kazoo(world.server.address, SESSION_MS, check_link=check_link)
    session = open_session(world.loop, events.append)
    world.until(lambda: events == [CONNECTED], "a session")
    session_id = session.session_id
    is_cut = True
    answers: list[Any] = []
    session.create("/cut", b"", answers.append)
    world.until(lambda: events == [CONNECTED, DISCONNECTED] and answers, "a lost connection")
    assert isinstance(answers.pop(), ConnectionLost)
    is_cut = False
    world.until(lambda: events[-1] is CONNECTED, "the session again")
    assert session.session_id == session_id
    session.exists("/cut", answers.append)
    world.until(lambda: answers == [None], "the answer that the znode was not created")
    session.close()


def test_a_session_that_is_closed_leaves_no_thread(world: RealWorld) -> None:
    log: list[Any] = []
    sessions = [sessions_by_kazoo(world.server.address, SESSION_MS) for _ in range(3)]
    before = set(own_threads())
    opened = [each(world.loop, log.append) for each in sessions]
    world.until(lambda: len(log) == 3, "sessions")
    assert len(set(own_threads()) - before) == 3
    ended: list[int] = []
    for session in opened:
        session.close(lambda: ended.append(1))
    world.until(lambda: len(ended) == 3 and set(own_threads()) <= before, "the end of the threads")


def test_a_session_that_nobody_answers_can_be_closed(world: RealWorld) -> None:
    log: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connect = f"127.0.0.1:{silent.getsockname()[1]}"
        session = sessions_by_kazoo(connect, 500)(world.loop, log.append)
        session.get("/", log.append)
        connection, _ = silent.accept()
        ended: list[int] = []
        session.close(lambda: ended.append(1))
        connection.close()
        world.until(lambda: ended, "the end of the session")
    assert log == []


def test_a_server_that_stands_still_is_noticed(world: RealWorld) -> None:
    log: list[Any] = []
    session = sessions_by_kazoo(world.server.address, 2_000)(world.loop, log.append)
    world.until(lambda: log, "a session")
    world.pause()
    session.get("/", log.append)
    world.until(lambda: DISCONNECTED in log, "the end of the connection")
    world.resume()
    # The session has expired or not, depending on the server's first action after it goes on.
    world.until(lambda: log[-1] in (EXPIRED, CONNECTED), "an event")
    assert isinstance(log[1], ConnectionLost)
    ended: list[int] = []
    session.close(lambda: ended.append(1))
    world.until(lambda: ended, "the end of the session")


def test_without_kazoo_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == "kazoo" or name.endswith("kazoo_carrier"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(ZooKeeperClientMissing, match=r"pip install 'pyspark-klog\[zookeeper\]'"):
        sessions_by_kazoo("127.0.0.1:2181", SESSION_MS)


@pytest.mark.parametrize("connect", ["", "host:port", ":2181", "host:2181//a", "host:2181/a/", ","])
def test_a_connect_string_that_is_none_is_refused(connect: str) -> None:
    with pytest.raises(ValueError, match="ZooKeeper"):
        sessions_by_kazoo(connect, SESSION_MS)
