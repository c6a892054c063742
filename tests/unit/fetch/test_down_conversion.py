"""Fetch before version 4: converted in a helper, one response at a time, within bounds."""

from dataclasses import replace
from typing import Any

import pytest

from klog_broker.fetch import down_conversion, reader
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import LeaderEpoch
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest
from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from pyspark_klog.protocol.apis.metadata import MetadataRequest
from pyspark_klog.protocol.headers import RequestHeader, decode_response, encode_request
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.record import Record
from tests.support.cluster.broker import NOW_MS, MemoryBroker, new_broker
from tests.support.compaction.cleaned_batches import CleanedBatch
from tests.support.raw_requests import produce_request
from tests.support.records.record_sets import iterate
from tests.support.runtime.fake_network import FakeStream

VERSION = 2


@pytest.fixture
def broker() -> MemoryBroker:
    return new_broker(with_kernel=False)


def batch(*values: bytes, codec: Codec = Codec.GZIP) -> bytes:
    builder = BatchBuilder(codec=codec)
    for value in values:
        builder.append(None, value, NOW_MS)
    return builder.build()


def append(broker: MemoryBroker, data: bytes, partition: int = 0) -> None:
    log = broker.log("plain", partition)
    log.append_as_leader(data, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)


def request(*partitions: int, offset: int = 0, max_bytes: int = 1 << 20) -> FetchRequest:
    rows = [
        FetchPartition(partition=each, fetch_offset=offset, partition_max_bytes=max_bytes)
        for each in partitions or (0,)
    ]
    return FetchRequest(replica_id=-1, topics=[FetchTopic(topic="plain", partitions=rows)])


def fetched_partitions(stream: FakeStream) -> list[PartitionData]:
    response: Any = decode_response(bytes(stream.sent[4:]), ApiKey.FETCH, VERSION)
    return list(response.responses[0].partitions)


def fetch(broker: MemoryBroker, *partitions: int, **options: int) -> list[PartitionData]:
    return fetched_partitions(broker.send(request(*partitions, **options), VERSION))


def records(answer: PartitionData) -> list[Record]:
    assert answer.error_code == 0
    assert isinstance(answer.records, bytes | memoryview)
    return list(iterate(answer.records, allow_partial=True))


def values(answer: PartitionData) -> list[bytes | None]:
    return [record.value for record in records(answer)]


def settle(broker: MemoryBroker) -> None:
    """Some turns more, in which sockets take what they did not take before."""
    for _ in range(5):
        broker.broker.loop.run_turn(0)


# --- in a helper thread --------------------------------------------------------------------------
def test_others_are_served_while_a_response_is_converted(broker: MemoryBroker) -> None:
    append(broker, batch(b"a", b"b"))
    broker.helpers.is_held = True
    stream = broker.send(request(), VERSION)
    metadata = encode_request(RequestHeader(ApiKey.METADATA, 1, 9, "c"), MetadataRequest(topics=[]))
    stream.inbox += metadata
    broker.turns()
    assert not stream.sent
    assert broker.send(MetadataRequest(topics=[]), 1).sent
    broker.helpers.release()
    broker.turns()
    # In the order of the requests, on one connection.
    size = 4 + int.from_bytes(stream.sent[:4], "big")
    assert int.from_bytes(stream.sent[size + 4 : size + 8], "big") == 9
    del stream.sent[size:]
    assert values(fetched_partitions(stream)[0]) == [b"a", b"b"]


def test_a_client_that_leaves_meanwhile_is_not_answered(broker: MemoryBroker) -> None:
    append(broker, batch(b"a"))
    broker.helpers.is_held = True
    streams = [broker.send(request(), VERSION) for _ in range(3)]
    assert len(broker.helpers.waiting) == 1
    for stream in streams[:2]:
        stream.is_at_end = True
    broker.turns()
    assert [each.is_closed for each in streams] == [True, True, False]
    broker.helpers.release()
    broker.turns()
    assert [bool(each.sent) for each in streams] == [False, False, True]
    assert broker.broker.services.requests.bugs.total == 0
    assert values(fetch(broker)[0]) == [b"a"]


def test_a_topic_that_goes_meanwhile_was_read_before(broker: MemoryBroker) -> None:
    append(broker, batch(b"a"))
    broker.helpers.is_held = True
    stream = broker.send(request(), VERSION)
    deleted = broker.send(DeleteTopicsRequest(topic_names=["plain"], timeout_ms=1000), 4)
    broker.helpers.release()
    broker.turns()
    assert values(fetched_partitions(stream)[0]) == [b"a"]
    assert deleted.sent
    assert fetch(broker)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.broker.services.requests.bugs.total == 0


