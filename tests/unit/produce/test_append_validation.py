"""Produce that exceeds the loop's share: validated in a helper, in order, within bounds."""

from typing import Any

import pytest

from klog_broker.log.validation.loop_share import BATCH_WORK_BYTES, TURN_WORK_BYTES
from klog_broker.produce.append_validation import BATCHES_AT_ONCE
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.legacy_builder import LegacyBuilder
from tests.support.api.produce_frames import batch, frame, produce_responses, values
from tests.support.cluster.broker import NOW_MS, MemoryBroker, new_broker
from tests.support.runtime.fake_network import FakeStream

LARGE = bytes(BATCH_WORK_BYTES + 1)


@pytest.fixture
def broker() -> MemoryBroker:
    broker = new_broker(with_kernel=True)
    broker.helpers.is_held = True
    return broker


def let_one_run(broker: MemoryBroker) -> None:
    broker.helpers.run_one()
    broker.turns()


def let_all_run(broker: MemoryBroker) -> None:
    while broker.helpers.waiting:
        let_one_run(broker)


def large(tag: bytes = b"", codec: Codec = Codec.GZIP, **options: Any) -> bytes:
    """A batch of some hundred bytes that inflates to more than the loop validates itself."""
    return batch(LARGE + tag, codec=codec, **options)


def tags(broker: MemoryBroker, topic: str = "plain", partition: int = 0) -> list[bytes]:
    found = values(broker, topic, partition)
    return [(value or b"").strip(b"\0") for value in found]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_other_connections_are_answered_meanwhile(broker: MemoryBroker, codec: Codec) -> None:
    hostile, other = broker.connect(), broker.connect()
    hostile.inbox += frame(large(b"late", codec))
    broker.turns()
    for number in range(3):
        other.inbox += frame(batch(b"%d" % number))
        broker.turns()
    assert [each.base_offset for each in produce_responses(other)] == [0, 1, 2]
    assert produce_responses(hostile) == []
    let_all_run(broker)
    assert [each.base_offset for each in produce_responses(hostile)] == [3]
    assert tags(broker) == [b"0", b"1", b"2", b"late"]


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_what_a_connection_sends_later_does_not_overtake(broker: MemoryBroker, acks: int) -> None:
    stream = broker.connect()
    for start in (0, 4):
        for number in range(start, start + 4):
            tag = b"%d" % number
            records = large(tag) if number % 2 == 0 else batch(tag)
            stream.inbox += frame(records, acks=acks, correlation_id=number)
        # The second half comes in another turn, while the first one is held.
        broker.turns()
    assert tags(broker) == []
    let_all_run(broker)
    assert tags(broker) == [b"%d" % number for number in range(8)]
    offsets = [each.base_offset for each in produce_responses(stream)]
    assert offsets == ([] if acks == 0 else list(range(8)))


def test_sequences_are_checked_in_the_order_in_which_they_were_sent(broker: MemoryBroker) -> None:
    stream = broker.connect()
    for number in range(7):
        fields = {"producer_id": 5, "producer_epoch": 0, "base_sequence": number}
        tag = b"%d" % number
        stream.inbox += frame(large(tag, **fields) if number % 3 == 0 else batch(tag, **fields))
    stream.inbox += frame(large(b"6", producer_id=5, producer_epoch=0, base_sequence=6))
    broker.turns()
    let_all_run(broker)
    # The last request is a duplicate, which gets the response of the first one.
    assert [(each.error_code, each.base_offset) for each in produce_responses(stream)] == [
        *((0, number) for number in range(7)),
        (0, 6),
    ]
    assert tags(broker) == [b"%d" % number for number in range(7)]


def damaged() -> bytes:
    """Right in its header and CRC; its gzip is cut off far behind what the loop inflates."""
    whole = large()
    cut = bytearray(whole[:-4])
    cut[at.BATCH_LENGTH_AT : at.LEADER_EPOCH_AT] = (len(cut) - 12).to_bytes(4, "big")
    BatchView(cut).update_crc()
    return bytes(cut)


