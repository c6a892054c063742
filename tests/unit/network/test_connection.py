"""Connections over streams in memory: framing, order of replies, bounds, fairness, the end."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from klog_broker.network import bounds
from klog_broker.network.buffers import FrameBufferPool
from klog_broker.network.connection import Connection
from klog_broker.network.responses import QueuedResponse
from klog_broker.network.server import NetworkLimits, Server
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net.poller import READABLE, WRITABLE
from tests.support.cluster.helpers import Helpers
from tests.support.runtime.fake_network import FakeNetwork, FakeStream
from tests.support.runtime.manual_clock import ManualClock

PRODUCE = 0
FETCH = 1
OTHER = 3


def frame(api_key: int, body: bytes = b"", size: int | None = None) -> bytes:
    content = struct.pack(">hhi", api_key, 0, 7) + body
    return struct.pack(">i", len(content) if size is None else size) + content


class Broker:
    """A server whose handler notes the requests; answers at once, or when the test says so."""

    def __init__(self, **limits: object) -> None:
        self.clock = ManualClock(0)
        self.network = FakeNetwork()
        self.loop = Loop(self.clock, self.network.poller)
        self.helpers = Helpers.held(self.loop)
        self.requests: list[bytes] = []
        self.slots: list[QueuedResponse] = []
        self.answers: Callable[[bytes, QueuedResponse], None] | None = echo
        self.server = Server(
            self.loop,
            self.helpers,
            self.network,
            NetworkLimits(**limits),
            self._handle,
            frozenset([PRODUCE]),
        )
        self.server.listen("PLAINTEXT", "127.0.0.1", 0)

    def _handle(self, request: memoryview, slot: QueuedResponse, connection: Connection) -> None:
        self.requests.append(bytes(request))
        self.slots.append(slot)
        if self.answers is not None:
            self.answers(bytes(request), slot)

    def connect(self, address: str = "10.0.0.1") -> FakeStream:
        stream = self.network.arrive(address)
        self.turns()
        return stream

    def turns(self, count: int = 10) -> None:
        for _ in range(count):
            self.loop.run_turn(0)

    @property
    def bodies(self) -> list[bytes]:
        return [request[8:] for request in self.requests]

    def interest(self, stream: FakeStream) -> int:
        return self.network.poller.interest[stream.fileno()]


def echo(request: bytes, slot: QueuedResponse) -> None:
    slot.complete([b"<", request[8:], b">"])


@pytest.fixture
def broker() -> Broker:
    return Broker()


# -- framing ----------------------------------------------------------------------------------


def test_frames_arrive_whole_however_they_are_cut(broker: Broker) -> None:
    stream = broker.connect()
    data = frame(OTHER, b"first") + frame(PRODUCE, b"second") + frame(FETCH, b"third")
    for position in range(len(data)):
        stream.inbox += data[position : position + 1]
        broker.turns(1)
    assert broker.bodies == [b"first", b"second", b"third"]
    assert stream.sent == b"<first><second><third>"


@pytest.mark.parametrize("cut", [1, 3, 4, 100, 70_000, 131_072, 131_073, 500_000])
def test_a_large_frame_arrives_whole_between_small_ones(broker: Broker, cut: int) -> None:
    stream = broker.connect()
    body = bytes(range(256)) * 4000
    data = frame(OTHER, b"before") + frame(PRODUCE, body) + frame(OTHER, b"after")
    stream.inbox += data[:cut]
    broker.turns()
    stream.inbox += data[cut:]
    broker.turns(30)
    assert broker.bodies == [b"before", body, b"after"]
    assert broker.server.memory.buffers.lent_bytes == 0


def test_an_announced_size_takes_no_memory_before_its_bytes_have_come(broker: Broker) -> None:
    stream = broker.connect()
    stream.inbox += frame(PRODUCE, b"x", size=100_000_000)
    broker.turns()
    assert 0 < broker.server.memory.buffers.lent_bytes <= 4096
    stream.is_at_end = True
    broker.turns()
    assert stream.is_closed
    assert broker.server.memory.buffers.lent_bytes == 0


def test_a_large_frame_takes_no_more_than_twice_what_has_come(broker: Broker) -> None:
    stream = broker.connect()
    data = frame(PRODUCE, bytes(3_000_000))
    for position in range(0, len(data), 50_000):
        stream.inbox += data[position : position + 50_000]
        broker.turns(1)
        if position >= bounds.RECEIVE_BYTES:
            assert broker.server.memory.buffers.lent_bytes <= 2 * (position + 50_000)
    broker.turns()
    assert broker.bodies == [data[12:]]


class CountingPool(FrameBufferPool):
    """How much is copied when a frame moves on from one buffer to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.copied_bytes = 0

    def give_back(self, buffer: bytearray) -> None:
        self.copied_bytes += len(buffer)
        super().give_back(buffer)