def test_a_disk_that_fails_meanwhile(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    append(broker, batch(b"a"))
    broker.helpers.is_held = True
    stream = broker.send(request(), VERSION)

    def fails(*_: int) -> bytes:
        raise OSError("the disk fails")

    file = broker.log("plain").segments[0].log_file
    with monkeypatch.context() as patch:
        patch.setattr(type(file), "pread", fails)
        broker.helpers.release()
        broker.turns()
    assert fetched_partitions(stream)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert values(fetch(broker)[0]) == [b"a"]


# --- bounds --------------------------------------------------------------------------------------
def test_the_whole_response_has_one_bound(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down_conversion, "RESPONSE_WORK_BYTES", 100_000)
    for partition in range(3):
        for _ in range(4):
            append(broker, batch(bytes(30_000)), partition)
    # Every partition gets its turn: each response begins with another partition.
    first, second, third = (fetch(broker, 0, 1, 2) for _ in range(3))
    counts = [[len(records(each)) for each in one] for one in (first, second, third)]
    assert counts == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    # The remaining records come with the fetches that follow.
    offsets = []
    while len(offsets) < 4:
        offsets += [each.offset for each in records(fetch(broker, offset=len(offsets))[0])]
    assert offsets == [0, 1, 2, 3]


def test_one_batch_comes_however_large(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down_conversion, "RESPONSE_WORK_BYTES", 1000)
    append(broker, batch(*[b""] * 5000))
    append(broker, batch(b"next"))
    assert len(records(fetch(broker)[0])) == 5000
    assert values(fetch(broker, offset=5000)[0]) == [b"next"]


# --- what old formats do not know ----------------------------------------------------------------
def append_emptied(broker: MemoryBroker, *base_offsets: int) -> None:
    """Append batches of one record each, emptied as the log cleaner empties them."""
    for base_offset in base_offsets:
        emptied = CleanedBatch(base_offset, 1, [], producer_id=7)
        broker.log("plain").append_as_follower(
            memoryview(bytearray(emptied.build())), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS
        )


def test_emptied_batches_are_passed_over(broker: MemoryBroker) -> None:
    """A fetch that read emptied batches alone would return nothing, and the client would stay."""
    append(broker, batch(b"first"))
    append_emptied(broker, 1, 2)
    broker.log("plain").roll(NOW_MS)
    append_emptied(broker, 3)
    append(broker, batch(b"last"))
    size = len(batch(b"last"))
    assert values(fetch(broker, offset=1, max_bytes=size)[0]) == [b"last"]
    assert values(fetch(broker, offset=3, max_bytes=size)[0]) == [b"last"]
    assert values(fetch(broker, offset=0)[0]) == [b"first"]


def test_no_more_headers_are_looked_at_than_allowed(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_HEADERS", 2)
    append_emptied(broker, 0, 1, 2, 3)
    append(broker, batch(b"last"))
    size = len(batch(b"last"))
    # If no converted record is left, the response has the head of a larger message.
    assert records(fetch(broker, max_bytes=size)[0]) == []
    assert values(fetch(broker, offset=3, max_bytes=size)[0]) == [b"last"]


def test_behind_the_last_record_a_fetch_waits(broker: MemoryBroker) -> None:
    append(broker, batch(b"first"))
    append_emptied(broker, 1, 2)
    log = broker.log("plain")
    log.set_high_watermark(log.log_end_offset)
    waiting = request(offset=1)
    waiting.min_bytes, waiting.max_wait_ms = 1, 1000
    stream = broker.send(waiting, VERSION)
    assert not stream.sent
    broker.call(produce_request("plain", batch(b"last")), 9)
    assert values(fetched_partitions(stream)[0]) == [b"last"]


def test_a_set_is_about_as_large_as_what_was_asked_for(broker: MemoryBroker) -> None:
    """Messages of v1 take 27 bytes more than records; Kafka, too, sends no more than it read."""
    for _ in range(100):
        append(broker, batch(*[b""] * 20, codec=Codec.NONE))
    size = len(batch(*[b""] * 20, codec=Codec.NONE))
    (answer,) = fetch(broker, max_bytes=50 * size)
    found = records(answer)
    assert [record.offset for record in found] == list(range(len(found)))
    assert answer.records is not None
    assert 50 * size <= len(answer.records) < 50 * size + 20 * 34


def test_responses_are_converted_one_after_the_other(broker: MemoryBroker) -> None:
    append(broker, batch(b"a"))
    broker.helpers.is_held = True
    streams = [broker.send(request(), VERSION) for _ in range(5)]
    assert len(broker.helpers.waiting) == 1
    broker.helpers.release()
    broker.turns()
    assert [values(fetched_partitions(each)[0]) for each in streams] == [[b"a"]] * 5


def test_what_is_not_read_holds_up_further_conversions(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down_conversion, "UNSENT_BYTES", 10_000)
    append(broker, batch(bytes(20_000), codec=Codec.NONE))
    slow, other, leaving = (broker.connect() for _ in range(3))
    slow.room_bytes = leaving.room_bytes = 100
    for stream in (slow, other, leaving):
        stream.inbox += encode_request(RequestHeader(ApiKey.FETCH, VERSION, 1, "c"), request())
        broker.turns()
    conversions = broker.broker.services.conversions
    assert 20_000 <= conversions.unsent_bytes <= 30_000
    assert (len(slow.sent), len(other.sent)) == (100, 0)
    slow.room_bytes = 1 << 20
    settle(broker)
    assert [len(values(fetched_partitions(each)[0])) for each in (slow, other)] == [1, 1]
    # The third one has its turn, and holds its set until it is gone.
    assert 20_000 <= conversions.unsent_bytes <= 30_000
    leaving.is_broken = True
    settle(broker)
    assert conversions.unsent_bytes == 0


def test_a_batch_that_would_be_too_large_is_refused(broker: MemoryBroker) -> None:
    append(broker, batch(b"first"))
    append(broker, batch(bytes(1 << 20)))
    log = broker.log("plain")
    log.update_config(replace(log.config, max_decompressed_bytes=1 << 19))
    assert values(fetch(broker)[0]) == [b"first"]
    assert fetch(broker, offset=1)[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
