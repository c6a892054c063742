"""The committed offsets of one group: pure data and rules, changed only by what the log says."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from klog_broker.coordinator.group.packed_offsets import CommittedOffset as CommittedOffset
from klog_broker.coordinator.group.packed_offsets import (
    KeptOffset,
    PackedOffset,
    record_offset_of,
    times_of,
    unpacked,
)
from pyspark_klog.ids import TopicPartition
from pyspark_klog.state_records.offset_commit import OffsetCommitKey

NEVER_MS = -1

TopicRows = dict[int, KeptOffset]
"""A group's offsets in one topic, by partition."""


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
        kept = None if found is None else found.get(partition.partition)
        return None if kept is None else unpacked(kept)

    def record_offset(self, topic: str, partition: int) -> int | None:
        """Where the committed offset stands in __consumer_offsets."""
        kept = self._by_topic.get(topic, {}).get(partition)
        return None if kept is None else record_offset_of(kept)

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> KeptOffset | None:
        """Keep a committed offset; returns the one that it replaces."""
        found = self._by_topic.get(topic)
        if found is None:
            found = self._by_topic[topic] = {}
        before = found.get(partition)
        found[partition] = committed
        self._count += before is None
        return before

    def rows_in(self, topic: str) -> TopicRows:
        """The offsets in a topic, for put_rows. As long as there are any they stay the topic's."""
        found = self._by_topic.get(topic)
        if found is None:
            found = self._by_topic[topic] = {}
        return found

    def put_rows(
        self, rows: TopicRows, partitions: Sequence[int], packed: Sequence[PackedOffset]
    ) -> None:
        """Keep committed offsets among those of their topic; the last one of a partition counts."""
        before = len(rows)
        rows.update(zip(partitions, packed, strict=True))
        self._count += len(rows) - before

    def put_row(self, rows: TopicRows, partition: int, packed: PackedOffset) -> None:
        """As ``put_rows``, of one."""
        self._count += partition not in rows
        rows[partition] = packed

    def remove(self, topic: str, partition: int) -> KeptOffset | None:
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
            kept = by_topic.get(partition[0], {}).get(partition[1])
            if kept is None:
                continue
            commit_ms, expire_ms = times_of(kept)
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
