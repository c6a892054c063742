"""A committed offset, as an object or packed: 52 bytes of fixed fields, then UTF-8 metadata.

A shard may load a million offsets. Packed bytes take a fraction of the memory of a tuple and its
numbers, the garbage collector skips them, and the kernel can write them (commit_kernel.py). Most
packed offsets of a group in a topic are stored in one block (topic_rows.py). Offsets committed
after loading stay objects, because packing costs more time than storing the object.
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from pyspark_klog.ids import UUID, LeaderEpoch, Offset
from pyspark_klog.state_records.consumer_offsets import NO_TOPIC_ID
from pyspark_klog.state_records.offset_commit import OffsetCommitValue

PackedOffset = bytes

FIXED = struct.Struct(">qqqqi16s")
"""The fixed fields of a packed offset: offset, commit time, expiry, record offset, leader epoch,
topic id."""

_TIMES = struct.Struct(">8xqq")
_RECORD_OFFSET = struct.Struct(">24xq")
_NO_ID = NO_TOPIC_ID.bytes


class OffsetAndMetadata(NamedTuple):
    """A committed offset of a partition: the next offset to read.

    ``commit_ms`` and ``expire_ms`` are wall clock times; ``expire_ms`` is -1 unless the commit set
    a retention time (OffsetCommit 2 to 4). ``record_offset`` is the offset of the commit's record
    in __consumer_offsets. ``topic_id`` is 0 if the record has none, like the records of older
    releases and records with an expiry.
    """

    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_ms: int
    expire_ms: int
    record_offset: Offset
    topic_id: UUID = NO_TOPIC_ID

    @classmethod
    def from_record(cls, value: OffsetCommitValue, record_offset: int) -> "OffsetAndMetadata":
        return cls(
            Offset(value.offset),
            LeaderEpoch(value.leader_epoch),
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            Offset(record_offset),
            value.topic_id,
        )

    def matches_topic_id(self, topic_id: UUID) -> bool:
        """Whether the offset was committed in the topic with this id.

        False for an offset of an earlier topic of the same name. If the committed offset or the
        topic has no known id (NO_TOPIC_ID), the two count as a match, as in Kafka 4.3.
        """
        return self.topic_id in (topic_id, NO_TOPIC_ID) or topic_id == NO_TOPIC_ID


StoredOffset = OffsetAndMetadata | PackedOffset


def unpacked(stored: StoredOffset) -> OffsetAndMetadata:
    if not isinstance(stored, bytes):
        return stored
    found = committed_at(stored, 0)
    if len(stored) == FIXED.size:
        return found
    return found._replace(metadata=stored[FIXED.size :].decode())


def committed_at(data: bytes | bytearray, at: int) -> OffsetAndMetadata:
    """Return the committed offset whose packed fields start at byte ``at`` of ``data``, without its
    metadata."""
    offset, commit_ms, expire_ms, record_offset, leader_epoch, topic_id = FIXED.unpack_from(
        data, at
    )
    return OffsetAndMetadata(
        offset, leader_epoch, "", commit_ms, expire_ms, record_offset, _id_of(topic_id)
    )


def times_of(stored: StoredOffset) -> tuple[int, int]:
    """The commit time and the expiry (-1 if the commit set none), both in ms of wall clock."""
    return (
        times_at(stored, 0) if isinstance(stored, bytes) else (stored.commit_ms, stored.expire_ms)
    )


def times_at(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """The commit time and the expiry (-1 if the commit set none), both in ms of wall clock, of the
    committed offset whose packed fields start at byte ``at`` of ``data``."""
    commit_ms, expire_ms = _TIMES.unpack_from(data, at)
    return commit_ms, expire_ms


def record_offset_of(stored: StoredOffset) -> int:
    """The offset of the commit's record in __consumer_offsets."""
    return record_offset_at(stored, 0) if isinstance(stored, bytes) else stored.record_offset


def record_offset_at(data: bytes | bytearray, at: int) -> int:
    """The offset of the commit's record in __consumer_offsets; the committed offset's packed fields
    start at byte ``at`` of ``data``."""
    (record_offset,) = _RECORD_OFFSET.unpack_from(data, at)
    return int(record_offset)


@lru_cache(maxsize=4096)
def _id_of(data: bytes) -> UUID:
    """Convert a topic id; cached, because offsets share a few topic ids."""
    return NO_TOPIC_ID if data == _NO_ID else UUID(bytes=data)