@pytest.mark.parametrize("begun", [5, 70_000, 131_072])
def test_a_frame_that_comes_quickly_is_copied_once_and_received_in_few_turns(
    broker: Broker, begun: int
) -> None:
    pool = broker.server.memory.buffers = CountingPool()
    stream = broker.connect()
    body = bytes(range(256)) * 16_000
    data = frame(PRODUCE, body)
    stream.inbox += data[:begun]
    broker.turns()
    stream.inbox += data[begun:]
    turns = 0
    while not broker.bodies:
        broker.turns(1)
        turns += 1
    assert broker.bodies == [body]
    # The last buffer of 4 MiB, and all before it together less than once as much.
    assert pool.copied_bytes <= 2 * (1 << 22)
    assert turns <= len(data) // bounds.LARGE_RECEIVE_BYTES + 2


@pytest.mark.parametrize("size", [-1, 0, 7, 1001, 2**31 - 1, -(2**31)])
def test_a_size_that_cannot_be_closes_only_that_connection(size: int) -> None:
    broker = Broker(max_request_bytes=1000)
    bad, good = broker.connect(), broker.connect()
    bad.inbox += frame(OTHER, b"fine") + frame(OTHER, b"bad", size=size)
    good.inbox += frame(OTHER, b"good")
    broker.turns()
    assert bad.is_closed
    assert sorted(broker.bodies) == [b"fine", b"good"]
    assert good.sent == b"<good>"
    assert broker.server.connection_count == 1
    assert broker.server.counters["connections-closed-for-bad-input"] == 1


# -- order ------------------------------------------------------------------------------------


def test_replies_leave_in_the_order_of_requests(broker: Broker) -> None:
    broker.answers = None
    stream = broker.connect()
    stream.inbox += b"".join(frame(PRODUCE, name) for name in (b"a", b"b", b"c"))
    broker.turns()
    assert broker.bodies == [b"a", b"b", b"c"]
    broker.slots[2].complete([b"C"])
    broker.slots[1].skip()
    broker.turns()
    assert stream.sent == b""
    broker.slots[0].complete([b"A"])
    broker.turns()
    assert stream.sent == b"AC"


def test_produce_follows_waiting_produce_and_nothing_else_does(broker: Broker) -> None:
    broker.answers = None
    stream = broker.connect()
    stream.inbox += frame(PRODUCE, b"p1") + frame(PRODUCE, b"p2") + frame(OTHER, b"o")
    stream.inbox += frame(PRODUCE, b"p3")
    broker.turns()
    assert broker.bodies == [b"p1", b"p2"]
    broker.slots[1].complete([b"2"])
    broker.turns()
    assert broker.bodies == [b"p1", b"p2"]
    broker.slots[0].complete([b"1"])
    broker.turns()
    assert broker.bodies == [b"p1", b"p2", b"o"]
    broker.slots[2].complete([b"o"])
    broker.turns()
    assert broker.bodies[3:] == [b"p3"]
    assert stream.sent == b"12o"


