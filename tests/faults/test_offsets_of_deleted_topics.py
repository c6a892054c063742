"""A broker is lost while it deletes a topic: a new topic of that name has no old offsets."""

from functools import cache
from random import Random
from typing import Any

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.support.cluster.broker import MemoryBroker
from tests.support.coordinator.transaction_client import MemoryClient, broker_with_coordinators
from tests.support.runtime.crash_points import CrashPoint, crash_points
from tests.support.runtime.memory_files import MemoryFiles

NONE = ErrorCode.NONE
PLAIN = TopicPartition("plain", 0)
# Groups by how they commit: directly, or in a transaction.
GROUPS = ("direct", "in-transaction")


@cache
def _prepared() -> MemoryFiles:
    """A disk on which both groups have the offset 5 in the topic that will be deleted."""
    broker = broker_with_coordinators()
    commit(broker, 5)
    producer = MemoryClient(broker)
    assert producer.init() == 0
    assert producer.commit_offsets(5, "in-transaction") == [0]
    assert producer.end_transaction() == 0
    assert seen(broker) == dict.fromkeys(GROUPS, 5)
    broker.close()
    return broker.files


def commit(broker: MemoryBroker, offset: int) -> None:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="plain", partitions=[row])
    answer = broker.call(OffsetCommitRequest(group_id="direct", topics=[topic]), 8)
    assert answer.topics[0].partitions[0].error_code == NONE


def seen(broker: MemoryBroker) -> dict[str, int]:
    """The offset that each group gets from OffsetFetch, by topic name and id, in all versions."""
    found = {}
    for group in GROUPS:
        client = MemoryClient(broker)
        told = {client.committed(group), client.committed(group, stable=True)}
        for version in (8, 9, 10):
            by_name = OffsetFetchRequestTopics(
                name="plain", topic_id=current_id(broker), partition_indexes=[0]
            )
            asked = OffsetFetchRequestGroup(group_id=group, topics=[by_name])
            told.add(_fetch(broker, asked, version))
            told.add(_fetch(broker, OffsetFetchRequestGroup(group_id=group, topics=None), version))
        (found[group],) = told
    return found


def _fetch(broker: MemoryBroker, asked: OffsetFetchRequestGroup, version: int) -> int:
    (group,) = broker.call(OffsetFetchRequest(groups=[asked]), version).groups
    rows = [row for topic in group.topics for row in topic.partitions]
    assert [row.error_code for row in rows] in ([], [NONE])
    return int(rows[0].committed_offset) if rows else -1


def current_id(broker: MemoryBroker) -> UUID:
    topic = broker.broker.services.metadata.image.topic("plain")
    assert topic is not None
    return topic.topic_id


def recreate_topic(broker: MemoryBroker) -> None:
    for _ in range(1_000):
        # The broker has the seed of the one before it: skip the ids that are taken.
        broker.broker.services.chance.uuid()
    topic = CreatableTopic(name="plain", num_partitions=3, replication_factor=1)
    made: Any = broker.call(CreateTopicsRequest(topics=[topic]), 7)
    assert made.topics[0].error_code == NONE


def kept(broker: MemoryBroker) -> int:
    """How many of the groups still have the offset of the deleted topic in the log."""
    groups = broker.broker.services.groups
    books = [groups.committed(each)[1] for each in GROUPS]
    return sum(book.get(PLAIN) is not None for book in books if book is not None)


@cache
def _crash_points() -> list[CrashPoint[None]]:
    """Return the crash points of the topic's deletion, the last of them after its end."""
    broker = MemoryBroker(_prepared().killed(), with_kernel=False)

    def delete() -> None:
        broker.call(DeleteTopicsRequest(topic_names=["plain"], timeout_ms=10_000), 5)
        for _ in range(20):
            broker.pass_time(100)

    points = crash_points(broker.files, delete, lambda: None)
    return [*points, CrashPoint(len(points) + 1, broker.files.killed(), None)]


def outlived(files: MemoryFiles) -> int:
    """Check the next broker; return how many old offsets outlived the topic in the log."""
    again = MemoryBroker(files, with_kernel=False)
    if again.broker.services.metadata.image.topic("plain") is not None:
        assert seen(again) == dict.fromkeys(GROUPS, 5)
        again.close()
        return 0
    recreate_topic(again)
    left = kept(again)
    assert seen(again) == dict.fromkeys(GROUPS, -1)
    commit(again, 7)
    again.close()
    last = MemoryBroker(again.files, with_kernel=False)
    assert seen(last) == {"direct": 7, "in-transaction": -1}
    last.close()
    return left


@pytest.mark.parametrize("power", [True, False], ids=["power cut", "kill"])
def test_no_old_offset_is_returned_after_a_crash_at_any_step_of_a_deletion(power: bool) -> None:
    # At some steps a power cut leaves the topic deleted without the records that delete its
    # offsets. After the loss of only the process, the next one knows which offsets to delete.
    expected = len(GROUPS) if power else 0
    points = _crash_points()
    assert len(points) > 20
    most, disks = 0, set[object]()
    for dice in range(5):
        for step, before, _ in points:
            # After a power cut, dice decide which unsynced data is on the disk.
            files = before.crash(Random(1_000 * dice + step)) if power else before.copy()
            content = files.content()
            if content not in disks:
                disks.add(content)
                most = max(most, outlived(files))
        if most == expected:
            return
    raise AssertionError(f"at most {most} outlived the topic, expected {expected}")


@pytest.mark.parametrize("expiry_ms", [-1, 60_000])
def test_an_offset_without_a_topic_id_is_returned(expiry_ms: int) -> None:
    """An offset with its own expiry time has no field for a topic id, as in Kafka."""
    broker = broker_with_coordinators()
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=6)
    topic = OffsetCommitRequestTopic(name="plain", partitions=[row])
    request = OffsetCommitRequest(group_id="direct", topics=[topic], retention_time_ms=expiry_ms)
    for _ in range(2):
        assert broker.call(request, 3).topics[0].partitions[0].error_code == NONE
        assert seen(broker)["direct"] == 6
    broker.close()
    again = MemoryBroker(broker.files, with_kernel=False)
    assert seen(again)["direct"] == 6
    book = again.broker.services.groups.committed("direct")[1]
    assert (book.get(PLAIN).topic_id == UUID(int=0)) == (expiry_ms > 0)
    again.close()
