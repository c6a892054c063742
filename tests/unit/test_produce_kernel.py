"""Plans of pipelined Produce: what they take, order, fairness, and a disk that is full."""

import multiprocessing
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from klog_broker.log.errors import LogStorageError
from klog_broker.network import bounds, produce_kernel
from pyspark_klog.errors import ErrorCode, InvariantViolation
from pyspark_klog.protocol.apis.metadata import MetadataRequest
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from pyspark_klog.protocol.headers import RequestHeader, decode_response, encode_request
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.sets import iterate
from tests.support.fake_network import FakeStream
from tests.support.produce_paths import NOW_MS, MemoryBroker, new_broker, topic_ids

VERSION = 9


def batch(*values: bytes, **options: Any) -> bytes:
    builder = BatchBuilder(**options)
    for value in values:
        builder.append(b"key", value, NOW_MS)
    return builder.build()


def frame(
    records: bytes,
    topic: str = "plain",
    partition: int = 0,
    acks: int = 1,
    version: int = VERSION,
    correlation_id: int = 0,
) -> bytes:
    where: Any = {"topic_id": topic_ids()[topic]} if version >= 13 else {"name": topic}
    rows = [PartitionProduceData(index=partition, records=records)]
    topics = [TopicProduceData(**where, partition_data=rows)]
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
    return encode_request(RequestHeader(ApiKey.PRODUCE, version, correlation_id, "c"), request)


def answers(stream: FakeStream, version: int = VERSION) -> list[PartitionProduceResponse]:
    """Takes the answers out of what was sent, all of one partition each."""
    found = []
    sent, position = bytes(stream.sent), 0
    while position < len(sent):
        size = int.from_bytes(sent[position : position + 4], "big")
        response: Any = decode_response(
            sent[position + 4 : position + 4 + size], ApiKey.PRODUCE, version
        )
        found += [each for topic in response.responses for each in topic.partition_responses]
        position += 4 + size
    stream.sent.clear()
    return found


def values(broker: MemoryBroker, topic: str = "plain", partition: int = 0) -> list[bytes | None]:
    log = broker.log(topic, partition)
    found: list[bytes | None] = []
    for segment in log.segments:
        data = segment.log_file.pread(segment.size_bytes, 0)
        records = list(iterate(data))
        assert [each.offset for each in records] == list(
            range(segment.base_offset, segment.base_offset + len(records))
        )
        found += [each.value for each in records]
    return found


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
    assert [each.base_offset for each in answers(stream, version)] == [0, 2, 4, 6, 8]
    assert broker.planned == 5
    assert broker.log("plain").high_watermark == 10


def test_acks_0_is_planned_and_not_answered(broker: MemoryBroker) -> None:
    stream = broker.connect()
    stream.inbox += frame(batch(b"a"), acks=0) + frame(batch(b"b"), acks=0)
    stream.inbox += frame(batch(b"c"), acks=1, correlation_id=3)
    broker.turns()
    assert [each.base_offset for each in answers(stream)] == [2]
    assert values(broker) == [b"a", b"b", b"c"]
    assert broker.planned == 3


def test_the_order_of_a_connection_is_kept_whoever_serves_it(broker: MemoryBroker) -> None:
    stream = broker.connect()
    codecs = [Codec.NONE, Codec.NONE, Codec.LZ4, Codec.NONE, Codec.GZIP, Codec.NONE]
    for number in range(600):
        codec = codecs[number % len(codecs)]
        stream.inbox += frame(batch(b"%d" % number, codec=codec), correlation_id=number)
    broker.turns()
    assert [each.base_offset for each in answers(stream)] == list(range(600))
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
    assert len(answers(stream)) == count + 1
    assert broker.planned > count // 2


def test_many_connections_share_one_plan(broker: MemoryBroker) -> None:
    streams = [broker.connect() for _ in range(50)]
    for number, stream in enumerate(streams):
        for partition in (0, 1):
            stream.inbox += frame(batch(b"%d" % number), partition=partition)
    broker.turns()
    assert [[each.base_offset for each in answers(stream)] for stream in streams] == [
        [number, number] for number in range(50)
    ]
    assert broker.planned == 100


