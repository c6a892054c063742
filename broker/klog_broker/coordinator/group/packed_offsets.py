"""A committed offset, and the same as bytes: 52 of fixed fields, then the metadata in UTF-8.

A shard may load a million of them. Bytes take a fraction of what a tuple and its numbers take, the
garbage collector never looks at them, and the kernel writes them (commit_kernel.py); most of them
lie one behind the other (topic_rows.py). An offset that is committed later is kept as it comes: to
pack it would take longer than to keep it.
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from pyspark_klog.ids import UUID, LeaderEpoch, Offset
from pyspark_klog.state_records.consumer_offsets import NO_TOPIC_ID
from pyspark_klog.state_records.offset_commit import OffsetCommitValue

PackedOffset = bytes

FIXED = struct.Struct(">qqqqi16s")
"""Offset, time of the commit, expiry, offset of the record, leader epoch, topic id."""

_TIMES = struct.Struct(">8xqq")
_RECORD_OFFSET = struct.Struct(">24xq")
_NO_ID = NO_TOPIC_ID.bytes


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


KeptOffset = CommittedOffset | PackedOffset


def unpacked(kept: KeptOffset) -> CommittedOffset:
    if not isinstance(kept, bytes):
        return kept
    found = committed_at(kept, 0)
    if len(kept) == FIXED.size:
        return found
    return found._replace(metadata=kept[FIXED.size :].decode())


def committed_at(data: bytes | bytearray, at: int) -> CommittedOffset:
    """The offset whose fixed fields lie at a position; it has no metadata."""
    offset, commit_ms, expire_ms, record_offset, leader_epoch, topic_id = FIXED.unpack_from(
        data, at
    )
    return CommittedOffset(
        offset, leader_epoch, "", commit_ms, expire_ms, record_offset, _id_of(topic_id)
    )


def times_of(kept: KeptOffset) -> tuple[int, int]:
    """When it was committed, and its expiry (-1: none of its own), both in ms of wall clock."""
    return times_at(kept, 0) if isinstance(kept, bytes) else (kept.commit_ms, kept.expire_ms)


def times_at(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """As ``times_of``, of the offset at a position."""
    commit_ms, expire_ms = _TIMES.unpack_from(data, at)
    return commit_ms, expire_ms


def record_offset_of(kept: KeptOffset) -> int:
    """Where it stands in __consumer_offsets."""
    return record_offset_at(kept, 0) if isinstance(kept, bytes) else kept.record_offset


def record_offset_at(data: bytes | bytearray, at: int) -> int:
    """As ``record_offset_of``, of the offset at a position."""
    (record_offset,) = _RECORD_OFFSET.unpack_from(data, at)
    return int(record_offset)


@lru_cache(maxsize=4096)
def _id_of(data: bytes) -> UUID:
    """The topic's id; the same few come again and again."""
    return NO_TOPIC_ID if data == _NO_ID else UUID(bytes=data)
