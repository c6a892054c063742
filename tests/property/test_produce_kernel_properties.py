"""One byte stream through both ways of Produce: answers, files and state are the same."""

import random
import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klog_broker.log.errors import InvalidProducerEpoch
from pyspark_klog.protocol.apis.api_versions import ApiVersionsRequest
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from tests.support.cluster.broker import NOW_MS, TOPICS, MemoryBroker, new_broker, topic_ids
from tests.support.log.transactional_log import append_end_marker

CLIENT_IDS = [None, "", "librdkafka", "café", "x" * 300]
_RARE = ("compacted", "append-time", "stored-as-lz4", "two-in-sync", "flushed", "missing")
_USUAL = tuple(name for name in TOPICS if name not in _RARE)

# No fault; each of the others has a number.
_NONE = 99


class Producer:
    """Sequences as a client keeps them, by partition."""

    def __init__(self) -> None:
        self.next: dict[tuple[int, str, int], int] = {}
        self.last: dict[tuple[int, str, int], bytes] = {}


@st.composite
def batches(draw: Any, producer: Producer, topic: str, partition: int, owner: int | None) -> bytes:
    """Mostly a good batch; with an ``owner`` of that producer's transaction."""
    producer_id = draw(st.sampled_from([-1, -1, 5, 6])) if owner is None else owner
    key = (producer_id, topic, partition)
    fault = draw(st.sampled_from([_NONE] * 60 + list(range(1, 18))))
    if producer_id >= 0 and key in producer.last and fault == 1:
        return producer.last[key]
    codec = Codec.LZ4 if fault == 2 else Codec.NONE
    sequence = producer.next.get(key, draw(st.sampled_from([0, 0, 7, 2**31 - 3])))
    if fault == 3:
        sequence += 2
    builder = BatchBuilder(
        codec=codec,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else int(fault == 4),
        base_sequence=-1 if producer_id < 0 else sequence & at.INT32_MAX,
        is_transactional=(owner is not None) != (fault == 5),
        is_control=False,
    )
    count = draw(st.integers(1, 4))
    for number in range(count):
        text = draw(st.sampled_from([b"k", b"", None if fault in (6, 7) else b"key"]))
        headers = (("h", b"v"), ("ä", None)) if draw(st.booleans()) else ()
        timestamp_ms = NOW_MS + draw(
            st.sampled_from([0, 1, 500, -400, 20_000 if fault == 8 else 3, -NOW_MS - 1])
        )
        value = bytes([number]) * draw(st.sampled_from([0, 3, 40, 150]))
        builder.append(text, value, timestamp_ms, headers)
    data = bytearray(builder.build())
    view = BatchView(data)
    if fault == 9:
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    elif fault == 10:
        place = draw(st.integers(at.CRC_START_AT, len(data) - 1))
        data[place] = draw(st.integers(0, 255))
        if len(data) > at.BATCH_HEADER_BYTES:
            view.update_crc()
    elif fault == 11:
        view.set_base_offset(3)
    elif fault == 12:
        struct.pack_into(">q", data, at.MAX_TIMESTAMP_AT, NOW_MS + 999)
        view.update_crc()
    elif fault == 13:
        data = data + data
    elif fault == 14:
        data = data + b"\0\0\0"
    elif fault == 15:
        data = data[: -draw(st.integers(1, len(data)))]
    elif fault == 16:
        struct.pack_into(">h", data, at.ATTRIBUTES_AT, draw(st.sampled_from([8, 0x20, 0x40, 128])))
        view.update_crc()
    elif fault == 17:
        data[at.MAGIC_AT] = draw(st.sampled_from([0, 1, 3]))
    elif producer_id >= 0:
        producer.next[key] = (sequence + count) & at.INT32_MAX
        producer.last[key] = bytes(data)
    return bytes(data)


@st.composite
def requests(draw: Any, producer: Producer, correlation_id: int) -> bytes:
    """Mostly a good Produce request."""
    fault = draw(st.sampled_from([_NONE] * 60 + list(range(8))))
    client_id = draw(st.sampled_from(CLIENT_IDS))
    if fault == 0:
        return encode_request(
            RequestHeader(ApiKey.API_VERSIONS, 0, correlation_id, client_id), ApiVersionsRequest()
        )
    if fault == 1:
        rows = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
        ask: Request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name="plain", partitions=rows)]
        )
        return encode_request(RequestHeader(ApiKey.LIST_OFFSETS, 5, correlation_id, None), ask)
    version = draw(st.integers(3, 13))
    # Producers 8 and 9 write in transactions.
    owner = draw(st.sampled_from([None, None, 8, 8, 9]))
    topics = []
    for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
        names = _RARE if draw(st.integers(0, 9)) == 0 else _USUAL
        name = draw(st.sampled_from(names))
        rows = []
        for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
            partition = draw(st.integers(0, 3 if fault == 2 else TOPICS.get(name, (1,))[0] - 1))
            if owner is not None and draw(st.integers(0, 30)) == 0:
                owner = 9
            data = draw(batches(producer, name, partition, owner))
            rows.append(PartitionProduceData(index=partition, records=data))
        where: dict[str, Any] = {"name": name}
        if version >= 13:
            where = {"topic_id": topic_ids().get(name, next(iter(topic_ids().values())))}
        topics.append(TopicProduceData(**where, partition_data=rows))
    request = ProduceRequest(
        transactional_id=(
            draw(st.sampled_from(["t", "", "é", "x" * 200]))
            if (owner is not None) != (fault == 3)
            else None
        ),
        acks=draw(st.sampled_from([0, 1, -1, 1, -1, 2 if fault == 4 else 0])),
        timeout_ms=1000,
        topic_data=topics,
    )
    header = RequestHeader(ApiKey.PRODUCE, version, correlation_id, client_id)
    data = bytearray(encode_request(header, request))
    if fault == 5:
        data[draw(st.integers(4, len(data) - 1))] = draw(st.integers(0, 255))
    elif fault == 6:
        cut = draw(st.integers(1, min(40, len(data) - 12)))
        del data[-cut:]
        struct.pack_into(">i", data, 0, len(data) - 4)
    elif fault == 7:
        data += b"\0" * draw(st.integers(1, 3))
        struct.pack_into(">i", data, 0, len(data) - 4)
    return bytes(data)


