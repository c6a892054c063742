"""The event loop in a background thread."""

import os
import socket
import threading
from concurrent.futures import Future

import pytest

from pyspark_klog.client.errors import ClientError
from pyspark_klog.client.transport.event_loop import READABLE, EventLoop
from pyspark_klog.client.transport.thread_loop import ThreadLoop


def has_all_parts(loop: ThreadLoop) -> EventLoop:
    """mypy checks here that the loop has all parts that an evented connection needs."""
    return loop


@pytest.fixture
def loop() -> "ThreadLoop":
    made = ThreadLoop("test")
    made.start()
    yield made
    assert made.stop(30)


def test_actions_run_in_one_thread_in_the_order_of_posting(loop: ThreadLoop) -> None:
    seen: list[tuple[int, bool]] = []
    done: Future[None] = Future()
    for number in range(100):
        loop.post(
            lambda number=number: seen.append((number, threading.current_thread().name == "test"))
        )
    loop.post(lambda: done.set_result(None))
    done.result(30)
    assert seen == [(number, True) for number in range(100)]


def test_timers_run_by_their_deadlines_unless_they_are_cancelled(loop: ThreadLoop) -> None:
    seen: list[str] = []
    done: Future[None] = Future()

    def start() -> None:
        now_ms = loop.now_ms()
        loop.call_at(now_ms + 40, lambda: done.set_result(None))
        loop.call_at(now_ms + 20, lambda: seen.append("second"))
        loop.call_at(now_ms + 10, lambda: seen.append("cancelled")).cancel()
        loop.call_at(now_ms + 10, lambda: seen.append("first"))

    loop.post(start)
    done.result(30)
    assert seen == ["first", "second"]


def test_the_phases_of_a_turn(loop: ThreadLoop) -> None:
    seen: list[str] = []
    done: Future[None] = Future()

    def start() -> None:
        loop.call_soon(lambda: seen.append("soon"))
        loop.call_soon(lambda: done.set_result(None))
        loop.call_at_send(lambda: seen.append("send"))
        seen.append("posted")

    loop.post(start)
    done.result(30)
    loop.stop(30)
    assert seen == ["posted", "soon", "send"]


def test_a_ready_descriptor_is_reported_until_it_is_unregistered(loop: ThreadLoop) -> None:
    reading, writing = socket.socketpair()
    received: list[bytes] = []
    done: Future[None] = Future()

    def on_ready(readiness: int) -> None:
        assert readiness == READABLE
        received.append(reading.recv(1))
        if len(received) == 3:
            loop.unregister(reading.fileno())
            done.set_result(None)

    with reading, writing:
        loop.post(lambda: loop.register(reading.fileno(), READABLE, on_ready))
        writing.sendall(b"abcd")
        done.result(30)
        loop.stop(30)
    assert received == [b"a", b"b", b"c"]


def test_stop_runs_the_posted_actions_first(loop: ThreadLoop) -> None:
    seen: list[int] = []
    for number in range(10):
        loop.post(lambda number=number: seen.append(number))
    assert loop.stop(30)
    assert seen == list(range(10))
    assert not loop.is_running


def test_a_bug_in_a_callback_ends_the_loop_and_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failed: Future[BaseException] = Future()
    loop = ThreadLoop("test", on_failure=failed.set_result)
    loop.start()
    loop.post(lambda: [][0])
    assert isinstance(failed.result(30), IndexError)
    assert loop.stop(30)
    assert "the client's thread has failed" in caplog.text


def test_the_loop_cannot_be_used_after_a_fork(loop: ThreadLoop) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            loop.post(lambda: None)
            os.write(writing, b"posted")
        except ClientError as error:
            os.write(writing, str(error).encode())
            loop.stop()  # does nothing, and does not wait
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert b"make a new client after the fork" in pipe.read()
    os.waitpid(child, 0)
