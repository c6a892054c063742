"""Stored batches that are damaged, and disks that cannot read: the responses to clients."""

import logging
from typing import Any

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import LeaderEpoch, TopicPartition
from pyspark_klog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.list_groups import ListGroupsRequest
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.layout import LAST_OFFSET_DELTA_AT, MAGIC_AT, RECORDS_AT, SIZE_AT
from tests.support.cluster.broker import NOW_MS, MemoryBroker, new_broker
from tests.support.runtime.memory_files import MemoryFile

NEWEST, CONVERTED = 12, 3
CORRUPT = ErrorCode.CORRUPT_MESSAGE
RECORDS = 3


def batch(codec: Codec) -> bytes:
    builder = BatchBuilder(codec=codec)
    for number in range(RECORDS):
        builder.append(b"key", b"value" * 20, NOW_MS + number)
    return builder.build()


def with_batches(codec: Codec = Codec.NONE) -> MemoryBroker:
    """Three of them, of three records each."""
    broker = new_broker(with_kernel=False)
    for _ in range(3):
        broker.log("plain").append_as_leader(
            batch(codec), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS
        )
    # Restart the broker: its cached positions would let it skip the damaged bytes.
    broker.close()
    return MemoryBroker(broker.files.killed(), with_kernel=False)


def damage(broker: MemoryBroker, number: int, at: int, codec: Codec = Codec.NONE) -> None:
    """Flip a bit of a batch on the disk."""
    file = broker.log("plain").segments[0].log_file
    position = number * len(batch(codec)) + at
    (byte,) = file.pread(1, position)
    file.pwrite(bytes([byte ^ 0x10]), position)


def fetch(broker: MemoryBroker, version: int, offset: int = 0) -> PartitionData:
    row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="plain", partitions=[row])]
    request = FetchRequest(replica_id=-1, max_bytes=1 << 20, topics=topics)
    found: PartitionData = broker.call(request, version).responses[0].partitions[0]
    return found


def offset_at(broker: MemoryBroker, timestamp_ms: int) -> tuple[int, int]:
    """ListOffsets: the error and the offset."""
    row = ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms)
    topics = [ListOffsetsTopic(name="plain", partitions=[row])]
    answer = broker.call(ListOffsetsRequest(replica_id=-1, topics=topics), 7)
    found = answer.topics[0].partitions[0]
    return found.error_code, found.offset


def damage_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The requests and errors in the log lines about damaged records of partition plain-0."""
    start = "topic=plain partition=0 damaged records, the client gets CORRUPT_MESSAGE: "
    return [each.removeprefix(start) for each in caplog.messages if each.startswith(start)]


def no_bug_in(broker: MemoryBroker) -> bool:
    return broker.broker.services.requests.bugs.total == 0


@pytest.mark.parametrize("version", [4, 9, NEWEST])
def test_what_is_not_looked_into_goes_as_it_is(version: int) -> None:
    """The client finds the damage by the CRC, as with Kafka."""
    broker = with_batches()
    damage(broker, 0, RECORDS_AT + 20)
    answer = fetch(broker, version)
    assert isinstance(answer.records, bytes | memoryview)
    assert (answer.error_code, len(answer.records)) == (0, 3 * len(batch(Codec.NONE)))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_damaged_batch_is_not_converted(codec: Codec, caplog: pytest.LogCaptureFixture) -> None:
    """Only a record's value is damaged: a batch with a new CRC would hide that."""
    broker = with_batches(codec)
    damage(broker, 1, RECORDS_AT + 30, codec)
    before = fetch(broker, CONVERTED)
    assert before.error_code == 0
    assert before.records
    answer = fetch(broker, CONVERTED, RECORDS)
    assert (answer.error_code, answer.records) == (CORRUPT, b"")
    assert damage_lines(caplog) == [
        "Fetch offset=3: the records cannot be converted to an older format"
    ]
    assert fetch(broker, CONVERTED, 2 * RECORDS).error_code == 0
    assert no_bug_in(broker)


