"""A partition's directory as files that can be read while a broker writes, rolls and deletes them.

Nothing is mapped into memory: a mapped file that its broker cuts would end the reader's process. A
file that is open stays whole under any name, also when it is deleted; FileNotFoundError for a name
that has gone means to list again.
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

_NEVER = 2**63  # above every offset and timestamp: the key of a row that is not there


@dataclass(slots=True)
class ReadCounter:
    """How many bytes were read from files."""

    total_bytes: int = 0


class ReadOnlyFile:
    """An open file. Closed by `close`, at the end of a with statement, or with its last reference.

    :raises FileNotFoundError: if it is not there
    """

    def __init__(self, path: Path, counter: ReadCounter) -> None:
        self.path = path
        self._counter = counter
        self._file = path.open("rb", buffering=0)
        status = os.fstat(self._file.fileno())
        self.identity = (status.st_dev, status.st_ino)
        """Tells a file from one that has been put in its place, while either of them is open."""

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
        """Give the descriptor back."""
        self._file.close()

    def size(self) -> int:
        """Its bytes now. Never the end of a log: there may be room kept, or a torn write."""
        return os.fstat(self._file.fileno()).st_size

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill ``target`` from ``position`` on; fewer bytes only at the file's end."""
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
        """Up to ``size`` bytes; fewer only at the file's end."""
        data = bytearray(size)
        with memoryview(data) as view:
            return bytes(view[: self.read_into(view, position)])


class Listing(NamedTuple):
    """What a partition's directory held at one moment."""

    bases: tuple[int, ...]
    """The segments' base offsets, rising."""
    snapshots: tuple[int, ...]
    """The offsets of producer snapshots, rising."""
    is_being_swapped: bool
    """Whether the log cleaner is putting its result in place: names are missing for a moment."""

    def segment_of(self, offset: int) -> int | None:
        """The base of the segment that holds the offset if any does; None before the first."""
        row = bisect_right(self.bases, offset)
        return self.bases[row - 1] if row else None

    def after(self, base: int) -> int | None:
        """The next segment's base; None behind the last."""
        row = bisect_right(self.bases, base)
        return self.bases[row] if row < len(self.bases) else None


class PartitionFiles:
    """The directory ``path`` of one partition; ``counter`` adds up what is read from it."""

    def __init__(self, path: Path, counter: ReadCounter | None = None) -> None:
        self.path = path
        self.counter = ReadCounter() if counter is None else counter

    def listing(self) -> Listing:
        """What is there now.

        :raises FileNotFoundError: if the directory is not there
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
        """One of a segment's files.

        :raises FileNotFoundError: if it is not there (any more)
        """
        return ReadOnlyFile(self.path / segment_file_name(base, suffix), self.counter)

    def open_if_there(self, base: int, suffix: Suffix) -> ReadOnlyFile | None:
        """The same, None for a file that a segment need not have.

        :raises FileNotFoundError: if the segment itself has gone, with which its other files go
        """
        try:
            return self.open(base, suffix)
        except FileNotFoundError:
            # A segment's .log is renamed before its other files: as long as it is there, so would
            # the other one have been.
            (self.path / segment_file_name(base, Suffix.LOG)).stat()
            return None


# --- indexes: searched row by row, as the zeros behind the active segment's may go any moment -----
class IndexSearch:
    """A segment's offset index. Rows that cannot be read, and zeros, are behind the last row."""

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
        """The last row whose offset is <= ``offset``; (base, 0) if there is none."""
        rows = self._rows_at_or_below(offset)
        found = self._row(rows - 1) if rows else None
        return found or OffsetIndexEntry(Offset(self._base), 0)

    def position_behind(self, offset: int) -> int | None:
        """A position behind all batches that begin at or before ``offset``, as near as the index
        knows; None: the end of the file."""
        rows = self._rows_at_or_below(offset - 1)
        # The batches of row `rows` end at the offset or later: those of the next row begin later.
        found = self._row(rows + 1) if rows + 1 < self._count else None
        return None if found is None else found.position


class TimeIndexSearch:
    """A segment's time index."""

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
        """The last row whose timestamp is <= ``timestamp_ms``; (-1, base) if there is none."""

        def key_at(row: int) -> int:
            entry = self._row(row)
            return _NEVER if entry is None else entry.timestamp_ms

        rows = rows_at_or_below(self._count, key_at, timestamp_ms)
        found = self._row(rows - 1) if rows else None
        return found or TimeIndexEntry(-1, Offset(self._base))

    def largest_timestamp_ms(self) -> int | None:
        """The segment's largest timestamp (-1: it has none), once it is known for good: the last
        row is made when the segment is rolled, just before the room behind it is cut off."""
        if not self._count:
            return -1
        last = self._row(self._count - 1)
        return None if last is None else last.timestamp_ms
