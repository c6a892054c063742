"""The HTTP listener: its responses, and the ends of slow clients and hostile bytes."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from klog_broker.dispatch.bug_reports import BugReports
from klog_broker.monitoring import http_listener, http_reader, scrapes
from klog_broker.monitoring import server as server_module
from klog_broker.monitoring.connection import ANSWER_MS, HEAD_MS, IDLE_MS, RECEIVE_BYTES
from klog_broker.monitoring.health import Health, State
from klog_broker.monitoring.http_listener import MAX_CONNECTIONS
from klog_broker.monitoring.http_reader import BadRequest, HttpReader, HttpRequest
from klog_broker.monitoring.scrapes import CACHED_MS
from klog_broker.monitoring.server import MetricsServer
from klog_broker.runtime.event_loop.loop import Loop
from tests.support.runtime.fake_network import FakeNetwork, FakeStream
from tests.support.runtime.manual_clock import ManualClock

GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"


class World:
    """A listener on a network in memory, that tells of a broker which needs ``steps`` turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: int = 1) -> None:
        self.clock = ManualClock(0)
        self.network = FakeNetwork()
        self.loop = Loop(self.clock, self.network.poller)
        self.bugs = BugReports()
        self.health = Health(State.READY, b"{}")
        self.rendered = 0
        self.fails = False
        self.body = [b"some 1\n", b"more 2\n"]
        services = SimpleNamespace(loop=self.loop, requests=SimpleNamespace(bugs=self.bugs))
        sources: Any = SimpleNamespace(services=services)

        def collect(_: object) -> Any:
            self.rendered += 1
            for _ in range(steps):
                yield scrapes.SLICE_ELEMENTS
            if self.fails:
                raise ZeroDivisionError
            return self.body

        def health(_: object) -> Any:
            for _ in range(steps):
                yield scrapes.SLICE_ELEMENTS
            if self.fails:
                raise ZeroDivisionError
            return self.health

        monkeypatch.setattr(scrapes, "collect", collect)
        monkeypatch.setattr(server_module, "health", health)
        self.server = MetricsServer(sources)
        self.server.listener.listen(self.network, "127.0.0.1", 9404)

    def turns(self, count: int = 8) -> None:
        for _ in range(count):
            self.loop.run_turn(0)

    def pass_time(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        self.turns()

    def connect(self) -> FakeStream:
        stream = self.network.arrive()
        self.turns(2)
        return stream

    def send_request(self, stream: FakeStream, data: bytes) -> bytes:
        before = len(stream.sent)
        stream.inbox += data
        self.turns()
        return bytes(stream.sent[before:])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def test_metrics_and_the_next_request_on_the_same_connection(world: World) -> None:
    stream = world.connect()
    answer = world.send_request(stream, GET % b"/metrics?x=y")
    assert answer == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        b"Content-Length: 14\r\nConnection: keep-alive\r\n\r\nsome 1\nmore 2\n"
    )
    assert world.send_request(stream, GET % b"/metrics") == answer
    head = world.send_request(stream, b"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
    assert head == answer[: -len(b"some 1\nmore 2\n")]


def test_requests_that_come_together_are_answered_in_order(world: World) -> None:
    stream = world.connect()
    answer = world.send_request(stream, GET % b"/metrics" + GET % b"/nothing" + GET % b"/health")
    found = re.findall(rb"HTTP/1\.1 (\d+)", answer)
    assert found == [b"200", b"404", b"200"]


def test_a_text_is_shared_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, steps=5)
    streams = [world.connect() for _ in range(3)]
    for stream in streams:
        stream.inbox += GET % b"/metrics"
    world.turns(3)
    assert not any(stream.sent for stream in streams)
    world.turns(8)
    assert all(b"200 OK" in stream.sent for stream in streams)
    assert world.rendered == 1
    world.pass_time(CACHED_MS - 1)
    world.send_request(streams[0], GET % b"/metrics")
    assert world.rendered == 1
    world.pass_time(1)
    world.send_request(streams[0], GET % b"/metrics")
    assert world.rendered == 2


def test_health_and_ready(world: World) -> None:
    stream = world.connect()
    for path in (b"/health", b"/ready"):
        answer = world.send_request(stream, GET % path)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        assert body_of(answer) == b"{}"
    world.health = Health(State.STOPPING, b"{}")
    answer = world.send_request(stream, GET % b"/ready")
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable") and body_of(answer) == b"{}"
    assert world.send_request(stream, GET % b"/health").startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    "data, status",
    [
        (b"POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n", b"405 Method Not Allowed"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics\r\n\r\n", b"400 Bad Request"),
        (b"GET http://a/metrics HTTP/1.1\r\nHost: a\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", b"413 "),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"413 "),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", b"505 HTTP Version Not Supported"),
        (b"\x16\x03\x01" + b"\x00" * 40 + b"\r\n\r\n", b"400 Bad Request"),
        (b"G" * 3 * RECEIVE_BYTES, b"431 Request Header Fields Too Large"),
    ],
)
def test_what_is_no_plain_request_is_refused_and_closed(
    world: World, data: bytes, status: bytes
) -> None:
    stream = world.connect()
    answer = world.send_request(stream, data + GET % b"/metrics")
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.count(b"HTTP/1.1") == 1 and b"Connection: close" in answer
    assert stream.is_closed
    assert world.server.listener.connection_count == 0
    assert b"200 OK" in world.send_request(world.connect(), GET % b"/metrics")


@pytest.mark.parametrize(
    "request_, keeps",
    [
        (b"GET /health HTTP/1.0\r\n\r\n", False),
        (b"GET /health HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", True),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: x, close\r\n\r\n", False),
        (b"\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n", True),
    ],
)
def test_when_a_connection_stays(world: World, request_: bytes, keeps: bool) -> None:
    stream = world.connect()
    assert b"200 OK" in world.send_request(stream, request_)
    assert stream.is_closed != keeps


