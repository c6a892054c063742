"""Connections that are received from and answered together, and what is left to each of them."""

from itertools import chain

import pytest

from klog_broker.network import bounds
from klog_broker.runtime.net.socket_calls import MAX_SOCKETS
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.protocol.apis.metadata import MetadataRequest
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.keys import ApiKey
from tests.support.api.produce_frames import batch, frame, produce_responses, values
from tests.support.cluster.broker import MemoryBroker, new_broker
from tests.support.runtime.fake_network import FakeStream


@pytest.fixture
def broker() -> MemoryBroker:
    return new_broker(with_kernel=True)


def quiet(broker: MemoryBroker, count: int = 1) -> list[FakeStream]:
    """Connections that have been served: from here on they are received from at once."""
    streams = [broker.connect() for _ in range(count)]
    for stream in streams:
        stream.inbox += frame(batch(b"first"))
    broker.turns()
    for stream in streams:
        assert len(produce_responses(stream)) == 1
        stream.receives = stream.sends = 0
    broker.network.received_at_once = broker.network.sent_at_once = 0
    return streams


def offsets(stream: FakeStream) -> list[int]:
    return [each.base_offset for each in produce_responses(stream)]


def metadata(correlation_id: int) -> bytes:
    header = RequestHeader(ApiKey.METADATA, 1, correlation_id, "c")
    return encode_request(header, MetadataRequest(topics=[]))


def test_ready_connections_are_received_from_and_answered_at_once(broker: MemoryBroker) -> None:
    streams = quiet(broker, 20)
    for turn in range(3):
        for number, stream in enumerate(streams):
            stream.inbox += frame(batch(b"%d-%d" % (turn, number)))
        broker.broker.loop.run_turn(0)
        assert [offsets(stream) for stream in streams] == [
            [20 + 20 * turn + number] for number in range(20)
        ]
    assert broker.network.received_at_once == broker.network.sent_at_once == 60
    assert all(stream.receives == stream.sends == 3 for stream in streams)
    assert broker.planned == 80
    assert broker.broker.server.memory.arena.used_bytes == 0


def test_acks_0_is_received_at_once_and_not_answered(broker: MemoryBroker) -> None:
    (stream,) = quiet(broker)
    stream.inbox += frame(batch(b"a"), acks=0) + frame(batch(b"b"), acks=0)
    broker.turns()
    assert not stream.sent
    assert values(broker) == [b"first", b"a", b"b"]
    assert (stream.receives, stream.sends) == (1, 0)


@pytest.mark.parametrize("room_bytes", [0, 1, 30, 100])
def test_what_a_socket_does_not_take_is_sent_later_and_in_order(
    broker: MemoryBroker, room_bytes: int
) -> None:
    slow, other = quiet(broker, 2)
    slow.room_bytes = room_bytes
    for number in range(3):
        slow.inbox += frame(batch(b"%d" % number))
        other.inbox += frame(batch(b"x"), partition=1)
        broker.turns()
        assert offsets(other) == [number]
    assert len(slow.sent) == room_bytes
    slow.room_bytes = 1 << 20
    broker.turns()
    for _ in range(3):
        broker.broker.loop.run_turn(0)
    assert offsets(slow) == [2, 3, 4]


def test_a_frame_in_pieces_is_put_together(broker: MemoryBroker) -> None:
    (stream,) = quiet(broker)
    data = frame(batch(b"v" * 100)) * 3
    for position in range(0, len(data), 37):
        stream.inbox += data[position : position + 37]
        broker.turns()
    assert offsets(stream) == [1, 2, 3]


def test_other_requests_are_answered_in_their_place(broker: MemoryBroker) -> None:
    (stream,) = quiet(broker)
    for start in (0, 10, 20):
        for number in range(start, start + 9):
            data = (
                metadata(number) if number % 4 == 2 else frame(batch(b"v"), correlation_id=number)
            )
            stream.inbox += data
        broker.turns()
        sent, position, order = bytes(stream.sent), 0, []
        while position < len(sent):
            order.append(int.from_bytes(sent[position + 4 : position + 8], "big"))
            position += 4 + int.from_bytes(sent[position : position + 4], "big")
        assert order == list(range(start, start + 9))
        stream.sent.clear()


def test_a_connection_that_does_not_produce_is_received_from_by_itself(
    broker: MemoryBroker,
) -> None:
    producer, other = quiet(broker, 2)
    other.inbox += metadata(1)
    broker.turns()
    broker.network.received_at_once = 0
    for number in range(3):
        producer.inbox += frame(batch(b"v"))
        other.inbox += metadata(number)
        broker.turns()
    assert broker.network.received_at_once == 3
    assert (other.receives, other.sends) == (4, 4)
    other.inbox += frame(batch(b"v"))
    broker.turns()
    other.inbox += frame(batch(b"v"))
    broker.turns()
    assert broker.network.received_at_once == 4


@pytest.mark.parametrize("how", ["is_at_end", "is_broken"])
def test_a_client_that_goes_is_noticed_and_the_others_go_on(broker: MemoryBroker, how: str) -> None:
    gone, other = quiet(broker, 2)
    setattr(gone, how, True)
    other.inbox += frame(batch(b"v"))
    broker.turns()
    for _ in range(3):
        broker.broker.loop.run_turn(0)
    assert gone.is_closed
    assert not other.is_closed
    assert offsets(other) == [2]
    assert broker.broker.server.connection_count == 1