def test_a_parked_fetch_stops_the_parsing_of_its_connection_only(broker: Broker) -> None:
    broker.answers = None
    parked, other = broker.connect(), broker.connect()
    parked.inbox += frame(FETCH, b"f1") + frame(FETCH, b"f2")
    broker.turns()
    other.inbox += frame(OTHER, b"o")
    broker.turns()
    assert broker.bodies == [b"f1", b"o"]
    broker.slots[0].complete([b"1"])
    broker.turns()
    assert broker.bodies == [b"f1", b"o", b"f2"]


def test_an_answer_twice_is_a_bug(broker: Broker) -> None:
    stream = broker.connect()
    stream.inbox += frame(OTHER)
    broker.turns()
    with pytest.raises(RuntimeError, match="answered twice"):
        broker.slots[0].skip()


def test_one_send_for_all_replies_of_a_turn(broker: Broker) -> None:
    stream = broker.connect()
    stream.inbox += frame(OTHER, b"x") * 50
    broker.turns()
    assert stream.sent == b"<x>" * 50
    assert stream.sends == 1


# -- bounds and fairness ----------------------------------------------------------------------


def test_what_a_turn_has_received_stays_until_the_turn_is_over(broker: Broker) -> None:
    def answer_later(request: memoryview, slot: QueuedResponse, _: Connection) -> None:
        broker.loop.call_at_append(lambda: slot.complete([request[8:].tobytes()]))

    broker.server.handle_frame = answer_later
    streams = [broker.connect() for _ in range(3)]
    for number, stream in enumerate(streams):
        stream.inbox += frame(OTHER, b"body %d" % number)
    broker.turns(1)
    assert [stream.sent for stream in streams] == [b"body 0", b"body 1", b"body 2"]
    assert broker.server.memory.arena.used_bytes == 0


@pytest.mark.parametrize("room_bytes", [0, 1, 6])
def test_what_a_socket_does_not_take_of_an_answer_is_sent_when_it_does(
    broker: Broker, room_bytes: int
) -> None:
    stream = broker.connect()
    stream.room_bytes = room_bytes
    for body in (b"aaaa", b"bbbb"):
        stream.inbox += frame(OTHER, body)
        broker.turns(2)
    assert stream.sent == b"<aaaa><bbbb>"[:room_bytes]
    assert broker.interest(stream) == READABLE | WRITABLE
    stream.room_bytes = 1 << 20
    broker.turns(2)
    assert stream.sent == b"<aaaa><bbbb>"
    assert broker.interest(stream) == READABLE


def test_an_answer_in_more_parts_than_one_send_takes_arrives_whole(broker: Broker) -> None:
    stream = broker.connect()
    parts = [b"%04d" % number for number in range(2_000)]
    broker.answers = lambda _, slot: slot.complete(parts)
    stream.inbox += frame(OTHER)
    broker.turns()
    assert stream.sent == b"".join(parts)


def test_an_answer_that_comes_later_leaves_its_connection_ready_for_the_next(
    broker: Broker,
) -> None:
    stream = broker.connect()
    for body in (b"1", b"2", b"3"):
        broker.answers = None
        stream.inbox += frame(FETCH, body)
        broker.turns()
        broker.slots[-1].complete([body])
        broker.turns()
        broker.answers = echo
        stream.inbox += frame(OTHER, body)[:7]
        broker.turns()
        stream.inbox += frame(OTHER, body)[7:]
        broker.turns()
    assert stream.sent == b"1<1>2<2>3<3>"
    assert broker.server.memory.arena.used_bytes == 0


