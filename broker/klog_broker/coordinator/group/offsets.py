"""The committed offsets of one group: pure data and rules, changed only by what the log says."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pyspark_klog.ids import UUID, LeaderEpoch, Offset, TopicPartition
from pyspark_klog.state_records.consumer_offsets import NO_TOPIC_ID
from pyspark_klog.state_records.offset_commit import OffsetCommitKey, OffsetCommitValue

NEVER_MS = -1


class OffsetPlace(NamedTuple):
    """Whose offset it is, and of which partition."""

    group_id: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """The next offset to read. ``expire_ms`` is -1 unless the commit asked for a time of its own
    (OffsetCommit 2 to 4); both times are wall clock. ``record_offset`` is where it stands in
    __consumer_offsets. ``topic_id`` is 0 where the record has none: records of older releases, and
    those with an expiry."""

    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_ms: int
    expire_ms: int
    record_offset: Offset
    topic_id: UUID = NO_TOPIC_ID

    @classmethod
    def from_record(cls, value: OffsetCommitValue, record_offset: int) -> "CommittedOffset":
        return cls(
            Offset(value.offset),
            LeaderEpoch(value.leader_epoch),
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            Offset(record_offset),
            value.topic_id,
        )

    def is_of(self, topic_id: UUID) -> bool:
        """Whether it was committed in the topic with this id, and not in one of the same name that
        was there before. As in Kafka 4.3, an id that is not known fits every topic."""
        return self.topic_id in (topic_id, NO_TOPIC_ID) or topic_id == NO_TOPIC_ID


class Expiry(NamedTuple):
    """When a group's offsets have served their time."""

    since_ms: int
    """The retention time begins here, or with an offset's commit if that is later."""
    kept_topics: Callable[[], frozenset[str] | None]
    """Topics whose offsets are kept in any case; None: all. Asked only if there is a reason to."""


class OffsetBook:
    """Committed offsets by topic and partition."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, CommittedOffset]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def topics(self) -> list[str]:
        """The topics in which there is an offset, in no order."""
        return list(self._by_topic)

    def partitions(self, topic: str) -> list[int]:
        return list(self._by_topic.get(topic, ()))

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        found = self._by_topic.get(partition.topic)
        return None if found is None else found.get(partition.partition)

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> CommittedOffset | None:
        """Keep a committed offset; returns the one that it replaces."""
        found = self._by_topic.get(topic)
        if found is None:
            found = self._by_topic[topic] = {}
        before = found.get(partition)
        found[partition] = committed
        self._count += before is None
        return before

    def remove(self, topic: str, partition: int) -> CommittedOffset | None:
        """Forget a committed offset, and return it."""
        found = self._by_topic.get(topic)
        before = None if found is None else found.pop(partition, None)
        self._count -= before is not None
        if found is not None and not found:
            del self._by_topic[topic]
        return before

    def has_topic(self, topic: str) -> bool:
        return topic in self._by_topic

    def in_parts(self, size: int) -> Iterator[list[TopicPartition]]:
        """All partitions, ``size`` at once. The book may change between two parts: an offset that
        stays all the time is in one of them."""
        part: list[TopicPartition] = []
        for topic in self.topics():
            for partition in self.partitions(topic):
                part.append(TopicPartition(topic, partition))
                if len(part) == size:
                    yield part
                    part = []
        if part:
            yield part

    def expired(
        self, among: Iterable[TopicPartition], expiry: Expiry, now_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        """The partitions ``among`` these whose offset has served its time."""
        over = []
        by_topic, since_ms = self._by_topic, expiry.since_ms
        for partition in among:
            committed = by_topic.get(partition[0], {}).get(partition[1])
            if committed is None:
                continue
            if committed.expire_ms >= 0:
                is_over = now_ms >= committed.expire_ms
            else:
                is_over = now_ms - max(since_ms, committed.commit_ms) >= retention_ms
            if is_over:
                over.append(partition)
        kept = expiry.kept_topics() if over else None
        return [] if kept is None else [each for each in over if each.topic not in kept]


def commit_key(group_id: str, partition: TopicPartition) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
