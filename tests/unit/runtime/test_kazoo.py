"""kazoo when servers cannot be found or do not respond; no server runs."""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.handlers import utils

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net.poller import default_poller
from klog_broker.runtime.system.clock import SystemClock
from klog_broker.runtime.zookeeper import kazoo_carrier
from klog_broker.runtime.zookeeper.opening import sessions_by_kazoo
from klog_broker.runtime.zookeeper.sessions import Session, SessionEvent
from tests.support.eventually import eventually

SESSION_MS = 9_000


class World:
    """A loop, and the events of a session."""

    def __init__(self) -> None:
        self.loop = Loop(SystemClock(), default_poller())
        self.log: list[SessionEvent] = []
        self._session: Session | None = None

    def open(self, connect: str) -> None:
        self._session = sessions_by_kazoo(connect, SESSION_MS)(self.loop, self.log.append)

    def until(self, is_so: Callable[[], Any], what: str) -> None:
        def turn() -> Any:
            self.loop.run_turn(0)
            return is_so()

        eventually(turn, 60, what)

    def close_session(self) -> None:
        ended: list[bool] = []
        session, self._session = self._session, None
        if session is not None:
            session.close(lambda: ended.append(True))
            self.until(lambda: ended, "the end of the session")

    def close(self) -> None:
        self.close_session()
        self.loop.close()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def refused(calls: list[float]) -> Callable[..., Any]:
    def create_tcp_connection(_module: Any, *_args: Any, timeout: float, **_kwargs: Any) -> Any:
        calls.append(timeout)
        raise ConnectionRefusedError

    return create_tcp_connection


def test_servers_that_do_not_answer_share_the_time_of_a_session(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts_s: list[float] = []
    monkeypatch.setattr(utils, "create_tcp_connection", refused(timeouts_s))
    world.open("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
    world.until(lambda: len(timeouts_s) >= 3, "a round of three servers")
    assert set(timeouts_s) == {3.0}


@pytest.mark.parametrize("error", [OSError(16, "busy"), UnicodeError("label too long")])
def test_a_look_up_that_fails_as_kazoo_does_not_expect_is_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    errors = [error, error]
    resolve = socket.getaddrinfo

    def getaddrinfo(*args: Any, **kwargs: Any) -> Any:
        if errors:
            raise errors.pop()
        return resolve(*args, **kwargs)

    tried: list[float] = []
    monkeypatch.setattr(utils, "create_tcp_connection", refused(tried))
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    world.open("127.0.0.1:1")
    world.until(lambda: tried, "an attempt to connect")
    assert world.log == []


@pytest.fixture
def broken_kazoo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends the thread of kazoo by a bug, before its first connection."""

    def broken(*_args: Any, **_kwargs: Any) -> Any:
        raise ValueError("a bug")

    monkeypatch.setattr(socket, "getaddrinfo", broken)
    monkeypatch.setattr(kazoo_carrier, "_LONGEST_RETRY_S", 0.01)


@pytest.mark.usefixtures("broken_kazoo")
def test_a_thread_that_ends_by_a_bug_ends_the_session_so_that_another_begins(world: World) -> None:
    before = set(threading.enumerate())
    world.open("127.0.0.1:1")
    world.until(lambda: world.log, "the end of the session")
    assert world.log == [SessionEvent.EXPIRED]
    world.until(lambda: set(threading.enumerate()) <= before, "the end of its thread")


@pytest.mark.usefixtures("broken_kazoo")
def test_a_session_whose_thread_has_ended_can_be_closed_before_it_has_expired(world: World) -> None:
    before = set(threading.enumerate())
    world.open("127.0.0.1:1")
    eventually(lambda: set(threading.enumerate()) <= before, 60, "the end of its thread")
    world.close_session()
    assert world.log == []
