"""The two indexes of a segment: the offset index and the time index.

An offset index maps offsets to byte positions in the log file; a time index maps timestamps to
offsets. Both consist of rows of fixed size in rising order, so that a look-up is a binary search.
`OffsetIndexView` and `TimeIndexView` work on any buffer and copy nothing. The broker also uses them
to search the active segment's indexes in memory.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from pyspark_klog.ids import Offset
from pyspark_klog.records.layout import Buffer
from pyspark_klog.storage.errors import StorageFormatError

# A batch's last offset, less the segment's base offset; the batch's byte position in the .log file.
OFFSET_INDEX_ENTRY = Struct(">ii")
# The largest timestamp of the segment so far; the last offset of the batch that has the timestamp,
# less the segment's base offset.
TIME_INDEX_ENTRY = Struct(">qi")
assert OFFSET_INDEX_ENTRY.size == 8
assert TIME_INDEX_ENTRY.size == 12
OFFSET_INDEX_ENTRY_BYTES = 8
TIME_INDEX_ENTRY_BYTES = 12
MAX_RELATIVE_OFFSET = 2**31 - 1

# OffsetIndexView.rows_at_or_below starts from a guess of its result, `near_row` (0: no guess). If
# the result lies within this many rows after the guess, only those rows (2 KB of the file) are
# searched.
_ROWS_AHEAD = 256


class OffsetIndexEntry(NamedTuple):
    """One row of an offset index: the batch at byte ``position`` has the last offset ``offset``."""

    offset: Offset
    position: int


class TimeIndexEntry(NamedTuple):
    """One row of a time index: no record up to ``offset`` (inclusive) is later than
    ``timestamp_ms``."""

    timestamp_ms: int
    offset: Offset


def rows_at_or_below(count: int, key_at: Callable[[int], int], target: int) -> int:
    """Return how many of the first ``count`` rows have a key <= ``target``.

    ``key_at`` returns the key of a row; the keys must rise from row to row.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if key_at(middle) <= target:
            low = middle + 1
        else:
            high = middle
    return low


class OffsetIndexView:
    """A view of the first ``entries`` rows of an .index file (default: all rows of the buffer)."""

    __slots__ = ("_buffer", "base_offset", "entries")

    def __init__(self, buffer: Buffer, base_offset: int, entries: int | None = None) -> None:
        if entries is None:
            if len(buffer) % OFFSET_INDEX_ENTRY_BYTES:
                raise StorageFormatError(
                    f"an offset index of {len(buffer)} bytes: expected a multiple of "
                    f"{OFFSET_INDEX_ENTRY_BYTES}; delete the file, and the broker writes it again"
                )
            entries = len(buffer) // OFFSET_INDEX_ENTRY_BYTES
        self._buffer = buffer
        self.base_offset = base_offset
        self.entries = entries

    def __len__(self) -> int:
        return self.entries

    def __getitem__(self, row: int) -> OffsetIndexEntry:
        if not 0 <= row < self.entries:
            raise IndexError(row)
        relative, position = OFFSET_INDEX_ENTRY.unpack_from(
            self._buffer, row * OFFSET_INDEX_ENTRY_BYTES
        )
        return OffsetIndexEntry(Offset(self.base_offset + relative), position)

    def __iter__(self) -> Iterator[OffsetIndexEntry]:
        return (self[row] for row in range(self.entries))

    def rows_at_or_below(self, offset: int, near_row: int = 0) -> int:
        """Return how many rows have an offset <= ``offset``.

        ``near_row`` is a guess of the result. The search is quicker if the guess is a little too
        low, and correct for any guess.
        """
        buffer, unpack = self._buffer, OFFSET_INDEX_ENTRY.unpack_from
        target = offset - self.base_offset
        low, high = 0, self.entries
        before = (near_row - 1) * OFFSET_INDEX_ENTRY_BYTES
        if 0 < near_row <= high and unpack(buffer, before)[0] <= target:
            low = near_row
            ahead = near_row + _ROWS_AHEAD
            if ahead < high and unpack(buffer, ahead * OFFSET_INDEX_ENTRY_BYTES)[0] > target:
                high = ahead
        while low < high:
            middle = (low + high) // 2
            if unpack(buffer, middle * OFFSET_INDEX_ENTRY_BYTES)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low

    def lookup(self, offset: int) -> OffsetIndexEntry:
        """Return the last row whose offset is <= ``offset``; if there is none, an entry with the
        segment's base offset and byte position 0."""
        rows = self.rows_at_or_below(offset)
        return self[rows - 1] if rows else OffsetIndexEntry(Offset(self.base_offset), 0)

    def check(self, log_bytes: int | None = None) -> None:
        """Raise StorageFormatError unless offsets and positions rise strictly, and positions are
        below ``log_bytes`` if it is given."""
        last_relative = last_position = 0
        for row in range(self.entries):
            relative, position = OFFSET_INDEX_ENTRY.unpack_from(
                self._buffer, row * OFFSET_INDEX_ENTRY_BYTES
            )
            # Both values must be above 0 in row 0, too: a segment's first batch never gets a row.
            if relative <= last_relative or position <= last_position:
                raise StorageFormatError(
                    f"offset index of segment {self.base_offset}: row {row} says offset "
                    f"{self.base_offset + relative} at byte {position}, after offset "
                    f"{self.base_offset + last_relative} at byte {last_position}: both must rise"
                )
            last_relative, last_position = relative, position
        if log_bytes is not None and last_position >= max(log_bytes, 1):
            raise StorageFormatError(
                f"offset index of segment {self.base_offset}: its last row points to byte "
                f"{last_position} of a log file of {log_bytes} bytes"
            )


