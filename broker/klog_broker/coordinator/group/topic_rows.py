"""A group's committed offsets in one topic: what was loaded in a block, the rest one by one.

A shard may load a million offsets. In a block one takes its 52 bytes and no more; as an object in a
dict it takes almost three times as many. Neighbours are put into the block together.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import chain

from klog_broker.coordinator.group.packed_offsets import (
    FIXED,
    CommittedOffset,
    KeptOffset,
    PackedOffset,
    committed_at,
    record_offset_at,
    record_offset_of,
    times_at,
    times_of,
    unpacked,
)

_ROW_BYTES = FIXED.size
_ROW = struct.Struct(f"{_ROW_BYTES}s")
# The first byte of the record's offset, which is never negative in the block: so no row of it is
# like one that is absent, whatever its other fields are.
_MARK_AT = 24
_ABSENT = 0xFF
_ABSENT_MARK = bytes((_ABSENT,))
_ABSENT_ROW = _ABSENT_MARK * _ROW_BYTES
# The block may have so many rows for each offset of the topic, and a few more: the partitions' own
# numbers, which a client chooses, do not make it large.
_ROWS_AN_OFFSET = 2
_MORE_ROWS = 4


class TopicRows:
    """The offsets by partition. A partition's offset is in the block or in ``alone``, not in both.

    In ``alone`` are offsets that were committed since they were loaded, those with metadata, and
    those of partitions that are too far from the others. Its owner may write to ``alone``, but has
    to ``take`` what the block has of the partition.
    """

    __slots__ = ("_block", "alone", "in_block")

    def __init__(self) -> None:
        self.alone: dict[int, KeptOffset] = {}
        self.in_block = 0
        """How many offsets are in the block."""
        self._block = bytearray()

    def __len__(self) -> int:
        return len(self.alone) + self.in_block

    def __iter__(self) -> Iterator[int]:
        """The partitions."""
        return chain(self.alone, self._partitions_in_block())

    def _partitions_in_block(self) -> Iterable[int]:
        if not self.in_block:
            return ()
        marks = self._block[_MARK_AT::_ROW_BYTES]
        if len(marks) == self.in_block:
            return range(len(marks))
        # Of a block that is emptied from its start most is passed over at once.
        marks_left = marks.lstrip(_ABSENT_MARK)
        each = enumerate(marks_left, len(marks) - len(marks_left))
        return (partition for partition, mark in each if mark != _ABSENT)

    # --- reading ---------------------------------------------------------------------------------
    def committed(self, partition: int) -> CommittedOffset | None:
        kept = self.alone.get(partition)
        if kept is not None:
            return unpacked(kept)
        block, at = self._block, partition * _ROW_BYTES
        if not 0 <= at < len(block) or block[at + _MARK_AT] == _ABSENT:
            return None
        return committed_at(block, at)

    def record_offset(self, partition: int) -> int | None:
        """Where the offset stands in __consumer_offsets."""
        kept = self.alone.get(partition)
        if kept is not None:
            return record_offset_of(kept)
        block, at = self._block, partition * _ROW_BYTES
        if not 0 <= at < len(block) or block[at + _MARK_AT] == _ABSENT:
            return None
        return record_offset_at(block, at)

    def times(self, partition: int) -> tuple[int, int] | None:
        """When it was committed, and its expiry (packed_offsets.times_of)."""
        kept = self.alone.get(partition)
        if kept is not None:
            return times_of(kept)
        block, at = self._block, partition * _ROW_BYTES
        if not 0 <= at < len(block) or block[at + _MARK_AT] == _ABSENT:
            return None
        return times_at(block, at)

    # --- changing --------------------------------------------------------------------------------
    def put_neighbours(self, first: int, packed: bytes) -> int:
        """Keep offsets without metadata of neighbouring partitions, from ``first`` on, one behind
        the other in ``packed``; returns how many of the partitions had none."""
        block, alone, at = self._block, self.alone, first * _ROW_BYTES
        end, now = at + len(packed), len(block)
        # ASCII: no mark is negative.
        if (
            at < 0
            or not packed[_MARK_AT::_ROW_BYTES].isascii()
            or (end > now and not self._may_grow(max(at, now), end))
        ):
            return self._put_each_alone(first, packed)
        forgotten = 0
        if alone:
            for partition in range(first, end // _ROW_BYTES):
                forgotten += alone.pop(partition, None) is not None
        if at >= now:
            if at > now:
                block += _ABSENT_ROW * ((at - now) // _ROW_BYTES)
            block += packed
            new = len(packed) // _ROW_BYTES
        elif len(packed) == _ROW_BYTES:
            new = int(block[at + _MARK_AT] == _ABSENT)
            _ROW.pack_into(block, at, packed)
        else:
            new = block[at + _MARK_AT : end : _ROW_BYTES].count(_ABSENT)
            new += max(end - now, 0) // _ROW_BYTES
            block[at:end] = packed
        self.in_block += new
        return new - forgotten

    def _may_grow(self, at: int, end: int) -> bool:
        """Whether the block may end at ``end``, for offsets that lie in it from ``at`` on."""
        offsets = len(self.alone) + self.in_block + (end - at) // _ROW_BYTES
        return end <= (_ROWS_AN_OFFSET * offsets + _MORE_ROWS) * _ROW_BYTES

    def _put_each_alone(self, first: int, packed: bytes) -> int:
        rows = range(0, len(packed), _ROW_BYTES)
        return sum(
            self.put_alone(partition, packed[row : row + _ROW_BYTES])
            for partition, row in enumerate(rows, first)
        )

    def put_alone(self, partition: int, kept: KeptOffset) -> int:
        """Keep an offset outside of the block; returns 1 if the partition had none, or else 0."""
        before = self.alone.get(partition)
        self.alone[partition] = kept
        return int(before is None and self.take(partition) is None)

    def take(self, partition: int) -> PackedOffset | None:
        """Take the partition's offset out of the block, if it is there."""
        block, at = self._block, partition * _ROW_BYTES
        if not 0 <= at < len(block) or block[at + _MARK_AT] == _ABSENT:
            return None
        taken: PackedOffset
        (taken,) = _ROW.unpack_from(block, at)
        self.in_block -= 1
        if self.in_block:
            block[at + _MARK_AT] = _ABSENT
        else:
            block.clear()
        return taken
