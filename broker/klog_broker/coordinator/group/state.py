"""What one shard of the group coordinator knows: its groups and their committed offsets."""

import logging
from collections.abc import Callable

from klog_broker.coordinator.group.classic.group import Group
from klog_broker.coordinator.group.classic.machine import GroupMachine, GroupSettings
from klog_broker.coordinator.group.classic.records import apply_metadata
from klog_broker.coordinator.group.classic.states import GroupState
from klog_broker.coordinator.group.offsets import OffsetBook, commit_key
from klog_broker.coordinator.group.unseen import UnseenCommits
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
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


class GroupEntry:
    """A group: its members' machine and its offsets. Either may be empty."""

    __slots__ = ("group", "machine", "offsets")

    def __init__(self, group: Group, machine: GroupMachine) -> None:
        self.group = group
        self.machine = machine
        self.offsets = OffsetBook()

    @property
    def is_forgettable(self) -> bool:
        """Nobody is in it, nobody is about to be, and no offset is kept for it."""
        group = self.group
        return group.state is GroupState.EMPTY and not group.pending and not self.offsets


class GroupShardState:
    """Groups by id. ``apply`` alone changes what survives a restart."""

    def __init__(self, settings: GroupSettings, new_member_id: Callable[[str], str]) -> None:
        self.groups: dict[str, GroupEntry] = {}
        self.unseen = UnseenCommits()
        self._settings = settings
        self._new_member_id = new_member_id

    def get_or_create(self, group_id: str) -> GroupEntry:
        entry = self.groups.get(group_id)
        if entry is None:
            group = Group(group_id)
            entry = GroupEntry(group, GroupMachine(group, self._settings, self._new_member_id))
            self.groups[group_id] = entry
        return entry

    def apply(self, key: Key, value: Value | None) -> None:
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            entry = self.groups.get(key.group)
            if entry is None and value is None:
                return
            partition = TopicPartition(key.topic, key.partition)
            self.get_or_create(key.group).offsets.apply(partition, value)
            return
        assert value is None or isinstance(value, GroupMetadataValue)
        if value is not None:
            apply_metadata(self.get_or_create(key.group).group, value)
        elif key.group in self.groups and not self.groups[key.group].offsets:
            del self.groups[key.group]

    def expire(
        self, entry: GroupEntry, now_ms: int, retention_ms: int, among: list[TopicPartition]
    ) -> Records:
        """Decide: tombstones for offsets ``among`` some that are past their time; for the group too
        if it has none left."""
        group_id = entry.group.group_id
        gone = entry.offsets.expired(entry.group, now_ms, retention_ms, among)
        return self._tombstones(entry, group_id, gone)

    def forget_topic(self, entry: GroupEntry, topic: str) -> Records:
        """Decide: tombstones for the offsets in a topic that was deleted."""
        gone = [partition for partition in entry.offsets if partition.topic == topic]
        return self._tombstones(entry, entry.group.group_id, gone) if gone else []

    def _tombstones(self, entry: GroupEntry, group_id: str, gone: list[TopicPartition]) -> Records:
        records: Records = [(commit_key(group_id, partition), None) for partition in gone]
        keeps_offsets = len(gone) < len(entry.offsets)
        is_empty = entry.group.state is GroupState.EMPTY and not entry.group.pending
        if is_empty and not keeps_offsets:
            records.append((GroupMetadataKey(group=group_id), None))
        return records


def encode_record(key: Key, value: Value | None) -> tuple[bytes, bytes | None]:
    return encode_key(key), None if value is None else encode_value(value)


def decode_record(key: bytes, value: bytes | None) -> tuple[Key, Value | None] | None:
    """None for a record that this release cannot read: it is kept in the log, and not used."""
    try:
        decoded = decode_key(key)
        return decoded, None if value is None else decode_value(decoded, value)
    except KlogError as error:
        _log.warning("record-skipped topic=__consumer_offsets reason=%r", str(error))
        return None
