"""Read a partition's files while a broker writes, rolls and deletes them.

The reader maps no file into memory, because the process would be killed if the broker truncated a
mapped file. An open file stays readable when the broker renames or deletes it. FileNotFoundError
means that a file was renamed or deleted since the listing: the caller lists the directory again.
"""

import os
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from pyspark_klog.ids import Offset
from pyspark_klog.storage.indexes import (
    OFFSET_INDEX_ENTRY,
    OFFSET_INDEX_ENTRY_BYTES,
    TIME_INDEX_ENTRY,
    TIME_INDEX_ENTRY_BYTES,
    OffsetIndexEntry,
    TimeIndexEntry,
    rows_at_or_below,
)
from pyspark_klog.storage.names import (
    SWAP_SUFFIX,
    Suffix,
    parse_segment_file_name,
    segment_file_name,
)

# The key of a row that cannot be read, in a binary search of an index file's rows: above every
# offset and timestamp that is searched for.
_NEVER = 2**63


@dataclass(slots=True)
class ReadCounter:
    """The total number of bytes that were read from files."""

    total_bytes: int = 0


class ReadOnlyFile:
    """A file that is open for reading until `close`, the end of a with statement, or the moment in
    which Python frees the object.

    :raises FileNotFoundError: if the file does not exist
    """

    def __init__(self, path: Path, counter: ReadCounter) -> None:
        self.path = path
        self._counter = counter
        self._file = path.open("rb", buffering=0)
        status = os.fstat(self._file.fileno())
        self.identity = (status.st_dev, status.st_ino)
        """Device and inode number. If the broker replaces the file by a new file of the same name,
        the new file has another identity, as long as this file is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file descriptor."""
        self._file.close()

    def size(self) -> int:
        """Return the file's size in bytes now.

        The last complete batch of a .log file may end earlier: preallocated zeros, or a batch that
        is not completely written, may follow it.
        """
        return os.fstat(self._file.fileno()).st_size

    def read_into(self, target: memoryview, position: int) -> int:
        """Read from ``position`` into ``target`` and return the number of bytes that were read.

        The number is below the length of ``target`` only if the file ends first.
        """
        self._file.seek(position)
        filled = 0
        while filled < len(target):
            count = self._file.readinto(target[filled:])
            if not count:
                break
            filled += count
        self._counter.total_bytes += filled
        return filled

    def read_at(self, position: int, size: int) -> bytes:
        """Return ``size`` bytes from ``position`` on, or fewer at the file's end."""
        data = bytearray(size)
        with memoryview(data) as view:
            return bytes(view[: self.read_into(view, position)])


class Listing(NamedTuple):
    """The segments and producer snapshots that one listing of a partition's directory found."""

    bases: tuple[int, ...]
    """The base offsets of the segments, lowest first."""
    snapshots: tuple[int, ...]
    """The offsets of the producer snapshots, lowest first."""
    is_being_swapped: bool
    """Whether the log cleaner is replacing segments now, by renaming files: until it has finished,
    a segment may be missing from `bases`."""

    def segment_of(self, offset: int) -> int | None:
        """Return the base offset of the last segment that begins at or before ``offset``.

        No other segment can hold the offset. The result is None if ``offset`` is below the first
        segment.
        """
        row = bisect_right(self.bases, offset)
        return self.bases[row - 1] if row else None

    def after(self, base: int) -> int | None:
        """Return the base offset of the first segment after the segment ``base``; None if that is
        the last segment."""
        row = bisect_right(self.bases, base)
        return self.bases[row] if row < len(self.bases) else None


