"""DeleteRecords: the log start that a client asks for, its errors, and what is left on the disk."""

from dataclasses import replace
from typing import Any

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pyspark_klog.protocol.apis.fetch import FetchRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from tests.support.cluster.broker import MemoryBroker, answer_of, new_broker
from tests.support.raw_requests import batch, fetch_request, produce_request

RETENTION_MS = 300_000
CHECKPOINT_MS = 60_000
EARLIEST = -2


@pytest.fixture
def broker() -> MemoryBroker:
    return new_broker(with_kernel=False)


def fill(broker: MemoryBroker, topic: str, batches: int, *, partition: int = 0) -> None:
    """Batches of three records, 180 bytes and more each."""
    for _ in range(batches):
        records = batch(b"x" * 40, b"y" * 40, b"z" * 40)
        answer = broker.call(produce_request(topic, records, partition), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer


def delete(
    broker: MemoryBroker, *rows: tuple[str, int, int], version: int = 2
) -> list[tuple[str, int, int, str]]:
    """Topic, partition, low watermark, name of the error; ``rows`` are topic, partition, offset."""
    topics = [
        DeleteRecordsTopic(
            name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)]
        )
        for topic, index, offset in rows
    ]
    answer = broker.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000), version)
    return [
        (topic.name, each.partition_index, each.low_watermark, ErrorCode(each.error_code).name)
        for topic in answer.topics
        for each in topic.partitions
    ]


def pass_time(broker: MemoryBroker, ms: int) -> None:
    """Pass time, and run a turn for each log, since retention looks at one log a turn."""
    broker.clock.advance(ms)
    for _ in range(50):
        broker.broker.loop.run_turn(0)
        broker.clock.advance(1)
    broker.turns()


def earliest(broker: MemoryBroker, topic: str) -> int:
    rows = [ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=rows)])
    found: int = broker.call(request, 7).topics[0].partitions[0].offset
    return found