def test_a_partition_asked_for_by_name_and_by_id_in_one_turn(broker: MemoryBroker) -> None:
    by_name, by_id = broker.connect(), broker.connect()
    for _ in range(3):
        by_name.inbox += frame(batch(b"name"))
        by_id.inbox += frame(batch(b"id"), version=13)
    broker.turns()
    offsets = [each.base_offset for each in answers(by_name) + answers(by_id, 13)]
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
    offsets = [each.base_offset for stream in streams for each in answers(stream)]
    assert sorted(offsets) == list(range(each_sends * len(streams)))
    assert broker.planned == each_sends * len(streams)


def test_no_connection_gets_more_than_its_share_of_a_turn(broker: MemoryBroker) -> None:
    greedy, modest = broker.connect(), broker.connect()
    data = frame(batch(b"v" * 200))
    greedy.inbox += data * (4 * bounds.RECEIVE_BYTES // len(data))
    modest.inbox += data
    broker.broker.loop.run_turn(0)
    assert len(answers(modest)) == 1
    assert 0 < len(answers(greedy)) <= bounds.RECEIVE_BYTES // len(data)


def test_more_names_than_there_are_slots(broker: MemoryBroker) -> None:
    stream = broker.connect()
    count = produce_kernel.MAX_SLOTS + 20
    for number in range(count):
        stream.inbox += frame(batch(b"v"), topic=f"unknown-{number}")
        broker.turns()
    codes = {each.error_code for each in answers(stream)}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    stream.inbox += frame(batch(b"v")) * 3
    broker.turns()
    assert [each.base_offset for each in answers(stream)] == [0, 1, 2]
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
    found = [(each.error_code, each.base_offset) for each in answers(stream)]
    gap = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert found == [(0, 0), (0, 1), (0, 2), (0, 2), (0, 3), (gap, -1), (0, 4)]
    assert values(broker) == [b"0", b"1", b"2", b"3", b"4"]


def test_the_window_of_five_holds_what_a_plan_appended(broker: MemoryBroker) -> None:
    stream = broker.connect()
    stream.inbox += sequenced(range(20))
    broker.turns()
    assert broker.planned == 20
    answers(stream)
    stream.inbox += sequenced([15, 16, 17, 18, 19, 14])
    broker.turns()
    found = [(each.error_code, each.base_offset) for each in answers(stream)]
    assert found[:5] == [(0, 15), (0, 16), (0, 17), (0, 18), (0, 19)]
    assert found[5][0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_around(broker: MemoryBroker) -> None:
    stream = broker.connect()
    last = 2**31 - 1
    stream.inbox += sequenced([last - 1, last, 0, 1])
    broker.turns()
    assert [each.base_offset for each in answers(stream)] == [0, 1, 2, 3]
    assert broker.planned == 4


def write_as_many_producers() -> None:
    """More producers in each turn than one plan has room for, others in each."""
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
        assert {answer.error_code for stream in streams for answer in answers(stream)} == {0}
    assert broker.log("plain").log_end_offset == len(streams) * turns * each


def test_producers_of_earlier_plans_leave_room() -> None:
    """In a process of its own: a kernel that does not come back could not be interrupted."""
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
        codes = [(each.error_code, each.base_offset) for each in answers(stream)]
        full = (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert codes == [(0, 0), full, full, full, full, (0, 1), (0, 2)]
        found.append(broker.state())
    assert found[0] == found[1]


def test_a_write_that_fails_takes_back_the_others() -> None:
    """Two partitions in one turn, room for one: what fits is appended as without the kernel."""
    found = []
    for with_kernel in (False, True):
        broker = new_broker(with_kernel=with_kernel)
        stream = broker.connect()
        stream.inbox += frame(batch(b"x")) + frame(batch(b"x"), partition=1)
        broker.turns()
        answers(stream)
        broker.files.free_bytes = len(batch(b"y" * 50)) + 10
        stream.inbox += frame(batch(b"y" * 50)) + frame(batch(b"z" * 50), partition=1)
        broker.turns()
        codes = [each.error_code for each in answers(stream)]
        assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR]
        broker.files.free_bytes = None
        assert values(broker) == [b"x", b"y" * 50]
        assert values(broker, partition=1) == [b"x"]
        found.append(broker.state())
    assert found[0] == found[1]


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
    assert other.is_closed or [each.error_code for each in answers(other)][-1] != 0