def test_slow_clients_are_waited_for_within_bounds(world: World) -> None:
    idle, slow, stuck = (world.connect() for _ in range(3))
    slow.inbox += b"GET /met"
    stuck.room_bytes = 10
    stuck.inbox += GET % b"/metrics"
    world.turns()
    world.pass_time(HEAD_MS - 1)
    assert not slow.is_closed
    # A byte now and then is no request.
    world.send_request(slow, b"r")
    world.pass_time(1)
    assert slow.is_closed and not stuck.is_closed
    world.pass_time(ANSWER_MS - HEAD_MS)
    assert stuck.is_closed and not idle.is_closed
    world.pass_time(IDLE_MS - ANSWER_MS)
    assert idle.is_closed
    assert world.server.listener.connection_count == 0
    assert world.loop.next_wake_ms() is None


@pytest.mark.parametrize("pieces", [[b"\r\n"], [b"\r", b"\n"], [b"\r\n" * 9, b"\r"]])
def test_empty_lines_before_a_request_gain_no_time(world: World, pieces: list[bytes]) -> None:
    stream = world.connect()
    for number in range(10):
        world.send_request(stream, pieces[number % len(pieces)])
        world.pass_time(HEAD_MS // 10)
    assert stream.is_closed


def test_little_is_held_of_many_requests_at_once(world: World) -> None:
    stream = world.connect()
    request, count = GET % b"/health", 2_000
    stream.inbox += request * count
    most = 0
    for _ in range(2 * count):
        left = len(stream.inbox)
        world.turns(1)
        answered = stream.sent.count(b"HTTP/1.1 200")
        received = len(request) * count - left
        most = max(most, received - answered * len(request))
    assert stream.sent.count(b"HTTP/1.1 200") == count
    assert most <= 2 * RECEIVE_BYTES
    # And no more while the answers are not taken.
    stream.room_bytes = 0
    stream.inbox += request * count
    world.turns(50)
    assert len(stream.inbox) >= len(request) * count - RECEIVE_BYTES


def test_an_answer_goes_as_far_as_the_client_takes_it(world: World) -> None:
    world.body = [bytes([number]) * 1000 for number in range(200)]
    stream = world.connect()
    stream.room_bytes = 100
    stream.inbox += GET % b"/metrics"
    while len(stream.sent) < 200_000:
        world.turns(2)
        stream.room_bytes += 999
    world.turns(3)
    assert body_of(bytes(stream.sent)) == b"".join(world.body)


def test_connections_are_bounded(world: World) -> None:
    held = [world.connect() for _ in range(MAX_CONNECTIONS)]
    one_more = world.connect()
    world.turns(5)
    assert one_more.is_closed and b"503 Service Unavailable" in one_more.sent
    assert world.server.listener.connection_count == MAX_CONNECTIONS
    held[0].is_at_end = True
    world.turns()
    assert b"200 OK" in world.send_request(world.connect(), GET % b"/metrics")


@pytest.mark.parametrize("path", [b"/metrics", b"/health"])
def test_a_bug_is_logged_and_ends_nothing(world: World, path: bytes) -> None:
    stream = world.connect()
    world.fails = True
    assert world.send_request(stream, GET % path).startswith(b"HTTP/1.1 500 Internal Server Error")
    assert world.bugs.total == 1
    world.fails = False
    world.pass_time(CACHED_MS)
    assert b"200 OK" in world.send_request(stream, GET % path)


def test_a_client_that_leaves_while_its_text_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, steps=20)
    leaves, stays = world.connect(), world.connect()
    for stream in (leaves, stays):
        stream.inbox += GET % b"/metrics"
    world.turns(3)
    leaves.is_broken = True
    world.turns(3)
    assert leaves.is_closed
    world.turns(30)
    assert b"200 OK" in stays.sent


def test_close_ends_all(world: World) -> None:
    stream = world.connect()
    world.server.close()
    assert stream.is_closed
    assert world.loop.next_wake_ms() is None


def test_an_accept_that_fails_rests(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = world.network.listeners[0]
    accept: Callable[[], FakeStream] = listener.accept
    monkeypatch.setattr(listener, "accept", lambda: (_ for _ in ()).throw(OSError(24, "EMFILE")))
    stream = world.network.arrive()
    world.turns()
    assert world.network.poller.interest[listener.fileno()] == 0
    monkeypatch.setattr(listener, "accept", accept)
    world.pass_time(http_listener._ACCEPT_PAUSE_MS)
    assert b"200 OK" in world.send_request(stream, GET % b"/metrics")


def test_a_head_of_blanks_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header whose blanks could be matched in two ways took 0.7 s of the loop, at 8 KB; in ways
    that grow with the square of its length this one would take hours."""
    monkeypatch.setattr(http_reader, "MAX_HEAD_BYTES", 2_000_000)
    reader = HttpReader()
    reader.feed(b"GET / HTTP/1.1\r\nHost: a\r\nX:" + b" \t" * 500_000 + b"\x00\r\n\r\n")
    assert reader.next() == BadRequest(400, "a malformed header")


def test_the_reader_says_what_came() -> None:
    reader = HttpReader()
    reader.feed(b"HEAD /a?b=c HTTP/1.1\r\nhost:x\r\n\r\nPUT")
    assert reader.next() == HttpRequest(True, "/a", True)
    assert reader.next() is None and reader.has_begun
    reader.feed(b" / HTTP/1.1\r\nHost: a\r\n\r\nGET")
    assert reader.next() == BadRequest(405, "only GET and HEAD are allowed")
    assert reader.next() is None and not reader.has_begun