def test_reading_stops_when_a_parked_connection_has_sent_its_share(broker: Broker) -> None:
    broker.answers = None
    stream = broker.connect()
    stream.inbox += frame(FETCH, b"parked")
    broker.turns()
    stream.inbox += frame(OTHER, b"y" * 1000) * 1000
    broker.turns(50)
    held = 1000 * 1012 - len(stream.inbox)
    assert bounds.RECEIVE_BYTES <= held <= bounds.RECEIVE_BYTES + 1012
    assert not broker.interest(stream) & READABLE
    broker.answers = echo
    broker.slots[0].complete([b"done"])
    broker.turns(200)
    assert len(broker.requests) == 1001
    assert stream.inbox == b""


def test_pending_replies_are_bounded(broker: Broker) -> None:
    broker.answers = None
    stream = broker.connect()
    stream.inbox += frame(PRODUCE, b"p") * (bounds.PENDING_RESPONSES + 100)
    broker.turns(50)
    assert len(broker.requests) == bounds.PENDING_RESPONSES
    for slot in list(broker.slots):
        slot.complete([b"r"])
    broker.turns(50)
    assert len(broker.requests) == bounds.PENDING_RESPONSES + 100
    assert stream.sent == b"r" * bounds.PENDING_RESPONSES


def test_unsent_bytes_are_bounded(broker: Broker) -> None:
    big = bytes(1 << 20)
    broker.answers = lambda _, slot: slot.complete([big])
    stream = broker.connect()
    stream.room_bytes = 0
    stream.inbox += frame(OTHER, b"o") * 100
    broker.turns(50)
    assert len(broker.requests) <= bounds.PENDING_RESPONSE_BYTES // len(big) + 1
    assert broker.interest(stream) & WRITABLE
    stream.room_bytes = 1 << 40
    broker.turns(400)
    assert len(broker.requests) == 100
    assert len(stream.sent) == 100 * len(big)


def test_a_turn_takes_a_bounded_number_of_requests_from_each_connection(broker: Broker) -> None:
    greedy, modest = broker.connect(), broker.connect()
    greedy.inbox += frame(OTHER, b"g") * 2000
    modest.inbox += frame(OTHER, b"m")
    broker.turns(1)
    assert broker.bodies.count(b"g") == bounds.REQUESTS_PER_TURN
    assert broker.bodies.count(b"m") == 1
    broker.turns(20)
    assert broker.bodies.count(b"g") == 2000
    assert greedy.sent == b"<g>" * 2000


def test_the_arena_is_shared_by_more_connections_than_fit_in_it(broker: Broker) -> None:
    streams = [broker.connect() for _ in range(60)]
    for number, stream in enumerate(streams):
        stream.inbox += frame(PRODUCE, bytes([number]) * 100_000)
    broker.turns(20)
    assert sorted(broker.bodies) == [bytes([number]) * 100_000 for number in range(60)]


def test_large_frames_wait_for_queued_max_request_bytes() -> None:
    broker = Broker(queued_max_request_bytes=1)
    first, second = broker.connect(), broker.connect()
    data = frame(PRODUCE, b"z" * 300_000)
    first.inbox += data[:-1]
    broker.turns()
    second.inbox += data
    broker.turns()
    assert broker.requests == []
    assert not broker.interest(second) & READABLE
    first.inbox += data[-1:]
    broker.turns()
    assert len(broker.requests) == 2
    assert first.sent == second.sent == b"<" + b"z" * 300_000 + b">"


# -- limits of connections --------------------------------------------------------------------


def test_beyond_max_connections_new_ones_wait_for_another_to_close() -> None:
    broker = Broker(max_connections=2)
    first, _ = broker.connect(), broker.connect()
    third = broker.connect()
    third.inbox += frame(OTHER, b"third")
    broker.turns()
    assert broker.bodies == []
    assert not third.is_closed
    first.is_at_end = True
    broker.turns()
    assert broker.bodies == [b"third"]