def test_a_fault_that_a_helper_finds_is_answered_in_its_place(broker: MemoryBroker) -> None:
    broker.clock.advance(5_000)
    stream = broker.connect()
    stream.inbox += frame(large(b"a")) + frame(damaged()) + frame(batch(b"b"))
    stream.inbox += frame(large(), topic="bounded-time") + frame(large(b"c"))
    broker.turns()
    let_all_run(broker)
    assert [each.error_code for each in produce_responses(stream)] == [
        *(ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE),
        *(ErrorCode.INVALID_TIMESTAMP, ErrorCode.NONE),
    ]
    assert tags(broker) == [b"a", b"b", b"c"]


def test_acks_0_with_a_fault_closes_the_connection(broker: MemoryBroker) -> None:
    stream = broker.connect()
    broker.clock.advance(5_000)
    stream.inbox += frame(large(), topic="bounded-time", acks=0)
    broker.turns()
    assert not stream.is_closed
    let_all_run(broker)
    assert stream.is_closed


def test_a_topic_that_is_deleted_meanwhile_is_answered(broker: MemoryBroker) -> None:
    stream = broker.connect()
    stream.inbox += frame(large())
    broker.turns()
    work = broker.helpers.waiting.popleft()
    broker.helpers.is_held = False
    broker.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="plain")], timeout_ms=1000), 6)
    broker.helpers.waiting.append(work)
    let_all_run(broker)
    codes = [each.error_code for each in produce_responses(stream)]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("acks", [0, 1])
def test_a_connection_that_goes_meanwhile_has_its_batch_appended(
    broker: MemoryBroker, acks: int
) -> None:
    stream, other = broker.connect(), broker.connect()
    stream.inbox += frame(large(b"sent"), acks=acks)
    broker.turns()
    stream.is_broken = True
    stream.inbox += b"x"
    broker.turns()
    assert stream.is_closed
    let_all_run(broker)
    assert tags(broker) == [b"sent"]
    other.inbox += frame(batch(b"next"))
    broker.turns()
    assert [each.base_offset for each in produce_responses(other)] == [1]


def test_the_receive_buffer_is_used_again_and_the_held_bytes_are_not_touched(
    broker: MemoryBroker,
) -> None:
    held, other = broker.connect(), broker.connect()
    held.inbox += frame(large(b"held"))
    broker.turns()
    for _ in range(5):
        other.inbox += b"".join(frame(batch(b"x" * 900)) for _ in range(100))
        broker.turns()
    let_all_run(broker)
    assert [each.error_code for each in produce_responses(held)] == [0]
    assert tags(broker)[-1] == b"held"


def test_a_held_frame_with_a_buffer_of_its_own_keeps_it(broker: MemoryBroker) -> None:
    stream = broker.connect()
    noise = bytes((number * number >> 7) & 0xFF for number in range(300_000))
    stream.inbox += frame(batch(noise, codec=Codec.SNAPPY))
    broker.turns()
    for _ in range(3):
        broker.broker.loop.run_turn(0)
    assert len(broker.helpers.waiting) == 1
    lent_bytes = broker.broker.server.memory.buffers.lent_bytes
    assert lent_bytes > 0
    let_all_run(broker)
    assert broker.broker.server.memory.buffers.lent_bytes == 0
    assert values(broker) == [noise]


def test_few_batches_are_worked_on_at_once_and_connections_take_turns(
    broker: MemoryBroker,
) -> None:
    greedy, modest = broker.connect(), broker.connect()
    for number in range(5):
        greedy.inbox += frame(large(b"g%d" % number))
    broker.turns()
    modest.inbox += frame(large(b"m"))
    more = [broker.connect() for _ in range(3)]
    for number, stream in enumerate(more):
        stream.inbox += frame(large(b"%d" % number))
    broker.turns()
    assert len(broker.helpers.waiting) == BATCHES_AT_ONCE == 2
    let_one_run(broker)
    let_one_run(broker)
    assert tags(broker) == [b"g0", b"m"]
    assert len(broker.helpers.waiting) == BATCHES_AT_ONCE
    let_all_run(broker)
    assert sorted(tags(broker)) == sorted(
        [b"g0", b"g1", b"g2", b"g3", b"g4", b"m", b"0", b"1", b"2"]
    )


