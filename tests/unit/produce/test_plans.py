"""Plans of pipelined Produce: requests that they serve, order, fairness, and a full disk."""

import errno
import multiprocessing
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from klog_broker.log.errors import LogStorageError
from klog_broker.network import bounds
from klog_broker.produce import kernel as produce_kernel
from pyspark_klog.errors import ErrorCode, InvariantViolation
from pyspark_klog.protocol.apis.metadata import MetadataRequest
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.compression import Codec
from tests.support.api.produce_frames import batch, frame, produce_responses, values
from tests.support.cluster.broker import NOW_MS, MemoryBroker, new_broker


@pytest.fixture
def broker() -> MemoryBroker:
    return new_broker(with_kernel=True)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_is_planned(broker: MemoryBroker, version: int, acks: int) -> None:
    stream = broker.connect()
    for number in range(5):
        stream.inbox += frame(batch(b"%d" % number, b"x"), acks=acks, version=version)
    broker.turns()
    assert [each.base_offset for each in produce_responses(stream, version)] == [0, 2, 4, 6, 8]
    assert broker.planned == 5
    assert broker.log("plain").high_watermark == 10


def test_acks_0_is_planned_and_not_answered(broker: MemoryBroker) -> None:
    stream = broker.connect()
    stream.inbox += frame(batch(b"a"), acks=0) + frame(batch(b"b"), acks=0)
    stream.inbox += frame(batch(b"c"), acks=1, correlation_id=3)
    broker.turns()
    assert [each.base_offset for each in produce_responses(stream)] == [2]
    assert values(broker) == [b"a", b"b", b"c"]
    assert broker.planned == 3


def test_the_order_of_a_connection_is_kept_by_plan_and_handler(broker: MemoryBroker) -> None:
    stream = broker.connect()
    codecs = [Codec.NONE, Codec.NONE, Codec.LZ4, Codec.NONE, Codec.GZIP, Codec.NONE]
    for number in range(600):
        codec = codecs[number % len(codecs)]
        stream.inbox += frame(batch(b"%d" % number, codec=codec), correlation_id=number)
    broker.turns()
    assert [each.base_offset for each in produce_responses(stream)] == list(range(600))
    assert values(broker) == [b"%d" % number for number in range(600)]
    assert broker.planned >= 2


def test_another_request_stops_the_plan_and_is_answered_in_its_place(broker: MemoryBroker) -> None:
    stream = broker.connect()
    stream.inbox += frame(batch(b"a"), correlation_id=1) + frame(batch(b"b"), correlation_id=2)
    ask = RequestHeader(ApiKey.METADATA, 1, 3, "c")
    stream.inbox += encode_request(ask, MetadataRequest(topics=[]))
    stream.inbox += frame(batch(b"c"), correlation_id=4)
    broker.turns()
    sent, position, order = bytes(stream.sent), 0, []
    while position < len(sent):
        order.append(int.from_bytes(sent[position + 4 : position + 8], "big"))
        position += 4 + int.from_bytes(sent[position : position + 4], "big")
    assert order == [1, 2, 3, 4]
    assert values(broker) == [b"a", b"b", b"c"]


def test_after_a_break_plans_go_on(broker: MemoryBroker) -> None:
    """A stream that never pauses comes back to the kernel after a request for the handler."""
    stream = broker.connect()
    stream.inbox += frame(batch(b"first", codec=Codec.LZ4))
    data = frame(batch(b"v" * 100))
    count = 20 * bounds.RECEIVE_BYTES // len(data)
    stream.inbox += data * count
    broker.turns()
    assert len(produce_responses(stream)) == count + 1
    assert broker.planned > count // 2


def test_many_connections_share_one_plan(broker: MemoryBroker) -> None:
    streams = [broker.connect() for _ in range(50)]
    for number, stream in enumerate(streams):
        for partition in (0, 1):
            stream.inbox += frame(batch(b"%d" % number), partition=partition)
    broker.turns()
    assert [[each.base_offset for each in produce_responses(stream)] for stream in streams] == [
        [number, number] for number in range(50)
    ]
    assert broker.planned == 100