def fetched(broker: MemoryBroker, topic: str, offset: int) -> Any:
    return broker.call(fetch_request(topic, offset), 12).responses[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_records_are_deleted(broker: MemoryBroker, version: int) -> None:
    fill(broker, "plain", 2)
    assert delete(broker, ("plain", 0, 4), version=version) == [("plain", 0, 4, "NONE")]
    assert earliest(broker, "plain") == 4
    assert fetched(broker, "plain", 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    data = fetched(broker, "plain", 4)
    assert (data.error_code, data.log_start_offset) == (0, 4)


def test_minus_one_is_the_high_watermark(broker: MemoryBroker) -> None:
    fill(broker, "plain", 2)
    assert delete(broker, ("plain", 0, -1), ("plain", 1, -1)) == [
        ("plain", 0, 6, "NONE"),
        ("plain", 1, 0, "NONE"),
    ]
    assert earliest(broker, "plain") == 6
    fill(broker, "plain", 1)
    assert fetched(broker, "plain", 6).high_watermark == 9


def test_the_start_never_falls(broker: MemoryBroker) -> None:
    fill(broker, "plain", 2)
    for offset in (5, 0, 3, 5):
        assert delete(broker, ("plain", 0, offset)) == [("plain", 0, 5, "NONE")]


@pytest.mark.parametrize("offset", [7, 2**63 - 1, -2, -(2**63)])
def test_offsets_that_no_record_has(broker: MemoryBroker, offset: int) -> None:
    fill(broker, "plain", 2)
    assert delete(broker, ("plain", 0, offset)) == [("plain", 0, -1, "OFFSET_OUT_OF_RANGE")]
    assert earliest(broker, "plain") == 0


def test_each_partition_by_itself(broker: MemoryBroker) -> None:
    fill(broker, "plain", 1)
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert delete(
        broker,
        ("none", 0, 0),
        ("a b", 0, 0),
        ("plain", 7, 0),
        ("plain", -1, 0),
        ("compacted", 0, 99),
        ("compacted", 1, 0),
        ("plain", 0, 2),
    ) == [
        ("none", 0, -1, unknown),
        ("a b", 0, -1, unknown),
        ("plain", 7, -1, unknown),
        ("plain", -1, -1, unknown),
        ("plain", 0, 2, "NONE"),
        ("compacted", 0, -1, "POLICY_VIOLATION"),
        ("compacted", 1, -1, unknown),
    ]


def test_the_last_offset_of_a_partition_counts(broker: MemoryBroker) -> None:
    fill(broker, "plain", 1)
    assert delete(broker, ("plain", 0, 9), ("plain", 0, 1)) == [("plain", 0, 1, "NONE")]
    topics = [DeleteRecordsTopic(name="plain"), DeleteRecordsTopic(name="none")]
    assert broker.call(DeleteRecordsRequest(topics=topics), 2).topics == []


def test_the_brokers_own_topics_stay() -> None:
    broker = new_broker(with_kernel=False, offsets_topic_num_partitions=2)
    for _ in range(2):
        broker.call(FindCoordinatorRequest(key="g"), 3)
    assert delete(broker, ("__consumer_offsets", 0, 0), ("__consumer_offsets", 9, 0)) == [
        ("__consumer_offsets", 0, -1, "INVALID_TOPIC_EXCEPTION"),
        ("__consumer_offsets", 9, -1, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]


def test_an_offline_log(broker: MemoryBroker) -> None:
    fill(broker, "plain", 1)
    log = broker.log("plain")
    # The broker would stop, because this is its only log directory.
    broker.broker.services.logs.on_directory_offline = None
    log.log_directory.go_offline(OSError("the disk is gone"))
    assert delete(broker, ("plain", 0, 1)) == [("plain", 0, -1, "KAFKA_STORAGE_ERROR")]


def test_a_waiting_fetch_returns_the_new_log_start(broker: MemoryBroker) -> None:
    """The records that a fetch waits behind are deleted: it returns with the new log start."""
    fill(broker, "plain", 1)
    waits: FetchRequest = fetch_request("plain", 3, max_wait_ms=60_000)
    stream = broker.send(waits, 12)
    assert not stream.sent
    delete(broker, ("plain", 0, -1))
    fill(broker, "plain", 1)
    assert stream.sent


def test_whole_segments_go_with_the_next_round(broker: MemoryBroker) -> None:
    fill(broker, "small-segments", 24)
    log = broker.log("small-segments")
    before = [each.base_offset for each in log.segments]
    assert len(before) > 3
    start = before[2] + 1
    assert delete(broker, ("small-segments", 0, start)) == [("small-segments", 0, start, "NONE")]
    assert [each.base_offset for each in log.segments] == before
    pass_time(broker, RETENTION_MS)
    assert [each.base_offset for each in log.segments] == before[2:]
    assert log.log_start_offset == start


def test_the_start_survives_a_stop(broker: MemoryBroker) -> None:
    fill(broker, "plain", 2)
    delete(broker, ("plain", 0, 4))
    broker.close()
    again = MemoryBroker(broker.files, with_kernel=False)
    assert earliest(again, "plain") == 4
    assert delete(again, ("plain", 0, 2)) == [("plain", 0, 4, "NONE")]


def test_the_start_survives_a_kill_once_it_is_in_the_checkpoint(broker: MemoryBroker) -> None:
    """A kill before the checkpoint brings the records back, as in Kafka; none are lost."""
    fill(broker, "plain", 2)
    delete(broker, ("plain", 0, 4))
    again = MemoryBroker(broker.files.killed(), with_kernel=False)
    assert earliest(again, "plain") == 0
    delete(again, ("plain", 0, 4))
    pass_time(again, CHECKPOINT_MS)
    third = MemoryBroker(again.files.killed(), with_kernel=False)
    assert earliest(third, "plain") == 4


@pytest.mark.parametrize("in_session", [False, True])
def test_fetches_that_a_connection_sends_again_see_the_new_start(
    broker: MemoryBroker, in_session: bool
) -> None:
    """The new start is reported even for a cached request, or a partition in a session."""
    fill(broker, "plain", 2)
    session = {"session_id": 0, "session_epoch": 0} if in_session else {}
    request: FetchRequest = fetch_request("plain", 0, **session)
    stream = broker.connect()

    def send_fetch(each: FetchRequest) -> Any:
        stream.sent.clear()
        stream.inbox += encode_request(RequestHeader(each.api_key, 12, 1, "c"), each)
        broker.turns()
        return answer_of(stream, each, 12)

    first = send_fetch(request)
    if in_session:
        request = FetchRequest(session_id=first.session_id, session_epoch=1, max_wait_ms=0)
    else:
        assert [send_fetch(request) for _ in range(3)] == [first] * 3
    delete(broker, ("plain", 0, 2))
    found = send_fetch(request).responses[0].partitions[0]
    assert (found.error_code, found.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


@pytest.mark.parametrize(
    ("compact", "removes", "code"),
    [(True, True, "NONE"), (False, True, "NONE"), (True, False, "POLICY_VIOLATION")],
)
def test_only_a_topic_that_is_never_deleted_from_keeps_its_records(
    broker: MemoryBroker, compact: bool, removes: bool, code: str
) -> None:
    """cleanup.policy=compact,delete allows DeleteRecords, compact alone does not, as in Kafka."""
    fill(broker, "plain", 2)
    log = broker.log("plain")
    log.update_config(replace(log.config, compact=compact, delete=removes))
    ((_, _, low_watermark, name),) = delete(broker, ("plain", 0, 4))
    assert (name, low_watermark) == (code, 4 if code == "NONE" else -1)
