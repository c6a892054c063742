"""A group's committed offsets in one topic: most loaded ones packed in a block, others in a dict.

A shard may load a million offsets. An offset takes 52 bytes in the block. A dict takes
almost three times as many bytes for a packed offset, and five times as many for an
OffsetAndMetadata.
Offsets of adjacent partitions are put into the block together.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import chain

from klog_broker.coordinator.group.packed_offsets import (
    FIXED,
    OffsetAndMetadata,
    PackedOffset,
    StoredOffset,
    committed_at,
    record_offset_at,
    record_offset_of,
    times_at,
    times_of,
    unpacked,
)

_ROW_BYTES = FIXED.size
_ROW = struct.Struct(f"{_ROW_BYTES}s")
# The block is a bytearray with a row of 52 bytes for each partition. Position in a row of the byte
# that marks the row as empty (the partition has no offset in the block): the first byte of the
# record offset. No record offset in the block is negative, so this byte of a stored offset cannot
# be 0xFF.
_MARK_AT = 24
_ABSENT = 0xFF
_ABSENT_MARK = bytes((_ABSENT,))
_ABSENT_ROW = _ABSENT_MARK * _ROW_BYTES
# The block, a bytearray with one row for each partition, may grow to _ROWS_AN_OFFSET rows for each
# of the topic's offsets, plus _MORE_ROWS. So a client cannot make the block large by committing an
# offset of a high partition number.
_ROWS_AN_OFFSET = 2
_MORE_ROWS = 4


class TopicRows:
    """A group's offsets in a topic: each is either in the block or in ``outside_block``.

    The block is a bytearray with one row of 52 bytes for each partition from partition 0 on.
    ``outside_block`` has the offsets that were committed after loading or loaded one by one, those
    with metadata, and those of partitions so far above the others that most rows of the block would
    have no offset.
    Callers may write to ``outside_block``, but must then remove the partition's offset from the
    block with ``pop_from_block``.
    """

    __slots__ = ("_block", "in_block", "outside_block")

    def __init__(self) -> None:
        self.outside_block: dict[int, StoredOffset] = {}
        self.in_block = 0
        """The number of offsets in ``_block``, which has a row of 52 bytes for each partition."""
        self._block = bytearray()

    def __len__(self) -> int:
        return len(self.outside_block) + self.in_block

    def __iter__(self) -> Iterator[int]:
        """The partitions that have an offset, in no particular order."""
        return chain(self.outside_block, self._partitions_in_block())

    def _partitions_in_block(self) -> Iterable[int]:
        if not self.in_block:
            return ()
        marks = self._block[_MARK_AT::_ROW_BYTES]
        if len(marks) == self.in_block:
            return range(len(marks))
        # lstrip skips the rows without an offset fast, if the offsets of the lowest partitions were
        # removed.
        marks_left = marks.lstrip(_ABSENT_MARK)
        each = enumerate(marks_left, len(marks) - len(marks_left))
        return (partition for partition, mark in each if mark != _ABSENT)

    # --- reading the offsets ---------------------------------------------------------------------
    def committed(self, partition: int) -> OffsetAndMetadata | None:
        stored = self.outside_block.get(partition)
        if stored is not None:
            return unpacked(stored)
        block, at = self._block, partition * _ROW_BYTES
        if not 0 <= at < len(block) or block[at + _MARK_AT] == _ABSENT:
            return None
        return committed_at(block, at)

    def record_offset(self, partition: int) -> int | None:
        """The offset of the commit's record in __consumer_offsets; None without a commit."""
        stored = self.outside_block.get(partition)
        if stored is not None:
            return record_offset_of(stored)
        block, at = self._block, partition * _ROW_BYTES
        if not 0 <= at < len(block) or block[at + _MARK_AT] == _ABSENT:
            return None
        return record_offset_at(block, at)

    def times(self, partition: int) -> tuple[int, int] | None:
        """The commit's time and expiry in ms (packed_offsets.times_of); None without a commit."""
        stored = self.outside_block.get(partition)
        if stored is not None:
            return times_of(stored)
        block, at = self._block, partition * _ROW_BYTES
        if not 0 <= at < len(block) or block[at + _MARK_AT] == _ABSENT:
            return None
        return times_at(block, at)

    # --- changing the offsets --------------------------------------------------------------------
    def put_adjacent(self, first: int, packed: bytes) -> int:
        """Store packed offsets without metadata, of adjacent partitions.

        ``packed`` has one row for each partition, starting with partition ``first``. Returns how
        many of the partitions had no offset before.
        """
        block, alone, at = self._block, self.outside_block, first * _ROW_BYTES
        end, now = at + len(packed), len(block)
        # A byte above 0x7F at _MARK_AT begins a negative record offset, which the block cannot
        # hold.
        if (
            at < 0
            or not packed[_MARK_AT::_ROW_BYTES].isascii()
            or (end > now and not self._may_grow(max(at, now), end))
        ):
            return self._put_each_outside_block(first, packed)
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
        """Whether the block, the bytearray of packed offsets, may grow to ``end`` bytes, to store
        offsets in the bytes from ``at`` on."""
        offsets = len(self.outside_block) + self.in_block + (end - at) // _ROW_BYTES
        return end <= (_ROWS_AN_OFFSET * offsets + _MORE_ROWS) * _ROW_BYTES

    def _put_each_outside_block(self, first: int, packed: bytes) -> int:
        rows = range(0, len(packed), _ROW_BYTES)
        return sum(
            self.put_outside_block(partition, packed[row : row + _ROW_BYTES])
            for partition, row in enumerate(rows, first)
        )

    def put_outside_block(self, partition: int, stored: StoredOffset) -> int:
        """Store an offset in the dict, not in the block (the bytearray of packed offsets); returns
        1 if the partition had no offset, or else 0."""
        before = self.outside_block.get(partition)
        self.outside_block[partition] = stored
        return int(before is None and self.pop_from_block(partition) is None)

    def pop_from_block(self, partition: int) -> PackedOffset | None:
        """Remove the partition's offset from the block (the bytearray of packed offsets) and return
        it; None if the block has none."""
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