def test_waiting_connections_are_accepted_once_more_are_allowed() -> None:
    broker = Broker(max_connections=1)
    broker.connect()
    second = broker.connect()
    second.inbox += frame(OTHER, b"second")
    broker.turns()
    assert broker.bodies == []
    broker.server.set_limits(NetworkLimits(max_connections=2, max_connections_per_ip=2))
    broker.turns()
    assert broker.bodies == [b"second"]
    # Fewer are allowed: those that are open stay.
    broker.server.set_limits(NetworkLimits(max_connections=4, max_connections_per_ip=1))
    broker.turns()
    assert [broker.connect().is_closed, broker.server.connection_count] == [True, 2]


def test_beyond_max_connections_per_ip_new_ones_are_closed() -> None:
    broker = Broker(
        max_connections_per_ip=2, max_connections_per_ip_overrides={"10.0.0.5": 1, "10.0.0.6": 0}
    )
    assert [broker.connect().is_closed for _ in range(3)] == [False, False, True]
    assert [broker.connect("10.0.0.5").is_closed for _ in range(2)] == [False, True]
    assert broker.connect("10.0.0.6").is_closed
    assert broker.server.connection_count == 3


def test_want_of_descriptors_makes_the_listener_rest(broker: Broker) -> None:
    listener = broker.network.listeners[0]
    listener.waiting.append(OSError(24, "Too many open files"))
    stream = broker.network.arrive()
    broker.turns()
    assert listener.waiting == [stream]
    broker.clock.advance(bounds.ACCEPT_PAUSE_MS)
    broker.turns()
    assert listener.waiting == []


def test_a_client_that_disconnects_before_the_accept_is_passed_over(broker: Broker) -> None:
    listener = broker.network.listeners[0]
    listener.waiting.append(ConnectionAbortedError(103, "aborted"))
    stream = broker.connect()
    stream.inbox += frame(OTHER, b"x")
    broker.turns()
    assert stream.sent == b"<x>"


def test_idle_connections_are_closed_the_used_ones_are_not() -> None:
    broker = Broker(max_idle_ms=1000)
    idle, used, parked = broker.connect(), broker.connect(), broker.connect()
    broker.answers = None
    parked.inbox += frame(FETCH, b"f")
    broker.turns()
    broker.answers = echo
    for _ in range(3):
        broker.clock.advance(500)
        used.inbox += frame(OTHER, b"u")
        broker.turns()
    assert [idle.is_closed, used.is_closed, parked.is_closed] == [True, False, False]
    broker.slots[0].complete([b"done"])
    broker.turns()
    for _ in range(3):
        broker.clock.advance(700)
        broker.turns()
    assert used.is_closed
    assert parked.is_closed
    assert parked.sent == b"done"


# -- the end of a connection ------------------------------------------------------------------


def test_what_was_sent_before_the_end_is_served(broker: Broker) -> None:
    stream = broker.connect()
    broker.answers = lambda _, slot: slot.skip()
    stream.inbox += frame(PRODUCE, b"p") * 1000
    stream.is_at_end = True
    broker.turns(50)
    assert len(broker.requests) == 1000
    assert stream.is_closed


def test_a_half_closed_client_gets_its_answers(broker: Broker) -> None:
    stream = broker.connect()
    stream.room_bytes = 2
    stream.inbox += frame(OTHER, b"hello") * 3
    stream.is_at_end = True
    broker.turns()
    assert not stream.is_closed
    stream.room_bytes = 1000
    broker.turns()
    assert stream.sent == b"<hello>" * 3
    assert stream.is_closed


def test_a_client_that_leaves_while_parked_is_let_go(broker: Broker) -> None:
    broker.answers = None
    stream = broker.connect()
    stream.inbox += frame(FETCH, b"f")
    broker.turns()
    stream.is_at_end = True
    broker.turns()
    assert stream.is_closed
    assert not broker.slots[0].is_open
    broker.slots[0].complete([b"nobody listens"])
    broker.turns()
    assert broker.server.connection_count == 0


