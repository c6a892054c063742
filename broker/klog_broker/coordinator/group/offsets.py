"""The committed offsets of one group: pure data and rules, changed only by what the log says."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from klog_broker.coordinator.group.packed_offsets import CommittedOffset as CommittedOffset
from klog_broker.coordinator.group.packed_offsets import KeptOffset, PackedOffset
from klog_broker.coordinator.group.topic_rows import TopicRows as TopicRows
from pyspark_klog.ids import TopicPartition
from pyspark_klog.state_records.offset_commit import OffsetCommitKey

NEVER_MS = -1


class OffsetPlace(NamedTuple):
    """Whose offset it is, and of which partition."""

    group_id: str
    topic: str
    partition: int


class Expiry(NamedTuple):
    """When a group's offsets have served their time."""

    since_ms: int
    """The retention time begins here, or with an offset's commit if that is later."""
    kept_topics: Callable[[], frozenset[str] | None]
    """Topics whose offsets are kept in any case; None: all. Asked only if there is a reason to."""


class OffsetBook:
    """Committed offsets by topic and partition. Those that were loaded are packed, because there
    may be very many."""

    __slots__ = ("_by_topic", "_count")

    def __init__(self) -> None:
        self._by_topic: dict[str, TopicRows] = {}
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
        return None if found is None else found.committed(partition.partition)

    def record_offset(self, topic: str, partition: int) -> int | None:
        """Where the committed offset stands in __consumer_offsets."""
        found = self._by_topic.get(topic)
        return None if found is None else found.record_offset(partition)

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> KeptOffset | None:
        """Keep a committed offset; returns the one that it replaces."""
        found = self._by_topic.get(topic)
        if found is None:
            found = self._by_topic[topic] = TopicRows()
        alone = found.alone
        before = alone.get(partition)
        alone[partition] = committed
        if before is None:
            before = found.take(partition) if found.in_block else None
            self._count += before is None
        return before

    def rows_in(self, topic: str) -> TopicRows:
        """The offsets in a topic, for put_neighbours and put_alone. As long as there are any they
        stay the topic's."""
        found = self._by_topic.get(topic)
        if found is None:
            found = self._by_topic[topic] = TopicRows()
        return found

    def put_neighbours(self, rows: TopicRows, first: int, packed: bytes) -> None:
        """Keep committed offsets of neighbouring partitions (TopicRows.put_neighbours)."""
        self._count += rows.put_neighbours(first, packed)

    def put_alone(self, rows: TopicRows, partition: int, packed: PackedOffset) -> None:
        """Keep a committed offset that may have metadata."""
        self._count += rows.put_alone(partition, packed)

    def remove(self, topic: str, partition: int) -> KeptOffset | None:
        """Forget a committed offset, and return it."""
        found = self._by_topic.get(topic)
        if found is None:
            return None
        before = found.alone.pop(partition, None)
        if before is None:
            before = found.take(partition)
        self._count -= before is not None
        if not found.alone and not found.in_block:
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

    def some(self, size: int) -> list[TopicPartition]:
        """``size`` partitions, whichever are found first; all if there are no more."""
        each = (
            TopicPartition(topic, partition)
            for topic, found in self._by_topic.items()
            for partition in found
        )
        return list(islice(each, size))

    def expired(
        self, among: Iterable[TopicPartition], expiry: Expiry, now_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        """The partitions ``among`` these whose offset has served its time."""
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
