"""The committed offsets of one group: pure data and rules (no I/O), changed only by applied
records."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from klog_broker.coordinator.group.packed_offsets import OffsetAndMetadata as OffsetAndMetadata
from klog_broker.coordinator.group.packed_offsets import PackedOffset, StoredOffset
from klog_broker.coordinator.group.topic_rows import TopicRows as TopicRows
from pyspark_klog.ids import TopicPartition
from pyspark_klog.state_records.offset_commit import OffsetCommitKey

NEVER_MS = -1


class OffsetKey(NamedTuple):
    """The key of a committed offset: the group, and the partition that it was committed for."""

    group_id: str
    topic: str
    partition: int


class Expiry(NamedTuple):
    """The rule by which a group's offsets expire."""

    since_ms: int
    """The retention time starts at this time, or at the offset's commit if that is later. An offset
    whose commit set an expiry time expires at that time instead."""
    kept_topics: Callable[[], frozenset[str] | None]
    """Returns the topics whose offsets never expire; None means all topics. Called only if an
    offset has passed its retention or expiry time."""


class GroupOffsets:
    """Committed offsets by topic and partition. Most offsets loaded from the log are stored as
    bytes, not as objects, to save memory (packed_offsets.py)."""

    __slots__ = ("_by_topic", "_count")

    def __init__(self) -> None:
        self._by_topic: dict[str, TopicRows] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def topics(self) -> list[str]:
        """The topics in which the group has an offset, in no particular order."""
        return list(self._by_topic)

    def partitions(self, topic: str) -> list[int]:
        return list(self._by_topic.get(topic, ()))

    def get(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        found = self._by_topic.get(partition.topic)
        return None if found is None else found.committed(partition.partition)

    def record_offset(self, topic: str, partition: int) -> int | None:
        """The offset of the commit's record in __consumer_offsets; None without a commit."""
        found = self._by_topic.get(topic)
        return None if found is None else found.record_offset(partition)

    def put(self, topic: str, partition: int, committed: OffsetAndMetadata) -> StoredOffset | None:
        """Store a committed offset; returns the offset that it replaces, or None."""
        found = self._by_topic.get(topic)
        if found is None:
            found = self._by_topic[topic] = TopicRows()
        alone = found.outside_block
        before = alone.get(partition)
        alone[partition] = committed
        if before is None:
            before = found.pop_from_block(partition) if found.in_block else None
            self._count += before is None
        return before

    def rows_in(self, topic: str) -> TopicRows:
        """The object that stores the group's offsets in the topic, to pass to put_adjacent and
        put_outside_block.

        The object stays part of this GroupOffsets until the group's last offset in the topic is
        removed.
        """
        found = self._by_topic.get(topic)
        if found is None:
            found = self._by_topic[topic] = TopicRows()
        return found

    def put_adjacent(self, rows: TopicRows, first: int, packed: bytes) -> None:
        """Store packed offsets (52 bytes each) without metadata, of adjacent partitions from
        ``first`` on."""
        self._count += rows.put_adjacent(first, packed)

    def put_outside_block(self, rows: TopicRows, partition: int, packed: PackedOffset) -> None:
        """Store a packed offset, which may have metadata, in the dict of ``rows``, not in its block
        of offsets without metadata."""
        self._count += rows.put_outside_block(partition, packed)

    def remove(self, topic: str, partition: int) -> StoredOffset | None:
        """Remove a committed offset and return it; None if there is none."""
        found = self._by_topic.get(topic)
        if found is None:
            return None
        before = found.outside_block.pop(partition, None)
        if before is None:
            before = found.pop_from_block(partition)
        self._count -= before is not None
        if not found.outside_block and not found.in_block:
            del self._by_topic[topic]
        return before

    def has_topic(self, topic: str) -> bool:
        return topic in self._by_topic

    def in_parts(self, size: int) -> Iterator[list[TopicPartition]]:
        """Yield the partitions with an offset in lists of ``size``, of which the last may be
        shorter. Offsets may be put and removed between two lists.

        An offset that is present the whole time is in one of the lists.
        """
        part: list[TopicPartition] = []
        for topic in self.topics():
            for partition in self.partitions(topic):
                part.append(TopicPartition(topic, partition))
                if len(part) == size:
                    yield part
                    part = []
        if part:
            yield part

    def first_partitions(self, size: int) -> list[TopicPartition]:
        """Return any ``size`` partitions for which the group has an offset, or all such partitions
        if there are fewer."""
        each = (
            TopicPartition(topic, partition)
            for topic, found in self._by_topic.items()
            for partition in found
        )
        return list(islice(each, size))

    def expired(
        self, among: Iterable[TopicPartition], expiry: Expiry, now_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        """The partitions of ``among`` whose offset has expired."""
        over = []
        by_topic, since_ms = self._by_topic, expiry.since_ms
        for partition in among:
            rows = by_topic.get(partition[0])
            times = None if rows is None else rows.times(partition[1])
            if times is None:
                continue
            commit_ms, expire_ms = times
            if expire_ms >= 0:
                is_over = now_ms >= expire_ms
            else:
                is_over = now_ms - max(since_ms, commit_ms) >= retention_ms
            if is_over:
                over.append(partition)
        topics = expiry.kept_topics() if over else None
        return [] if topics is None else [each for each in over if each.topic not in topics]


def commit_key(group_id: str, partition: TopicPartition) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
