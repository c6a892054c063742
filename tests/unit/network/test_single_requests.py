"""Requests on quiet connections: answered in their turn, later, in parts, or not at all."""

import struct
from collections.abc import Callable

import pytest

from klog_broker.network.connection import Connection
from klog_broker.network.responses import QueuedResponse
from klog_broker.network.server import NetworkLimits, Server
from klog_broker.network.single_requests import SingleResponse
from klog_broker.runtime.event_loop.loop import Loop
from tests.support.cluster.helpers import Helpers
from tests.support.runtime.fake_network import FakeNetwork, FakeStream
from tests.support.runtime.manual_clock import ManualClock

PRODUCE, OTHER = 0, 3

Slot = QueuedResponse | SingleResponse


def frame(body: bytes, api_key: int = OTHER) -> bytes:
    content = struct.pack(">hhi", api_key, 0, 7) + body
    return struct.pack(">i", len(content)) + content


class Broker:
    """A server; ``handle(frame, slot)`` is what the test makes of each request."""

    def __init__(self, handle: Callable[[memoryview, Slot], bool]) -> None:
        self.network = FakeNetwork()
        self.loop = Loop(ManualClock(0), self.network.poller)
        self.connections: list[Connection] = []
        self.handle = handle
        self.server = Server(
            self.loop,
            Helpers.held(),
            self.network,
            NetworkLimits(),
            self._handle,
            frozenset([PRODUCE]),
        )
        self.server.listen("PLAINTEXT", "127.0.0.1", 0)

    def _handle(self, request: memoryview, slot: Slot, connection: Connection) -> bool:
        self.connections.append(connection)
        return self.handle(request, slot)

    def connect(self) -> FakeStream:
        stream = self.network.arrive("10.0.0.1")
        self.turns()
        return stream

    def turns(self, count: int = 10) -> None:
        for _ in range(count):
            self.loop.run_turn(0)


def echo(request: memoryview, slot: Slot) -> bool:
    slot.complete([b"<" + request[8:] + b">"])
    return True


def test_an_answer_leaves_in_the_turn_of_its_request_behind_the_appends() -> None:
    happened: list[str] = []

    def handle(request: memoryview, slot: Slot) -> bool:
        broker.loop.call_at_append(lambda: happened.append(f"append, sent {bytes(stream.sent)!r}"))
        return echo(request, slot)

    broker = Broker(handle)
    stream = broker.connect()
    stream.inbox += frame(b"one")
    broker.turns(1)
    assert happened == ["append, sent b''"]
    assert (stream.sent, stream.sends) == (b"<one>", 1)
    stream.inbox += frame(b"two")
    broker.turns(1)
    assert stream.sent == b"<one><two>"


def test_what_an_append_answers_leaves_in_the_same_turn() -> None:
    def handle(request: memoryview, slot: Slot) -> bool:
        broker.loop.call_at_append(lambda: slot.complete([b"appended"]))
        return True

    broker = Broker(handle)
    stream = broker.connect()
    stream.inbox += frame(b"")
    broker.turns(1)
    assert stream.sent == b"appended"


@pytest.mark.parametrize("room_bytes", [0, 1, 4])
def test_bytes_that_the_socket_does_not_take_are_sent_when_it_is_writable(room_bytes: int) -> None:
    broker = Broker(echo)
    stream = broker.connect()
    stream.room_bytes = room_bytes
    stream.inbox += frame(b"one")
    broker.turns(1)
    assert stream.sent == b"<one>"[:room_bytes]
    stream.inbox += frame(b"two")
    broker.turns(3)
    stream.room_bytes = 100
    broker.turns()
    assert stream.sent == b"<one><two>"


def test_a_request_that_waits_has_its_place_before_later_ones() -> None:
    slots: list[Slot] = []

    def handle(_: memoryview, slot: Slot) -> bool:
        slots.append(slot)
        return True

    broker = Broker(handle)
    stream = broker.connect()
    stream.inbox += frame(b"", PRODUCE) + frame(b"", PRODUCE)
    broker.turns(3)
    stream.inbox += frame(b"", PRODUCE)
    broker.turns(3)
    slots[1].complete([b"2"])
    slots[2].complete([b"3"])
    broker.turns()
    assert stream.sent == b""
    slots[0].complete([b"1"])
    broker.turns()
    assert stream.sent == b"123"
    stream.inbox += frame(b"")
    broker.turns()
    stream.inbox += frame(b"")
    broker.turns()
    assert len(slots) == 4, "what is not answered stops the parsing"
    slots[3].complete([b"4"])
    broker.turns()
    assert (len(slots), stream.sent) == (5, b"1234")


