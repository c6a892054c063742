"""The committed offsets of one group: pure data and rules, changed only by ``apply``."""

from collections.abc import Iterator
from dataclasses import dataclass

from klog_broker.coordinator.group.group import Group
from klog_broker.coordinator.group.states import GroupState
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

    def expired(self, group: Group, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Partitions whose offset has served its time (KIP-211).

        The clock of a group that had members starts when the last of them left, that of offsets
        committed without a group at their commit. A group with members loses nothing.
        """
        if group.state is not GroupState.EMPTY:
            return []
        had_members = group.protocol_type is not None and group.state_changed_ms >= 0
        result = []
        for partition, committed in self._committed.items():
            if committed.expire_ms >= 0:
                is_over = now_ms >= committed.expire_ms
            else:
                since_ms = group.state_changed_ms if had_members else committed.commit_ms
                is_over = now_ms - max(since_ms, committed.commit_ms) >= retention_ms
            if is_over:
                result.append(partition)
        return result


def commit_key(group_id: str, partition: TopicPartition) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