def test_a_connection_is_read_no_further_than_its_share_while_something_is_held(
    broker: MemoryBroker,
) -> None:
    stream = broker.connect()
    stream.inbox += frame(large())
    broker.turns()
    stream.inbox += b"".join(frame(batch(bytes(10_000))) for _ in range(100))
    broker.turns()
    assert len(stream.inbox) > 800_000
    let_all_run(broker)
    assert len(produce_responses(stream)) == 101


def test_many_small_ones_in_a_turn_have_a_bound_together(broker: MemoryBroker) -> None:
    stream = broker.connect()
    one = batch(bytes(BATCH_WORK_BYTES - 1_000), codec=Codec.GZIP)
    count = TURN_WORK_BYTES // (BATCH_WORK_BYTES - 1_000) + 5
    stream.inbox += b"".join(frame(one) for _ in range(count))
    broker.turns()
    assert 0 < len(values(broker)) < count
    assert len(broker.helpers.waiting) == 1
    let_all_run(broker)
    assert len(produce_responses(stream)) == len(values(broker)) == count


def legacy(count: int, codec: Codec = Codec.NONE) -> bytes:
    builder = LegacyBuilder(1, 0, codec)
    for number in range(count):
        builder.append(b"%d" % number, None, NOW_MS)
    return builder.build()


def old_frame(records: bytes) -> bytes:
    rows = [PartitionProduceData(index=0, records=records)]
    topics = [TopicProduceData(name="plain", partition_data=rows)]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
    return encode_request(RequestHeader(ApiKey.PRODUCE, 2, 0, "c"), request)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_large_sets_of_old_messages_are_held_too(broker: MemoryBroker, codec: Codec) -> None:
    stream = broker.connect()
    stream.inbox += old_frame(legacy(3)) + old_frame(legacy(20_000, codec)) + old_frame(legacy(1))
    broker.turns()
    is_held = codec is not Codec.NONE
    assert len(broker.helpers.waiting) == is_held
    let_all_run(broker)
    assert [each.base_offset for each in produce_responses(stream, 2)] == [0, 3, 20_003]


def test_batches_that_have_to_be_compressed_go_to_a_helper_sooner(broker: MemoryBroker) -> None:
    stream = broker.connect()
    for size_bytes in (10_000, 60_000):
        stream.inbox += frame(batch(bytes(size_bytes)), topic="stored-as-lz4")
    broker.turns()
    assert len(values(broker, "stored-as-lz4")) == 1
    let_all_run(broker)
    assert [len(value or b"") for value in values(broker, "stored-as-lz4")] == [10_000, 60_000]


def test_append_times_do_not_go_back(broker: MemoryBroker) -> None:
    held, other = broker.connect(), broker.connect()
    held.inbox += frame(large(b"held"), topic="append-time")
    broker.turns()
    broker.clock.advance(1_000)
    other.inbox += frame(batch(b"x"), topic="append-time")
    broker.turns()
    broker.clock.advance(1_000)
    let_all_run(broker)
    times = [
        each.log_append_time_ms for stream in (other, held) for each in produce_responses(stream)
    ]
    assert times == [NOW_MS + 1_000, NOW_MS + 2_000]
    assert tags(broker, "append-time") == [b"x", b"held"]


def test_a_broker_that_stops_meanwhile_closes_in_good_order(broker: MemoryBroker) -> None:
    stream: FakeStream = broker.connect()
    stream.inbox += frame(large(b"sent")) + frame(large(b"dropped"))
    broker.turns()
    broker.close()
    assert stream.is_closed