def test_a_frame_with_a_holder_stays_until_the_appends_are_over() -> None:
    seen: list[bytes] = []

    def handle(request: memoryview, slot: Slot) -> bool:
        broker.loop.call_at_append(lambda: seen.append(bytes(request[8:])))
        echo(request, slot)
        return False

    broker = Broker(handle)
    streams = [broker.connect() for _ in range(3)]
    for number, stream in enumerate(streams):
        stream.inbox += frame(b"number %d" % number)
    broker.turns(1)
    assert seen == [b"number 0", b"number 1", b"number 2"]
    assert broker.server.memory.arena.used_bytes == 0


def test_a_frame_without_a_holder_takes_no_memory() -> None:
    used: list[int] = []

    def handle(request: memoryview, slot: Slot) -> bool:
        used.append(broker.server.memory.arena.used_bytes)
        return echo(request, slot)

    broker = Broker(handle)
    streams = [broker.connect() for _ in range(3)]
    for number, stream in enumerate(streams):
        stream.inbox += frame(b"%d" % number)
    broker.turns(1)
    assert used == [0, 0, 0]
    assert [stream.sent for stream in streams] == [b"<0>", b"<1>", b"<2>"]


def test_a_request_without_an_answer_leaves_the_connection_open() -> None:
    def handle(request: memoryview, slot: Slot) -> bool:
        if request[8:] == b"skip":
            slot.skip()
            return True
        return echo(request, slot)

    broker = Broker(handle)
    stream = broker.connect()
    for body in (b"skip", b"one"):
        stream.inbox += frame(body)
        broker.turns()
    assert stream.sent == b"<one>"


def test_a_request_may_close_the_connection() -> None:
    def handle(_: memoryview, slot: Slot) -> bool:
        slot.close("no such thing")
        return True

    broker = Broker(handle)
    stream = broker.connect()
    stream.inbox += frame(b"")
    broker.turns()
    assert stream.is_closed


@pytest.mark.parametrize("ends", ["before the answer", "while it is sent"])
def test_a_closed_connection_is_not_answered(ends: str) -> None:
    def handle(request: memoryview, slot: Slot) -> bool:
        if ends == "before the answer":
            broker.connections[-1].close("the test ends it")
        else:
            stream.is_broken = True
        return echo(request, slot)

    broker = Broker(handle)
    stream = broker.connect()
    stream.inbox += frame(b"")
    broker.turns()
    assert (stream.is_closed, stream.sent) == (True, b"")
    assert broker.server.connection_count == 0


def test_a_wait_ends_with_the_connection() -> None:
    ended: list[bool] = []

    def handle(_: memoryview, slot: Slot) -> bool:
        slot.when_closed(lambda: ended.append(slot.is_open))
        return True

    broker = Broker(handle)
    stream = broker.connect()
    stream.inbox += frame(b"")
    broker.turns()
    stream.is_at_end = True
    broker.turns()
    assert ended == [False]


def test_a_second_answer_is_an_error() -> None:
    errors: list[str] = []

    def handle(request: memoryview, slot: Slot) -> bool:
        echo(request, slot)
        with pytest.raises(RuntimeError) as error:
            slot.complete([b"again"])
        errors.append(str(error.value))
        return True

    broker = Broker(handle)
    stream = broker.connect()
    stream.inbox += frame(b"one")
    broker.turns()
    assert len(errors) == 1
    assert "answered twice" in errors[0]


def test_a_cached_request_is_forgotten_at_once() -> None:
    broker = Broker(echo)
    stream = broker.connect()
    stream.inbox += frame(b"")
    broker.turns()
    (connection,) = broker.connections
    connection.cached_requests[OTHER] = object()
    connection.forget_cached_requests()
    assert not connection.cached_requests