class TimeIndexView:
    """A view of the first ``entries`` rows of a .timeindex file (default: all of the buffer)."""

    __slots__ = ("_buffer", "base_offset", "entries")

    def __init__(self, buffer: Buffer, base_offset: int, entries: int | None = None) -> None:
        if entries is None:
            if len(buffer) % TIME_INDEX_ENTRY_BYTES:
                raise StorageFormatError(
                    f"a time index of {len(buffer)} bytes: expected a multiple of "
                    f"{TIME_INDEX_ENTRY_BYTES}; delete the file, and the broker writes it again"
                )
            entries = len(buffer) // TIME_INDEX_ENTRY_BYTES
        self._buffer = buffer
        self.base_offset = base_offset
        self.entries = entries

    def __len__(self) -> int:
        return self.entries

    def __getitem__(self, row: int) -> TimeIndexEntry:
        if not 0 <= row < self.entries:
            raise IndexError(row)
        timestamp_ms, relative = TIME_INDEX_ENTRY.unpack_from(
            self._buffer, row * TIME_INDEX_ENTRY_BYTES
        )
        return TimeIndexEntry(timestamp_ms, Offset(self.base_offset + relative))

    def __iter__(self) -> Iterator[TimeIndexEntry]:
        return (self[row] for row in range(self.entries))

    def lookup(self, timestamp_ms: int) -> TimeIndexEntry:
        """Return the last row whose timestamp is <= ``timestamp_ms``; if there is none, an entry
        with the timestamp -1 and the segment's base offset."""
        rows = rows_at_or_below(
            self.entries,
            lambda row: int(
                TIME_INDEX_ENTRY.unpack_from(self._buffer, row * TIME_INDEX_ENTRY_BYTES)[0]
            ),
            timestamp_ms,
        )
        return self[rows - 1] if rows else TimeIndexEntry(-1, Offset(self.base_offset))

    def check(self) -> None:
        """Raise StorageFormatError unless timestamps rise strictly and offsets do not fall."""
        last_timestamp_ms, last_offset = -1, self.base_offset
        for row, (timestamp_ms, offset) in enumerate(self):
            if timestamp_ms <= last_timestamp_ms or offset < last_offset:
                raise StorageFormatError(
                    f"time index of segment {self.base_offset}: row {row} says timestamp "
                    f"{timestamp_ms} up to offset {offset}, after timestamp {last_timestamp_ms} "
                    f"up to offset {last_offset}: timestamps must rise, offsets must not fall"
                )
            last_timestamp_ms, last_offset = timestamp_ms, offset