class PartitionFiles:
    """The directory ``path`` of one partition; ``counter`` counts the bytes that are read."""

    def __init__(self, path: Path, counter: ReadCounter | None = None) -> None:
        self.path = path
        self.counter = ReadCounter() if counter is None else counter

    def listing(self) -> Listing:
        """Return the segments and producer snapshots that the directory holds now.

        :raises FileNotFoundError: if the directory does not exist
        """
        bases, snapshots, is_being_swapped = [], [], False
        for path in self.path.iterdir():
            found = parse_segment_file_name(path.name)
            if found is None:
                is_being_swapped |= path.name.endswith(SWAP_SUFFIX)
            elif found[1] is Suffix.LOG:
                bases.append(int(found[0]))
            elif found[1] is Suffix.PRODUCER_SNAPSHOT:
                snapshots.append(int(found[0]))
        return Listing(tuple(sorted(bases)), tuple(sorted(snapshots)), is_being_swapped)

    def open(self, base: int, suffix: Suffix = Suffix.LOG) -> ReadOnlyFile:
        """Open the file with the given suffix of the segment whose base offset is ``base``.

        :raises FileNotFoundError: if the file does not exist, or no longer exists
        """
        return ReadOnlyFile(self.path / segment_file_name(base, suffix), self.counter)

    def open_if_there(self, base: int, suffix: Suffix) -> ReadOnlyFile | None:
        """Open the file with the given suffix of the segment whose base offset is ``base``.

        The result is None if the segment exists without such a file.

        :raises FileNotFoundError: if the segment's .log file does not exist either: the segment was
            deleted or replaced
        """
        try:
            return self.open(base, suffix)
        except FileNotFoundError:
            # The broker renames the .log of a deleted segment before the segment's other files. If
            # the .log still exists, the segment is not deleted, and has no file with this suffix.
            (self.path / segment_file_name(base, Suffix.LOG)).stat()
            return None


# --- binary search in index files: reads single rows, and does not map the file into memory -------
class IndexSearch:
    """Search the offset index of the segment with the base offset ``base`` in the index's file.

    The index ends at the first row that is all zeros or cannot be read.
    """

    def __init__(self, file: ReadOnlyFile, base: int) -> None:
        self._file = file
        self._base = base
        self._count = file.size() // OFFSET_INDEX_ENTRY_BYTES

    def _row(self, row: int) -> OffsetIndexEntry | None:
        size = OFFSET_INDEX_ENTRY_BYTES
        data = self._file.read_at(row * size, size)
        if len(data) < size or not any(data):
            return None
        relative, position = OFFSET_INDEX_ENTRY.unpack(data)
        return OffsetIndexEntry(Offset(self._base + relative), position)

    def _rows_at_or_below(self, offset: int) -> int:
        def key_at(row: int) -> int:
            entry = self._row(row)
            return _NEVER if entry is None else entry.offset

        return rows_at_or_below(self._count, key_at, offset)

    def lookup(self, offset: int) -> OffsetIndexEntry:
        """Return the last row whose offset is <= ``offset``; if there is none, an entry with the
        segment's base offset and byte position 0."""
        rows = self._rows_at_or_below(offset)
        found = self._row(rows - 1) if rows else None
        return found or OffsetIndexEntry(Offset(self._base), 0)

    def position_behind(self, offset: int) -> int | None:
        """Return a byte position after all batches that begin at or before ``offset``.

        The result is the position of the second indexed batch that ends at or after ``offset``;
        None if the index has fewer than two such rows.
        """
        rows = self._rows_at_or_below(offset - 1)
        # The batch of row `rows` is the first of the index that ends at `offset` or later. The next
        # row's batch follows it, so it begins above `offset`.
        found = self._row(rows + 1) if rows + 1 < self._count else None
        return None if found is None else found.position


class TimeIndexSearch:
    """Search the time index of the segment with the base offset ``base`` in the index's file."""

    def __init__(self, file: ReadOnlyFile, base: int) -> None:
        self._file = file
        self._base = base
        self._count = file.size() // TIME_INDEX_ENTRY_BYTES

    def _row(self, row: int) -> TimeIndexEntry | None:
        size = TIME_INDEX_ENTRY_BYTES
        data = self._file.read_at(row * size, size)
        if len(data) < size or not any(data):
            return None
        timestamp_ms, relative = TIME_INDEX_ENTRY.unpack(data)
        return TimeIndexEntry(timestamp_ms, Offset(self._base + relative))

    def lookup(self, timestamp_ms: int) -> TimeIndexEntry:
        """Return the last row whose timestamp is <= ``timestamp_ms``; if there is none, an entry
        with the timestamp -1 and the segment's base offset."""

        def key_at(row: int) -> int:
            entry = self._row(row)
            return _NEVER if entry is None else entry.timestamp_ms

        rows = rows_at_or_below(self._count, key_at, timestamp_ms)
        found = self._row(rows - 1) if rows else None
        return found or TimeIndexEntry(-1, Offset(self._base))

    def largest_timestamp_ms(self) -> int | None:
        """Return the segment's largest timestamp in ms; -1 if the time index has no rows.

        The result is None while the index ends with zeros. When the broker rolls the segment, it
        writes the last row, which has the largest timestamp, and then cuts off the zeros.
        """
        if not self._count:
            return -1
        last = self._row(self._count - 1)
        return None if last is None else last.timestamp_ms