def test_a_partition_asked_for_by_name_and_by_id_in_one_turn(broker: MemoryBroker) -> None:
    by_name, by_id = broker.connect(), broker.connect()
    for _ in range(3):
        by_name.inbox += frame(batch(b"name"))
        by_id.inbox += frame(batch(b"id"), version=13)
    broker.turns()
    offsets = [
        each.base_offset for each in produce_responses(by_name) + produce_responses(by_id, 13)
    ]
    assert sorted(offsets) == list(range(6))
    assert len(values(broker)) == 6
    assert broker.planned == 6


def test_more_batches_than_one_plan_holds() -> None:
    broker = new_broker(with_kernel=True, log_index_size_max_bytes=100_000)
    streams = [broker.connect() for _ in range(30)]
    data = frame(batch(b""))
    each_sends = bounds.RECEIVE_BYTES // len(data)
    assert each_sends * len(streams) > produce_kernel.MAX_ROWS
    for stream in streams:
        stream.inbox += data * each_sends
    broker.turns()
    offsets = [each.base_offset for stream in streams for each in produce_responses(stream)]
    assert sorted(offsets) == list(range(each_sends * len(streams)))
    assert broker.planned == each_sends * len(streams)


def test_no_connection_gets_more_than_its_share_of_a_turn(broker: MemoryBroker) -> None:
    greedy, modest = broker.connect(), broker.connect()
    data = frame(batch(b"v" * 200))
    greedy.inbox += data * (4 * bounds.RECEIVE_BYTES // len(data))
    modest.inbox += data
    broker.broker.loop.run_turn(0)
    assert len(produce_responses(modest)) == 1
    assert 0 < len(produce_responses(greedy)) <= bounds.RECEIVE_BYTES // len(data)


def test_more_names_than_there_are_slots(broker: MemoryBroker) -> None:
    stream = broker.connect()
    count = produce_kernel.MAX_SLOTS + 20
    for number in range(count):
        stream.inbox += frame(batch(b"v"), topic=f"unknown-{number}")
        broker.turns()
    codes = {each.error_code for each in produce_responses(stream)}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    stream.inbox += frame(batch(b"v")) * 3
    broker.turns()
    assert [each.base_offset for each in produce_responses(stream)] == [0, 1, 2]
    assert broker.planned == 3


# -- idempotence ------------------------------------------------------------------------------


def sequenced(sequences: Sequence[int], epoch: int = 0) -> bytes:
    return b"".join(
        frame(batch(b"%d" % each, producer_id=7, producer_epoch=epoch, base_sequence=each))
        for each in sequences
    )


def test_sequences_are_checked_within_a_plan(broker: MemoryBroker) -> None:
    stream = broker.connect()
    stream.inbox += sequenced([0, 1, 2, 2, 3, 5, 4])
    broker.turns()
    found = [(each.error_code, each.base_offset) for each in produce_responses(stream)]
    gap = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert found == [(0, 0), (0, 1), (0, 2), (0, 2), (0, 3), (gap, -1), (0, 4)]
    assert values(broker) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("count", range(16, 21))
def test_the_window_of_five_holds_what_a_plan_appended(broker: MemoryBroker, count: int) -> None:
    """Wherever in the ring of five the last batch lies."""
    stream = broker.connect()
    stream.inbox += sequenced(range(count))
    broker.turns()
    assert broker.planned == count
    produce_responses(stream)
    stream.inbox += sequenced([*range(count - 5, count), count - 6])
    broker.turns()
    found = [(each.error_code, each.base_offset) for each in produce_responses(stream)]
    assert found[:5] == [(0, number) for number in range(count - 5, count)]
    assert found[5][0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    stream.inbox += sequenced([count])
    broker.turns()
    assert [(each.error_code, each.base_offset) for each in produce_responses(stream)] == [
        (0, count)
    ]


def test_sequences_wrap_around(broker: MemoryBroker) -> None:
    stream = broker.connect()
    last = 2**31 - 1
    stream.inbox += sequenced([last - 1, last, 0, 1])
    broker.turns()
    assert [each.base_offset for each in produce_responses(stream)] == [0, 1, 2, 3]
    assert broker.planned == 4


def write_as_many_producers() -> None:
    """In each turn, use new producers, and more of these than one plan can hold."""
    broker = new_broker(with_kernel=True)
    streams, turns, each = [broker.connect() for _ in range(16)], 20, 100
    assert len(streams) * each > produce_kernel.MAX_PRODUCERS
    producers = iter(Random(0).sample(range(2**40), len(streams) * turns * each))
    for _ in range(turns):
        for stream in streams:
            for _ in range(each):
                fresh = next(producers)
                records = batch(b"v", producer_id=fresh, producer_epoch=0, base_sequence=0)
                stream.inbox += frame(records)
        broker.turns()
        assert {
            answer.error_code for stream in streams for answer in produce_responses(stream)
        } == {0}
    assert broker.log("plain").log_end_offset == len(streams) * turns * each


def test_producers_of_earlier_plans_free_their_rows() -> None:
    """The test runs in another process, because a kernel that loops could not be interrupted."""
    process = multiprocessing.get_context("spawn").Process(target=write_as_many_producers)
    process.start()
    process.join(120)
    is_over = not process.is_alive()
    process.kill()
    process.join()
    assert is_over, "the kernel looks for a free place without an end"
    assert process.exitcode == 0


# -- a disk that fails ------------------------------------------------------------------------


def test_a_full_disk_refuses_a_turn_and_the_next_one_goes_on() -> None:
    found = []
    for with_kernel in (False, True):
        broker = new_broker(with_kernel=with_kernel)
        stream = broker.connect()
        stream.inbox += frame(batch(b"before"))
        broker.turns()
        broker.files.free_bytes = 0
        stream.inbox += frame(batch(b"lost")) * 3 + frame(batch(b"lost"), partition=1)
        broker.turns()
        broker.files.free_bytes = None
        stream.inbox += frame(batch(b"after")) * 2
        broker.turns()
        codes = [(each.error_code, each.base_offset) for each in produce_responses(stream)]
        full = (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert codes == [(0, 0), full, full, full, full, (0, 1), (0, 2)]
        found.append(broker.state())
    assert found[0] == found[1]


def test_a_write_that_fails_takes_back_the_others() -> None:
    """Two partitions in one turn, disk space for one: one is appended, as without the kernel."""
    found = []
    for with_kernel in (False, True):
        broker = new_broker(with_kernel=with_kernel)
        stream = broker.connect()
        stream.inbox += frame(batch(b"x")) + frame(batch(b"x"), partition=1)
        broker.turns()
        produce_responses(stream)
        broker.files.free_bytes = len(batch(b"y" * 50)) + 10
        stream.inbox += frame(batch(b"y" * 50)) + frame(batch(b"z" * 50), partition=1)
        broker.turns()
        codes = [each.error_code for each in produce_responses(stream)]
        assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR]
        broker.files.free_bytes = None
        assert values(broker) == [b"x", b"y" * 50]
        assert values(broker, partition=1) == [b"x"]
        found.append(broker.state())
    assert found[0] == found[1]


def test_what_was_taken_back_is_not_found_by_the_next_start(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan's second write fails. The generic handler does not come to all of the first's
    requests in that turn, and after it the process is killed."""
    many, other = broker.connect(), broker.connect()
    write, writes = broker.files.write_inode, []

    def fail_second(*arguments: Any) -> int:
        writes.append(arguments)
        if len(writes) == 2:
            raise OSError(errno.ENOSPC, "no space left on the memory disk")
        return write(*arguments)

    monkeypatch.setattr(broker.files, "write_inode", fail_second)
    many.inbox += frame(batch(b"y")) * (bounds.REQUESTS_PER_TURN + 50)
    other.inbox += frame(batch(b"z"), partition=1) * 2
    broker.broker.loop.run_turn(0)
    acknowledged = [each.base_offset for each in produce_responses(many)]
    assert acknowledged == list(range(len(acknowledged)))
    assert 0 < len(acknowledged) <= bounds.REQUESTS_PER_TURN
    assert broker.planned == 0
    again = MemoryBroker(broker.files.killed(), with_kernel=False)
    assert values(again) == [b"y"] * len(acknowledged)


def test_a_damaged_first_batch_fails_only_requests_to_its_partition(broker: MemoryBroker) -> None:
    """The bytes were damaged on the disk, and no timestamp of the segment is in memory, as after a
    restart."""
    stream = broker.connect()
    stream.inbox += frame(batch(b"x"))
    broker.turns()
    segment = broker.log("plain").segments[-1]
    segment.log_file.pwrite(b"\xff" * 61, 0)
    segment.rolling_timestamp_ms = None
    stream.inbox += frame(batch(b"y")) + frame(batch(b"z"), partition=1)
    broker.turns()
    codes = [each.error_code for each in produce_responses(stream)]
    assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR, 0]


def test_a_failed_commit_takes_the_partition_offline_and_acknowledges_nothing(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = broker.connect()

    def fail(*_: object) -> None:
        raise InvariantViolation("for the test")

    monkeypatch.setattr(type(broker.log("plain").segments[-1]), "commit_planned", fail)
    stream.inbox += frame(batch(b"a")) * 2
    broker.turns()
    assert stream.is_closed
    assert not stream.sent
    assert broker.log("plain").is_offline
    with pytest.raises(LogStorageError):
        broker.log("plain").read(0, 1)
    other = broker.connect()
    other.inbox += frame(batch(b"b"), partition=1) + frame(batch(b"b"))
    broker.turns()
    assert other.is_closed or [each.error_code for each in produce_responses(other)][-1] != 0


# -- segments that are old --------------------------------------------------------------------

SEGMENT_MS = 5000  # of the topic `short-lived`
UNTIMED_MS = -1


def bases(broker: MemoryBroker) -> list[int]:
    return [segment.base_offset for segment in broker.log("short-lived").segments]


@pytest.mark.parametrize("all_at_once", [True, False])
@pytest.mark.parametrize(
    ("timestamps_ms", "expected"),
    [
        ([0, 1, SEGMENT_MS, SEGMENT_MS + 1, SEGMENT_MS + 2], [0, 3]),
        ([0, SEGMENT_MS + 1, 2 * SEGMENT_MS + 1, 2 * SEGMENT_MS + 2], [0, 1, 3]),
        ([7, -SEGMENT_MS, SEGMENT_MS + 7, SEGMENT_MS + 8], [0, 3]),
    ],
)
def test_a_plan_ends_a_segment_by_the_first_batchs_timestamp(
    timestamps_ms: list[int], expected: list[int], all_at_once: bool
) -> None:
    found = []
    for with_kernel in (False, True):
        broker = new_broker(with_kernel=with_kernel)
        stream = broker.connect()
        for number, ms in enumerate(timestamps_ms):
            records = batch(b"%d" % number, timestamp_ms=NOW_MS + ms)
            stream.inbox += frame(records, topic="short-lived")
            if not all_at_once and number % 2:
                broker.turns()
        broker.turns()
        offsets = [each.base_offset for each in produce_responses(stream)]
        assert offsets == list(range(len(timestamps_ms)))
        assert bases(broker) == expected
        found.append(broker.state())
    assert broker.planned > 0
    assert found[0] == found[1]


@pytest.mark.parametrize("first_ms", [UNTIMED_MS, NOW_MS])
def test_a_plan_ends_a_segment_without_timestamps_by_the_clock(first_ms: int) -> None:
    found = []
    for with_kernel in (False, True):
        broker = new_broker(with_kernel=with_kernel)
        stream = broker.connect()
        waits_ms = [0, SEGMENT_MS, 1, 0, SEGMENT_MS + 1]
        for number, wait_ms in enumerate(waits_ms):
            broker.clock.advance(wait_ms)
            for _ in range(2):
                records = batch(b"%d" % number, timestamp_ms=UNTIMED_MS if number else first_ms)
                stream.inbox += frame(records, topic="short-lived")
            broker.turns()
        assert [each.base_offset for each in produce_responses(stream)] == list(
            range(2 * len(waits_ms))
        )
        # The segment that the start found is old: its first batch is its only one. Where the first
        # batch has a timestamp, later ones without any are never late.
        assert bases(broker) == ([0, 1, 4, 8] if first_ms == UNTIMED_MS else [0])
        found.append(broker.state())
    assert broker.planned > 0
    assert found[0] == found[1]
