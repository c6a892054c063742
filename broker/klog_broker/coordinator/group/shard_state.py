"""The state of one shard of the group coordinator: groups and their committed offsets."""

import logging
from collections.abc import Callable, Iterable, Mapping

from klog_broker.coordinator.group.classic.group import ClassicGroup
from klog_broker.coordinator.group.classic.group_machine import GroupMachine, GroupSettings
from klog_broker.coordinator.group.classic.records import apply_metadata
from klog_broker.coordinator.group.classic.states import GroupState
from klog_broker.coordinator.group.offsets import GroupOffsets, OffsetKey, TopicRows, commit_key
from klog_broker.coordinator.group.packed_offsets import OffsetAndMetadata, StoredOffset, unpacked
from klog_broker.coordinator.shard import RecordProducer, StateRecordFormat
from klog_broker.coordinator.timeline import Timeline
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.state_records.consumer_offsets import (
    Key,
    Value,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from pyspark_klog.state_records.group_metadata import GroupMetadataKey, GroupMetadataValue
from pyspark_klog.state_records.offset_commit import OffsetCommitKey, OffsetCommitValue

_log = logging.getLogger("klog.group")

Records = list[tuple[Key, Value | None]]
OffsetTimeline = Timeline[TopicPartition, StoredOffset]


class GroupEntry:
    """A group: the state machine of its members, and its offsets. A group may have no members, or
    no offsets."""

    __slots__ = ("group", "machine", "offsets", "pending_offsets")

    def __init__(self, group: ClassicGroup, machine: GroupMachine) -> None:
        self.group = group
        self.machine = machine
        self.offsets = GroupOffsets()
        self.pending_offsets: dict[TopicPartition, int] = {}
        """How many open transactions have committed an offset of each partition."""

    def add_pending_offset(self, place: OffsetKey) -> None:
        """Count one more open transaction that has committed an offset for the partition
        ``place``."""
        partition = TopicPartition(place.topic, place.partition)
        self.pending_offsets[partition] = self.pending_offsets.get(partition, 0) + 1

    def remove_pending_offset(self, place: OffsetKey) -> None:
        """Count one open transaction less that has committed an offset for the partition
        ``place``."""
        partition = TopicPartition(place.topic, place.partition)
        left = self.pending_offsets.pop(partition) - 1
        if left:
            self.pending_offsets[partition] = left

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, no pending member ids and no pending offsets.

        Offsets are pending while their transaction is open.
        """
        group = self.group
        return group.state is GroupState.EMPTY and not group.pending and not self.pending_offsets


class GroupShardState:
    """The groups of one shard, and which groups have offsets in each topic.

    Offsets are changed only by ``apply`` and ``apply_marker``, and by code that stores or removes
    offsets in place of ``apply`` (TurnCommits and CommitLoading). A group's machine may change the
    group's members and generation before their record is applied.
    """

    def __init__(
        self,
        settings: GroupSettings,
        new_member_id: Callable[[str], str],
        timeline: OffsetTimeline,
    ) -> None:
        self.groups: dict[str, GroupEntry] = {}
        self.timeline = timeline
        self._settings = settings
        self._new_member_id = new_member_id
        self._groups_by_topic: dict[str, dict[str, None]] = {}
        self._pending: dict[int, dict[OffsetKey, OffsetAndMetadata]] = {}
        """Offsets that take effect when the producer's transaction is committed, by producer id."""

    # --- groups by id, and by topic --------------------------------------------------------------
    def get_or_create(self, group_id: str) -> GroupEntry:
        entry = self.groups.get(group_id)
        if entry is None:
            group = ClassicGroup(group_id)
            entry = GroupEntry(group, GroupMachine(group, self._settings, self._new_member_id))
            self.groups[group_id] = entry
        return entry

    def machine(self, key: str) -> GroupMachine | None:
        entry = self.groups.get(key)
        return None if entry is None else entry.machine

    def keys(self) -> Iterable[str]:
        return self.groups

    def groups_with(self, topic: str) -> list[GroupEntry]:
        """The groups that have a committed offset in the topic."""
        return [self.groups[each] for each in self._groups_by_topic.get(topic, ())]

    def pending_in(self, topic: str, end_offset: Offset) -> dict[str, list[TopicPartition]]:
        """The partitions of ``topic`` with pending offsets of open transactions, by group id.

        Only pending offsets whose record is before ``end_offset`` count.
        """
        found: dict[str, list[TopicPartition]] = {}
        for pending in self._pending.values():
            for place, committed in pending.items():
                if place.topic == topic and committed.record_offset < end_offset:
                    partition = TopicPartition(topic, place.partition)
                    found.setdefault(place.group_id, []).append(partition)
        return found

    def drop_if_unused(self, key: str) -> None:
        """Drop a group that never had a generation, and has no members, no pending member ids and
        no offsets."""
        entry = self.groups.get(key)
        if (
            entry is not None
            and entry.is_empty
            and not entry.offsets
            and entry.group.generation_id == 0
        ):
            del self.groups[key]

    # --- applying records of __consumer_offsets --------------------------------------------------
    def apply(
        self, offset: Offset, key: Key, value: Value | None, producer: RecordProducer | None
    ) -> None:
        if isinstance(key, OffsetCommitKey):
            place = OffsetKey(key.group, key.topic, key.partition)
            if value is None:
                self.remove_offset(place)
                return
            assert isinstance(value, OffsetCommitValue)
            committed = OffsetAndMetadata.from_record(value, offset)
            if producer is None:
                self.store_offset(place, committed)
            else:
                pending = self._pending.setdefault(producer.producer_id, {})
                entry = self.get_or_create(key.group)
                if place not in pending:
                    entry.add_pending_offset(place)
                pending[place] = committed
            return
        if value is not None:
            assert isinstance(value, GroupMetadataValue)
            apply_metadata(self.get_or_create(key.group).group, value)
            return
        dead = self.groups.get(key.group)
        if dead is not None and not dead.offsets and not dead.pending_offsets:
            del self.groups[key.group]
            dead.group.move_to(GroupState.DEAD)

    def apply_marker(self, producer: RecordProducer, *, is_commit: bool) -> None:
        """Make the offsets of the producer's transaction take effect, or drop them if it was
        aborted.

        Between two commits of one partition the one with the later record wins, regardless of the
        order of their markers, as in Kafka's OffsetMetadataManager.
        """
        for place, committed in self._pending.pop(producer.producer_id, {}).items():
            entry = self.groups[place.group_id]
            entry.remove_pending_offset(place)
            before = entry.offsets.record_offset(place.topic, place.partition)
            if is_commit and (before is None or before < committed.record_offset):
                self.store_offset(place, committed)
            self.drop_if_unused(place.group_id)

    def store_offset(self, place: OffsetKey, committed: OffsetAndMetadata) -> None:
        """Store a committed offset, like ``apply`` does for the offset's record.

        TurnCommits calls this method directly: it has just encoded the record and need not decode
        the record again.
        """
        group_id, topic, partition = place
        entry = self.groups.get(group_id) or self.get_or_create(group_id)
        before = entry.offsets.put(topic, partition, committed)
        if before is None:
            self._groups_by_topic.setdefault(topic, {})[group_id] = None
        if self.timeline.is_ahead:
            self.timeline.note_replaced_value(group_id, TopicPartition(topic, partition), before)

    def rows_for(self, group_id: str, topic: str) -> tuple[GroupOffsets, TopicRows]:
        """Return the objects in which to store the offsets of a group in a topic during loading.

        The caller puts offsets into these objects instead of calling ``store_offset`` for each. The
        caller must put at least one offset at once, and may use the rows later as long as they are
        not empty. Use this method only for offsets below the high watermark: the changes are not
        noted in the timeline, which stores the values replaced by changes above the high watermark.
        """
        entry = self.groups.get(group_id) or self.get_or_create(group_id)
        rows = entry.offsets.rows_in(topic)
        if not rows:
            self._groups_by_topic.setdefault(topic, {})[entry.group.group_id] = None
        return entry.offsets, rows

    def remove_offset(self, place: OffsetKey) -> None:
        """Remove the committed offset, and the pending offsets of open transactions.

        Markers that come later find no pending offset, so they cannot restore the removed offset.
        """
        group_id, topic, partition = place
        entry = self.groups.get(group_id)
        if entry is None:
            return
        before = entry.offsets.remove(topic, partition)
        if before is not None:
            if not entry.offsets.has_topic(topic):
                groups = self._groups_by_topic[topic]
                del groups[group_id]
                if not groups:
                    del self._groups_by_topic[topic]
            if self.timeline.is_ahead:
                self.timeline.note_replaced_value(
                    group_id, TopicPartition(topic, partition), before
                )
        if entry.pending_offsets:
            for pending in self._pending.values():
                if pending.pop(place, None) is not None:
                    entry.remove_pending_offset(place)

    # --- making tombstones for deleted offsets ---------------------------------------------------
    def tombstones(self, entry: GroupEntry, deleted: list[TopicPartition]) -> Records:
        """Make tombstones for the offsets of ``deleted``, and for the group if nothing else is left
        of it."""
        group_id = entry.group.group_id
        records: Records = [(commit_key(group_id, partition), None) for partition in deleted]
        if entry.is_empty and len(deleted) == len(entry.offsets):
            records.append((GroupMetadataKey(group=group_id), None))
        return records

    # --- the offsets that readers may see --------------------------------------------------------
    def visible_offsets(self, group_id: str, high_watermark: Offset) -> "VisibleOffsets":
        """The group's offsets as of the high watermark; empty if the group does not exist."""
        self.timeline.drop_passed_changes(high_watermark)
        entry = self.groups.get(group_id)
        if entry is None:
            return VisibleOffsets(group_id, GroupOffsets(), self.timeline, {})
        return VisibleOffsets(group_id, entry.offsets, self.timeline, entry.pending_offsets)


class VisibleOffsets:
    """The committed offsets of a group as of the high watermark.

    For a commit above the high watermark, readers see the offset before the commit, even if the
    commit is appended after this object was made. If the high watermark passes a commit while the
    object is in use, its reader may see either offset.
    """

    def __init__(
        self,
        group_id: str,
        newest: GroupOffsets,
        timeline: OffsetTimeline,
        pending: Mapping[TopicPartition, int],
    ) -> None:
        self._group_id = group_id
        self._newest = newest
        self._timeline = timeline
        self._instead = timeline.replaced_values(group_id)
        self._instead_in: dict[str, list[int]] | None = None
        """The partitions of ``_instead`` by topic, collected on first use. ``_instead`` has the
        offsets that readers see in place of newer commits above the high watermark."""
        self._pending = pending

    def is_stable(self, partition: TopicPartition) -> bool:
        """Whether the partition's offset that readers see is final until a new request (KIP-447).

        True if no open transaction has an offset of the partition, and no commit or deletion of its
        offset is above the high watermark.
        """
        is_changing = self._timeline.is_changing(self._group_id, partition)
        return partition not in self._pending and not is_changing

    def get(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        newest = self._newest.get(partition)
        kept = self._timeline.visible_value(self._group_id, partition, newest)
        return None if kept is None else unpacked(kept)

    def topics(self) -> list[str]:
        """Topics in which the group has an offset, now or as of the high watermark, sorted."""
        return sorted({*self._newest.topics(), *(each.topic for each in self._instead)})

    def partitions(self, topic: str) -> list[int]:
        """Partitions of a topic for which the group has an offset, now or as of the high watermark,
        sorted."""
        if self._instead_in is None:
            self._instead_in = {}
            for each in self._instead:
                self._instead_in.setdefault(each.topic, []).append(each.partition)
        newest, instead = self._newest.partitions(topic), self._instead_in.get(topic)
        # The stored partitions are mostly sorted, which makes sorting fast. A set would lose the
        # order.
        return sorted({*newest, *instead}) if instead else sorted(newest)


def _encode(key: Key, value: Value | None) -> tuple[bytes, bytes | None]:
    return encode_key(key), None if value is None else encode_value(value)


def _decode(key: bytes, value: bytes | None) -> tuple[Key, Value | None] | None:
    """Decode a record; None for a record this release cannot read, which stays in the log."""
    try:
        decoded = decode_key(key)
        return decoded, None if value is None else decode_value(decoded, value)
    except KlogError as error:
        _log.warning("record-skipped topic=__consumer_offsets reason=%r", str(error))
        return None


GROUP_RECORDS: StateRecordFormat[Key, Value] = StateRecordFormat(_encode, _decode)