def test_what_was_sent_before_the_end_is_served(broker: MemoryBroker) -> None:
    (stream,) = quiet(broker)
    stream.inbox += frame(batch(b"last"))
    stream.is_at_end = True
    broker.turns()
    for _ in range(3):
        broker.broker.loop.run_turn(0)
    assert offsets(stream) == [1]
    assert stream.is_closed


def test_a_stream_that_has_something_after_all_is_received_from_by_itself(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = quiet(broker, 2)
    plans = broker.broker.plans
    assert plans is not None
    assert plans.planner is not None
    assert plans.planner.calls is not None
    calls = plans.planner.calls
    receive = calls.receive

    def not_from_the_first(descriptors: list[int], *where: int) -> list[int]:
        return [-1, *receive(descriptors[1:], *where)]

    monkeypatch.setattr(calls, "receive", not_from_the_first)
    for stream in (first, second):
        stream.inbox += frame(batch(b"v" * 500))
    broker.turns()
    assert sorted(offsets(first) + offsets(second)) == [2, 3]
    assert values(broker)[2:] == [b"v" * 500] * 2


def test_a_frame_that_is_no_request_closes_only_its_connection(broker: MemoryBroker) -> None:
    bad, good = quiet(broker, 2)
    bad.inbox += b"\xff\xff\xff\xff" * 10
    good.inbox += frame(batch(b"v"))
    broker.turns()
    assert bad.is_closed
    assert offsets(good) == [2]


def test_connections_that_the_full_arena_leaves_out_are_first_in_the_next_turn() -> None:
    broker = new_broker(with_kernel=True, log_index_size_max_bytes=1_000_000)
    streams = quiet(broker, 2 * bounds.ARENA_BYTES // bounds.RECEIVE_BYTES)
    data = frame(batch(b"v" * 60_000))
    for stream in streams:
        stream.inbox += data * (bounds.RECEIVE_BYTES // len(data) + 1)
    broker.turns()
    found = [offsets(stream) for stream in streams]
    each_sent = bounds.RECEIVE_BYTES // len(data) + 1
    assert [len(each) for each in found] == [each_sent] * len(streams)
    first = len(streams)
    assert sorted(chain(*found)) == list(range(first, first + each_sent * len(streams)))


def test_more_connections_than_one_call_takes(broker: MemoryBroker) -> None:
    streams = quiet(broker, MAX_SOCKETS + 30)
    for stream in streams:
        stream.inbox += frame(batch(b"v"))
    broker.turns()
    first = len(streams)
    assert sorted(chain(*map(offsets, streams))) == list(range(first, 2 * first))


def test_a_stream_that_is_not_plain_is_left_to_itself(broker: MemoryBroker) -> None:
    stream = broker.connect()
    stream.is_plain = False
    for number in range(3):
        stream.inbox += frame(batch(b"v"))
        broker.turns()
        assert offsets(stream) == [number]
    assert broker.network.received_at_once == broker.network.sent_at_once == 0


def test_a_connection_that_is_used_is_not_idle(broker: MemoryBroker) -> None:
    used, idle = quiet(broker, 2)
    for _ in range(12):
        broker.clock.advance(60_000)
        used.inbox += frame(batch(b"v"))
        broker.turns()
        broker.broker.loop.run_turn(0)
    assert not used.is_closed
    assert idle.is_closed


def test_a_full_disk_refuses_what_was_received_at_once(broker: MemoryBroker) -> None:
    streams = quiet(broker, 3)
    broker.files.free_bytes = 0
    for stream in streams:
        stream.inbox += frame(batch(b"lost"))
    broker.turns()
    assert [offsets(stream) for stream in streams] == [[-1]] * 3
    broker.files.free_bytes = None
    for stream in streams:
        stream.inbox += frame(batch(b"after"))
    broker.turns()
    assert [offsets(stream) for stream in streams] == [[3], [4], [5]]


def test_a_failed_commit_answers_none_of_them(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = quiet(broker, 3)

    def fail(*_: object) -> None:
        raise InvariantViolation("for the test")

    monkeypatch.setattr(type(broker.log("plain").segments[-1]), "commit_planned", fail)
    for stream in streams:
        stream.inbox += frame(batch(b"v"))
    broker.turns()
    assert all(stream.is_closed and not stream.sent for stream in streams)


def test_a_connection_planned_without_a_break_receives_more_when_few_are_ready() -> None:
    broker = new_broker(with_kernel=True, log_index_size_max_bytes=1_000_000)
    data = frame(batch(b"v" * 1000))
    streams = quiet(broker, 16)
    counts = []
    for ready in (streams[:1], streams):
        for stream in ready:
            stream.inbox += data * (8 * bounds.RECEIVE_BYTES // len(data))
        broker.broker.loop.run_turn(0)  # the usual share, all of it planned
        left = [len(stream.inbox) for stream in ready]
        broker.broker.loop.run_turn(0)
        counts.append({was - len(stream.inbox) for was, stream in zip(left, ready, strict=True)})
        broker.turns()
        assert all(len(offsets(stream)) > 0 for stream in ready)
    alone, together = counts
    assert min(alone) > 6 * bounds.RECEIVE_BYTES
    assert together == {bounds.RECEIVE_BYTES}
    assert bounds.BULK_RECEIVE_BYTES // len(streams) < bounds.RECEIVE_BYTES
