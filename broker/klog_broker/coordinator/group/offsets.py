"""The committed offsets of one group: pure data and rules, changed only by ``apply``."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from klog_broker.coordinator.group.classic.group import Group
from klog_broker.coordinator.group.classic.states import GroupState
from klog_broker.coordinator.group.classic.subscriptions import subscribed_topics
from pyspark_klog.ids import LeaderEpoch, Offset, TopicPartition
from pyspark_klog.state_records.offset_commit import OffsetCommitKey, OffsetCommitValue

NEVER_MS = -1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset to read. ``expire_ms`` is -1 unless the commit asked for a time of its own
    (OffsetCommit 2 to 4); both times are wall clock."""

    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_ms: int
    expire_ms: int = NEVER_MS


class OffsetBook:
    """Committed offsets by partition."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, CommittedOffset] = {}

    def __bool__(self) -> bool:
        return bool(self._committed)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._committed)

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        return self._committed.get(partition)

    def apply(self, partition: TopicPartition, value: OffsetCommitValue | None) -> None:
        """What the log says last holds; None is a tombstone."""
        if value is None:
            self._committed.pop(partition, None)
            return
        self._committed[partition] = CommittedOffset(
            offset=Offset(value.offset),
            leader_epoch=LeaderEpoch(value.leader_epoch),
            metadata=value.metadata,
            commit_ms=value.commit_timestamp,
            expire_ms=value.expire_timestamp,
        )

    def __len__(self) -> int:
        return len(self._committed)

    def expired(
        self,
        group: Group,
        now_ms: int,
        retention_ms: int,
        among: Iterable[TopicPartition] | None = None,
    ) -> list[TopicPartition]:
        """Partitions whose offset has served its time (KIP-211), of all or ``among`` some.

        The clock of a group that had members starts when the last of them left, that of offsets
        committed without a group at their commit. Consumers in a stable group lose what they have
        not committed for that long in topics that none of them is subscribed to;
        any other group with members loses nothing.
        """
        had_members = group.protocol_type is not None and group.state_changed_ms >= 0
        if group.state is GroupState.EMPTY:
            since_ms = group.state_changed_ms if had_members else NEVER_MS
            return self._over(now_ms, retention_ms, since_ms, among)
        if group.state is not GroupState.STABLE:
            return []
        over = self._over(now_ms, retention_ms, NEVER_MS, among)
        # Looked at only now: most groups have nothing that old.
        topics = subscribed_topics(group) if over else None
        return [] if topics is None else [p for p in over if p.topic not in topics]

    def _over(
        self,
        now_ms: int,
        retention_ms: int,
        since_ms: int,
        among: Iterable[TopicPartition] | None,
    ) -> list[TopicPartition]:
        """Offsets committed, and kept since ``since_ms``, for longer than they are kept."""
        result = []
        for partition in self._committed if among is None else among:
            committed = self._committed.get(partition)
            if committed is None:
                continue
            if committed.expire_ms >= 0:
                is_over = now_ms >= committed.expire_ms
            else:
                is_over = now_ms - max(since_ms, committed.commit_ms) >= retention_ms
            if is_over:
                result.append(partition)
        return result


def commit_key(group_id: str, partition: TopicPartition) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