@st.composite
def streams(draw: Any) -> list[tuple[int, bytes, int, list[int]]]:
    """Steps: which connection, what it sends, how long later the next step is, and whose
    transactions end then."""
    producer = Producer()
    steps = []
    correlation_id = 0
    for _ in range(draw(st.integers(1, 5))):
        sent = b""
        for _ in range(draw(st.integers(1, 12))):
            sent += draw(requests(producer, correlation_id))
            correlation_id += 1
        ends = draw(st.lists(st.sampled_from([8, 9]), max_size=2))
        steps.append((draw(st.integers(0, 1)), sent, draw(st.sampled_from([0, 1, 3000])), ends))
    return steps


def verified(*_: Any, done: Any, **__: Any) -> None:
    """A coordinator that verifies every partition."""
    done({})


def run(
    broker: MemoryBroker, steps: list[tuple[int, bytes, int, list[int]]], piece: int
) -> dict[str, Any]:
    broker.broker.services.verify_transactions = verified
    connections = [broker.connect(), broker.connect()]
    for number, sent, pause_ms, ends in steps:
        connection = connections[number]
        for start in range(0, len(sent), piece):
            if connection.is_closed:
                connection = connections[number] = broker.connect()
                break
            connection.inbox += sent[start : start + piece]
            broker.turns()
        for producer_id in ends:
            for partition in range(2):
                # A batch with a byte changed may have raised the epoch.
                with suppress(InvalidProducerEpoch):
                    append_end_marker(
                        broker.log("plain", partition), producer_id, commit=partition == 0
                    )
        broker.clock.advance(pause_ms)
        broker.turns()
    state = broker.state()
    broker.close()
    state["closed files"] = broker.stored_files()
    return state


def compare(one: dict[str, Any], other: dict[str, Any]) -> None:
    for what, found in one.items():
        assert found == other[what], what


@settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
@given(steps=streams(), piece=st.sampled_from([1 << 20, 1 << 20, 700, 64]), at_once=st.booleans())
def test_both_ways_come_to_the_same(
    steps: list[tuple[int, bytes, int, list[int]]], piece: int, at_once: bool
) -> None:
    generic = run(new_broker(with_kernel=False), steps, piece)
    kernel = run(new_broker(with_kernel=True, at_once=at_once), steps, piece)
    compare(generic, kernel)


def good_frame(version: int, sequence: int, transactional_id: str | None) -> bytes:
    builder = BatchBuilder(
        producer_id=9,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=transactional_id is not None,
    )
    builder.append(b"k", b"v" * 9, NOW_MS, (("h", b"x"),))
    where: Any = {"topic_id": topic_ids()["plain"]} if version >= 13 else {"name": "plain"}
    rows = [PartitionProduceData(index=1, records=builder.build())]
    topics = [TopicProduceData(**where, partition_data=rows)]
    request = ProduceRequest(
        transactional_id=transactional_id, acks=1, timeout_ms=5, topic_data=topics
    )
    return encode_request(RequestHeader(ApiKey.PRODUCE, version, sequence, "c"), request)


@pytest.mark.parametrize("transactional_id", [None, "té"])
@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_mutated_frames_come_to_the_same(version: int, transactional_id: str | None) -> None:
    """Each byte of a good request changed, one at a time, with good ones before and behind it."""
    dice = random.Random(version)
    pair = [new_broker(with_kernel=False), new_broker(with_kernel=True)]
    for broker in pair:
        broker.broker.services.verify_transactions = verified
    sequence = 0
    length = len(good_frame(version, 0, transactional_id))
    for place in range(4, length):
        changed = bytearray(good_frame(version, sequence + 1, transactional_id))
        changed[place] = dice.choice([changed[place] ^ 1 << dice.randrange(8), dice.randrange(256)])
        sent = good_frame(version, sequence, transactional_id) + changed
        sent += good_frame(version, sequence + 1, transactional_id)
        sent += good_frame(version, sequence + 2, transactional_id)
        for broker in pair:
            stream = broker.connect()
            stream.inbox += sent
            broker.turns()
            stream.is_at_end = True
            broker.turns()
        entry = pair[0].log("plain", 1).producer(9)
        sequence = entry.last_sequence + 1
    compare(pair[0].state(), pair[1].state())
    assert pair[1].planned > length