def test_a_reset_is_noticed_while_reading_is_stopped(broker: Broker) -> None:
    broker.answers = None
    stream = broker.connect()
    stream.inbox += frame(FETCH, b"f") + frame(OTHER, b"o" * 1000) * 300
    broker.turns()
    assert not broker.interest(stream) & READABLE
    stream.is_broken = True
    broker.turns()
    assert stream.is_closed


def test_close_lets_earlier_answers_leave_first(broker: Broker) -> None:
    broker.answers = None
    stream = broker.connect()
    stream.room_bytes = 1
    stream.inbox += frame(PRODUCE, b"1") + frame(PRODUCE, b"2") + frame(PRODUCE, b"3")
    broker.turns()
    broker.slots[1].close("acks=0 failed")
    broker.turns()
    assert not stream.is_closed
    broker.slots[0].complete([b"one"])
    broker.turns()
    assert not stream.is_closed
    stream.room_bytes = 100
    broker.turns()
    assert stream.sent == b"one"
    assert stream.is_closed


def test_ending_connections_passes_over_those_that_close_already(broker: Broker) -> None:
    broker.answers = None
    streams = [broker.connect() for _ in range(3)]
    for stream in streams:
        stream.room_bytes = 0
        stream.inbox += frame(PRODUCE, b"1") + frame(PRODUCE, b"2")
    broker.turns()
    for first, second in zip(broker.slots[::2], broker.slots[1::2], strict=True):
        first.complete([b"not read by the client"])
        second.close("acks=0 failed")
    broker.turns()
    assert not broker.server.end_connections(2)


def test_closing_the_server_closes_everything(broker: Broker) -> None:
    streams = [broker.connect() for _ in range(3)]
    broker.server.close()
    assert all(stream.is_closed for stream in streams)
    assert broker.network.listeners[0].is_closed
    assert broker.network.poller.interest == {}


# -- regions of files -------------------------------------------------------------------------


class FakeFile:
    """A file in memory whose pages may be cold."""

    def __init__(self, data: bytes, warm: bool = True) -> None:
        self.path = Path("fake.log")
        self.data = data
        self.warm_to = len(data) if warm else 0
        self.fails = False

    def pread(self, size: int, position: int) -> bytes:
        assert position + size <= max(self.warm_to, 0) or position >= len(self.data), "blocked"
        return self.data[position : position + size]

    def is_warm(self, position: int, size: int) -> bool:
        return position + size <= self.warm_to

    def read_ahead(self, position: int, size: int) -> None:
        if self.fails:
            raise OSError("I/O error")
        self.warm_to = max(self.warm_to, position + size)


class Region:
    def __init__(self, file: FakeFile, position: int, size: int) -> None:
        self.file, self.position, self.size = file, position, size

    def __len__(self) -> int:
        return self.size


def test_a_reply_of_bytes_and_regions_arrives_in_order(broker: Broker) -> None:
    data = bytes(range(256)) * 10_000
    file = FakeFile(data)
    broker.answers = lambda _, slot: slot.complete(
        [b"head", Region(file, 5, 2_000_000), b"", Region(file, 0, 0), b"mid", Region(file, 1, 2)]
    )
    stream = broker.connect()
    stream.room_bytes = 1_000
    stream.inbox += frame(FETCH)
    broker.turns(1)
    while stream.room_bytes == 0:
        stream.room_bytes = 777_777
        broker.turns(5)
    assert stream.sent == b"head" + data[5:2_000_005] + b"mid" + data[1:3]
    # Bytes before a region are sent with MSG_MORE, so they get no packet of their own.
    assert stream.sends_more == 2