@pytest.mark.parametrize("at", [SIZE_AT, MAGIC_AT])
@pytest.mark.parametrize("version", [CONVERTED, NEWEST])
def test_an_offset_that_cannot_be_found_behind_a_damaged_batch(
    version: int, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker = with_batches()
    damage(broker, 0, at)
    assert fetch(broker, version, RECORDS).error_code == CORRUPT
    (line,) = damage_lines(caplog)
    assert line.startswith("Fetch offset=3: ")
    assert no_bug_in(broker)


@pytest.mark.parametrize("at", [SIZE_AT, MAGIC_AT, LAST_OFFSET_DELTA_AT + 3, RECORDS_AT + 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_time_that_cannot_be_found_in_a_damaged_batch(
    codec: Codec, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker = with_batches(codec)
    damage(broker, 0, at, codec)
    assert offset_at(broker, NOW_MS + 1) == (CORRUPT, -1)
    (line,) = damage_lines(caplog)
    assert line.startswith(f"ListOffsets timestamp={NOW_MS + 1}: ")
    assert offset_at(broker, -3) == (CORRUPT, -1)  # the largest of all
    assert offset_at(broker, -1) == (0, 3 * RECORDS)
    assert no_bug_in(broker)


@pytest.mark.parametrize("version", [None, CONVERTED, 9, NEWEST])
def test_a_disk_that_cannot_read(version: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up by time, or a Fetch of this version."""
    broker = with_batches()

    def fails(*_: object) -> Any:
        raise OSError("the disk fails")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFile, "pread_now", fails)
        patch.setattr(MemoryFile, "pread", fails)
        if version is None:
            assert offset_at(broker, NOW_MS + 1) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        else:
            assert fetch(broker, version, 1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    # The directory stays offline until the next start, as in Kafka.
    assert broker.log("plain").is_offline
    assert no_bug_in(broker)


# --- groups --------------------------------------------------------------------------------------
def commit(broker: MemoryBroker, group: str) -> int:
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata="m" * 4000
    )
    topics = [OffsetCommitRequestTopic(name="plain", partitions=[row])]
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    code: int = broker.call(request, 7).topics[0].partitions[0].error_code
    return code


def group_errors(broker: MemoryBroker, group: str) -> tuple[int, int]:
    """Errors of FindCoordinator and of OffsetFetch."""
    coordinator = broker.call(FindCoordinatorRequest(key=group), 3).error_code
    return coordinator, broker.call(OffsetFetchRequest(group_id=group, topics=None), 7).error_code


@pytest.mark.parametrize("how", ["damaged", "unreadable"])
def test_groups_that_cannot_be_loaded_have_no_coordinator(
    how: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that cannot load refuses its groups, as Kafka's does; others are served."""
    groups = [f"g{number}" for number in range(6)]
    before = new_broker(with_kernel=False, offsets_topic_num_partitions=2)
    name = "__consumer_offsets"
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    assert before.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
    assert group_errors(before, "g0") == (0, 0)
    assert [commit(before, each) for each in 3 * groups] == [0] * 3 * len(groups)
    file = before.log(name, 0).segments[0].log_file
    before.close()
    if how == "damaged":
        file.pwrite(b"\xff", RECORDS_AT + 1000)
    else:
        read = MemoryFile.pread

        def fails(each: MemoryFile, size: int, position: int) -> bytes:
            if each.path == file.path and size > 10_000:
                raise OSError("the disk fails")
            return read(each, size, position)

        monkeypatch.setattr(MemoryFile, "pread", fails)
    with caplog.at_level(logging.ERROR):
        broker = MemoryBroker(before.files.killed(), with_kernel=False)
    assert f"load-failed partition={name}-0" in caplog.text
    log = broker.broker.services.logs.get(TopicPartition(name, 0))
    assert log is not None and not log.is_offline
    none = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
    outcomes = {group_errors(broker, each) for each in groups}
    assert outcomes == {(0, 0), none}
    assert {commit(broker, each) for each in groups} == {0, ErrorCode.NOT_COORDINATOR}
    listed = broker.call(ListGroupsRequest(), 4)
    assert listed.error_code == 0
    assert {each.group_id for each in listed.groups} == {
        each for each in groups if group_errors(broker, each) == (0, 0)
    }
    assert no_bug_in(broker)