def test_cold_pages_are_read_by_a_helper_while_others_are_answered(broker: Broker) -> None:
    data = bytes(range(256)) * 40_000
    file = FakeFile(data, warm=False)
    other = broker.connect()
    reader = broker.connect()
    broker.answers = lambda _, slot: slot.complete([b"H", Region(file, 0, len(data)), b"T"])
    reader.inbox += frame(FETCH)
    broker.turns()
    assert reader.sent == b"H"
    assert len(broker.helpers.waiting) == 1
    broker.answers = echo
    other.inbox += frame(OTHER, b"meanwhile")
    broker.turns()
    assert other.sent == b"<meanwhile>"
    while broker.helpers.waiting:
        broker.helpers.run_all()
        broker.turns()
    assert reader.sent == b"H" + data + b"T"
    assert broker.server.counters["cold-reads"] == -(-len(data) // bounds.READ_AHEAD_BYTES)


def test_a_cache_that_keeps_nothing_does_not_keep_the_reply(broker: Broker) -> None:
    file = FakeFile(b"d" * 1_000_000)
    file.is_warm = lambda position, size: False  # type: ignore[method-assign]
    stream = broker.connect()
    broker.answers = lambda _, slot: slot.complete([Region(file, 0, 1_000_000)])
    stream.inbox += frame(FETCH)
    for _ in range(5):
        broker.turns()
        broker.helpers.run_all()
    assert stream.sent == file.data


def test_a_region_that_cannot_be_read_closes_the_connection(broker: Broker) -> None:
    file = FakeFile(b"d" * 100, warm=False)
    file.fails = True
    stream = broker.connect()
    broker.answers = lambda _, slot: slot.complete([Region(file, 0, 100)])
    stream.inbox += frame(FETCH)
    broker.turns()
    broker.helpers.run_all()
    broker.turns()
    assert stream.is_closed


def test_a_region_past_the_end_of_its_file_closes_the_connection(broker: Broker) -> None:
    file = FakeFile(b"d" * 100)
    file.warm_to = 1000
    stream = broker.connect()
    broker.answers = lambda _, slot: slot.complete([Region(file, 50, 100)])
    stream.inbox += frame(FETCH)
    broker.turns()
    assert stream.is_closed


def test_a_file_that_is_cut_while_it_is_sent_closes_the_connection(broker: Broker) -> None:
    """The log was truncated: the missing part of the region is neither padded nor skipped."""
    file = FakeFile(b"d" * 5_000)
    stream = broker.connect()
    stream.room_bytes = 1_000
    broker.answers = lambda _, slot: slot.complete([Region(file, 0, 5_000), b"next"])
    stream.inbox += frame(FETCH)
    broker.turns(1)
    file.data = file.data[:3_000]
    while not stream.is_closed and stream.room_bytes == 0:
        stream.room_bytes = 1_500
        broker.turns(5)
    assert (stream.is_closed, bytes(stream.sent)) == (True, b"d" * 3_000)


def test_a_connection_that_goes_while_its_pages_are_read_is_forgotten(broker: Broker) -> None:
    file = FakeFile(b"d" * 100, warm=False)
    stream = broker.connect()
    broker.answers = lambda _, slot: slot.complete([Region(file, 0, 100)])
    stream.inbox += frame(FETCH)
    broker.turns()
    stream.is_broken = True
    broker.turns()
    assert stream.is_closed
    broker.helpers.run_all()
    broker.turns()
    assert broker.server.connection_count == 0


# -- requests that are held -------------------------------------------------------------------


def test_nothing_is_parsed_behind_a_request_that_is_held(broker: Broker) -> None:
    broker.answers = lambda request, slot: (
        slot.hold() if request[8:] == b"held" else echo(request, slot)
    )
    stream = broker.connect()
    stream.inbox += frame(PRODUCE, b"held")
    broker.turns()
    stream.inbox += frame(PRODUCE, b"behind")
    broker.turns()
    assert broker.bodies == [b"held"]
    broker.slots[0].complete([b"!"])
    broker.turns()
    assert stream.sent == b"!<behind>"


@pytest.mark.parametrize("begun", [4, 50_000, 131_072, 300_000])
def test_a_large_frame_begins_when_nothing_is_held_any_more(broker: Broker, begun: int) -> None:
    broker.answers = lambda _, slot: slot.hold() and None
    stream = broker.connect()
    data = frame(PRODUCE, b"z" * 400_000)
    stream.inbox += frame(PRODUCE, b"held") + data[:begun]
    broker.turns()
    stream.inbox += data[begun:]
    broker.turns()
    assert broker.bodies == [b"held"]
    assert broker.server.memory.buffers.lent_bytes == 0
    broker.answers = echo
    broker.slots[0].skip()
    broker.turns(20)
    assert stream.sent == b"<" + b"z" * 400_000 + b">"
    assert broker.server.memory.buffers.lent_bytes == 0


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_large_frame_that_is_held_stays_until_it_is_answered(
    broker: Broker, is_closed: bool
) -> None:
    held: list[tuple[memoryview, bool]] = []

    def hold(request: memoryview, slot: QueuedResponse, _: Connection) -> None:
        broker.slots.append(slot)
        held.append((request, slot.hold()))

    broker.server.handle_frame = hold
    stream, other = broker.connect(), broker.connect()
    body = b"a" * 300_000
    stream.inbox += frame(PRODUCE, body)
    broker.turns()
    if is_closed:
        stream.is_broken = True
        stream.inbox += b"x"
        broker.turns()
        assert stream.is_closed
    # Another large frame must not be received over it.
    other.inbox += frame(PRODUCE, b"b" * 300_000)
    broker.turns()
    (request, stays), (_, other_stays) = held
    assert stays and other_stays
    assert bytes(request[8:]) == body
    for slot in broker.slots:
        slot.skip()
    broker.turns()
    assert broker.server.memory.buffers.lent_bytes == 0


def test_the_frame_of_a_cancelled_request_is_given_back(broker: Broker) -> None:
    broker.answers = lambda _, slot: slot.hold() and None
    stream = broker.connect()
    stream.inbox += frame(PRODUCE, b"a" * 300_000)
    broker.turns()
    assert broker.server.memory.buffers.lent_bytes > 0
    cancelled: list[str] = []
    broker.slots[0].when_closed(lambda: cancelled.append("waits for followers"))
    stream.is_broken = True
    stream.inbox += b"x"
    broker.turns()
    assert cancelled
    assert broker.server.memory.buffers.lent_bytes == 0


def test_a_small_request_is_copied_by_the_handler_that_holds_it(broker: Broker) -> None:
    stays: list[bool] = []
    broker.answers = lambda _, slot: stays.append(slot.hold())
    stream = broker.connect()
    stream.inbox += frame(PRODUCE, b"small")
    broker.turns()
    broker.slots[0].skip()
    assert not broker.slots[0].hold()
    assert stays == [False]


def test_an_answer_that_leaves_now_is_sent_once_and_before_the_turns_sends(broker: Broker) -> None:
    broker.answers = None
    first, second = broker.connect(), broker.connect()
    for stream in (first, second):
        stream.inbox += frame(FETCH, b"x")
    broker.turns()
    seen: list[bytes] = []

    def answer() -> None:
        for slot in broker.slots:
            slot.complete([b"answer"])
        broker.slots[1].send_early()
        seen.extend((bytes(first.sent), bytes(second.sent)))

    broker.loop.call_at_append(answer)
    broker.turns()
    assert seen == [b"", b"answer"]
    assert first.sent == second.sent == b"answer"
    assert second.sends == 1
    broker.answers = echo
    second.inbox += frame(OTHER, b"2")
    broker.turns()
    assert second.sent == b"answer<2>"


def test_an_answer_leaves_now_only_if_it_is_its_turn(broker: Broker) -> None:
    broker.answers = None
    stream = broker.connect()
    stream.inbox += frame(PRODUCE, b"1") + frame(PRODUCE, b"2")
    broker.turns()
    broker.slots[1].complete([b"second"])
    broker.slots[1].send_early()
    assert stream.sent == b""
    broker.slots[0].complete([b"first"])
    broker.slots[0].send_early()
    assert stream.sent == b"firstsecond"
