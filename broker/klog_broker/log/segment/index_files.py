"""The offset and time index files of a segment, mapped into memory.

A mapped file needs a descriptor only to be resized or synced. The index of an active segment is a
sparse file of segment.index.bytes, which is cut to its rows when the segment is rolled or closed,
as in Kafka. Disk space is allocated a few pages ahead of the rows, because on a full disk a store
into a hole of a mapped file would kill the process.
"""

from collections.abc import Sequence
from pathlib import Path
from struct import Struct, pack

from klog_broker.runtime.disk.files import File, Files, Mapping
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import Offset
from pyspark_klog.storage.indexes import (
    MAX_RELATIVE_OFFSET,
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    OffsetIndexView,
    TimeIndexEntry,
    TimeIndexView,
)

_ALLOCATE_BYTES = 16 * 1024
_NO_BYTES = memoryview(b"")


class _MappedRows:
    """Rows of fixed size at the start of a mapped index file. With ``max_bytes`` the file is
    extended to this size, so that rows can be added."""

    def __init__(self, files: Files, path: Path, row: Struct, max_bytes: int | None) -> None:
        self._file: File = files.open(path, create=True)
        self._row_bytes = row.size
        size = self._file.size()
        self.rows = size // self._row_bytes
        self.misfit_bytes = size % self._row_bytes
        self.max_rows = self.rows
        if max_bytes is not None:
            self.max_rows = max(self.rows, max_bytes // self._row_bytes)
            self._file.truncate(self.max_rows * self._row_bytes)
        self._allocated_bytes = self.rows * self._row_bytes
        self._mapping: Mapping | None = None
        self._map()
        self._file.release_descriptor()

    def _map(self) -> None:
        if self.max_rows:
            self._mapping = self._file.map(self.max_rows * self._row_bytes)

    @property
    def view(self) -> memoryview:
        return self._mapping.view if self._mapping is not None else _NO_BYTES

    @property
    def file(self) -> File:
        return self._file

    def reserve(self, rows: int) -> None:
        """Allocate disk space for ``rows`` more index rows, but not beyond the maximum size of the
        file."""
        needed = min(self.rows + rows, self.max_rows) * self._row_bytes
        if needed > self._allocated_bytes:
            end = min(needed + _ALLOCATE_BYTES, self.max_rows * self._row_bytes)
            self._file.allocate(self._allocated_bytes, end - self._allocated_bytes)
            self._allocated_bytes = end
            self._file.release_descriptor()

    def cut(self, rows: int) -> None:
        """Keep only the first ``rows`` rows of the index. The rest of the file then takes no disk
        space and reads as zeros."""
        if rows == self.rows:
            return
        with self._file.held():
            self._unmap()
            self._file.truncate(rows * self._row_bytes)
            self._file.truncate(self.max_rows * self._row_bytes)
            self._allocated_bytes = rows * self._row_bytes
            self.rows = rows
            self._map()
        self._file.release_descriptor()

    def trim(self) -> None:
        """Cut the index file after its last row. The caller must hold the file's descriptor."""
        if self.max_rows == self.rows and not self.misfit_bytes:
            return
        self._unmap()
        self._file.truncate(self.rows * self._row_bytes)
        self.max_rows = self.rows
        self.misfit_bytes = 0
        self._map()

    def close(self) -> None:
        # Do not close the file itself here, because a helper thread may be syncing it. The file is
        # closed when the last reference to it is dropped.
        self._unmap()

    def _unmap(self) -> None:
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            mapping.close()


class OffsetIndexFile:
    """The offset index ``<base offset>.index``. Rows can be added only if ``max_bytes`` is
    given."""

    def __init__(
        self, files: Files, path: Path, base_offset: int, max_bytes: int | None = None
    ) -> None:
        self._rows = _MappedRows(files, path, OFFSET_INDEX_ENTRY, max_bytes)
        self.base_offset = base_offset

    @property
    def entries(self) -> int:
        return self._rows.rows

    @property
    def misfit_bytes(self) -> int:
        """The number of bytes after the last whole row of the index file, when the file was opened;
        0 after :meth:`trim`."""
        return self._rows.misfit_bytes

    @property
    def file(self) -> File:
        return self._rows.file

    @property
    def is_full(self) -> bool:
        return self._rows.rows >= self._rows.max_rows

    def view(self) -> OffsetIndexView:
        return OffsetIndexView(self._rows.view, self.base_offset, self._rows.rows)

    @property
    def free_rows(self) -> int:
        """The number of rows that can be added to the index."""
        return self._rows.max_rows - self._rows.rows

    def reserve(self, rows: int = 1) -> None:
        """Allocate disk space for ``rows`` rows. Call before an append: a full disk raises OSError
        here, but would kill the process in :meth:`append`."""
        self._rows.reserve(rows)

    def append(self, offset: int, position: int) -> None:
        """Add a row to the offset index. ``offset`` and ``position`` must be larger than those of
        the last row."""
        rows = self._rows
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_RELATIVE_OFFSET:
            raise InvariantViolation(
                f"offset {offset} does not fit into the index of segment {self.base_offset}: an "
                f"offset can be at most {MAX_RELATIVE_OFFSET} above the base"
            )
        OFFSET_INDEX_ENTRY.pack_into(
            rows.view, rows.rows * OFFSET_INDEX_ENTRY.size, relative, position
        )
        rows.rows += 1

    def append_all(self, entries: Sequence[tuple[int, int]]) -> None:
        """Add many rows (offset, position) to the offset index, in ascending order of both
        numbers."""
        rows, base_offset = self._rows, self.base_offset
        if (
            not 0
            <= entries[0][0] - base_offset
            <= entries[-1][0] - base_offset
            <= (MAX_RELATIVE_OFFSET)
        ):
            raise InvariantViolation(
                f"offsets {entries[0][0]} to {entries[-1][0]} do not fit into the index of segment "
                f"{base_offset}: an offset can be at most {MAX_RELATIVE_OFFSET} above the base"
            )
        numbers = [number for offset, at in entries for number in (offset - base_offset, at)]
        data = pack(f">{len(numbers)}i", *numbers)
        start = rows.rows * OFFSET_INDEX_ENTRY.size
        rows.view[start : start + len(data)] = data
        rows.rows += len(entries)

    def cut_to_position(self, position: int) -> None:
        """Drop the index rows of batches that start at or after ``position``, and the first row out
        of order with all rows after it."""
        keep, last_offset, last_position = 0, self.base_offset, 0
        for offset, at in self.view():
            if offset <= last_offset or at <= last_position or at >= position:
                break
            keep, last_offset, last_position = keep + 1, offset, at
        self._rows.cut(keep)

    def trim(self) -> None:
        self._rows.trim()

    def close(self) -> None:
        self._rows.close()


class TimeIndexFile:
    """The time index ``<base offset>.timeindex``. Rows can be added only if ``max_bytes`` is
    given."""

    def __init__(
        self, files: Files, path: Path, base_offset: int, max_bytes: int | None = None
    ) -> None:
        if max_bytes is not None:
            # Even the smallest index has space for the entry that is added when the segment is
            # rolled or its log is closed: only this entry is sure to have the largest timestamp.
            max_bytes = max(max_bytes, TIME_INDEX_ENTRY.size)
        self._rows = _MappedRows(files, path, TIME_INDEX_ENTRY, max_bytes)
        self.base_offset = base_offset
        self._last: TimeIndexEntry | None = None

    @property
    def last(self) -> TimeIndexEntry:
        """The last row; (-1, base offset) without rows. Read from the mapping only at first use,
        because the page may not be in memory."""
        if self._last is None:
            view = self.view()
            none = TimeIndexEntry(-1, Offset(self.base_offset))
            self._last = view[len(view) - 1] if len(view) else none
        return self._last

    @property
    def entries(self) -> int:
        return self._rows.rows

    @property
    def misfit_bytes(self) -> int:
        """The number of bytes after the last whole row of the index file, when the file was opened;
        0 after :meth:`trim`."""
        return self._rows.misfit_bytes

    @property
    def file(self) -> File:
        return self._rows.file

    @property
    def is_full(self) -> bool:
        """Whether no more rows can be added, except the last row, which is reserved for the
        segment's largest timestamp (added when the segment is rolled or its log is closed)."""
        return self._rows.rows >= self._rows.max_rows - 1

    def view(self) -> TimeIndexView:
        return TimeIndexView(self._rows.view, self.base_offset, self._rows.rows)

    @property
    def free_rows(self) -> int:
        """The number of rows that can be added, without the last row, which is reserved for the
        segment's largest timestamp (added when the segment is rolled or its log is closed)."""
        return self._rows.max_rows - 1 - self._rows.rows

    def reserve(self, rows: int = 1) -> None:
        """Allocate disk space for ``rows`` rows, and for the row with the largest timestamp that is
        added when the segment is rolled or its log is closed. Call before an append: a full disk
        raises OSError here, but would kill the process in :meth:`maybe_append`."""
        self._rows.reserve(rows + 1)

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Add a row to the time index, if the timestamp is later than that of the last row and a
        row is free."""
        rows = self._rows
        if timestamp_ms <= self.last.timestamp_ms or rows.rows >= rows.max_rows:
            return
        TIME_INDEX_ENTRY.pack_into(
            rows.view, rows.rows * TIME_INDEX_ENTRY.size, timestamp_ms, offset - self.base_offset
        )
        rows.rows += 1
        self._last = TimeIndexEntry(timestamp_ms, Offset(offset))

    def append_all(self, entries: Sequence[tuple[int, int]]) -> None:
        """Do the same as :meth:`maybe_append` for many rows (timestamp, offset), in one write."""
        rows, base_offset = self._rows, self.base_offset
        largest_ms = self.last.timestamp_ms
        later = []
        for entry in entries:
            if entry[0] > largest_ms:
                largest_ms = entry[0]
                later.append(entry)
        del later[rows.max_rows - rows.rows :]
        if later:
            pack = TIME_INDEX_ENTRY.pack
            data = b"".join([pack(time_ms, offset - base_offset) for time_ms, offset in later])
            start = rows.rows * TIME_INDEX_ENTRY.size
            rows.view[start : start + len(data)] = data
            rows.rows += len(later)
            self._last = TimeIndexEntry(later[-1][0], Offset(later[-1][1]))

    def cut_to_offset(self, offset: int) -> None:
        """Drop the index rows with ``offset`` or a later offset, and the first row out of order
        with all rows after it."""
        keep, last_timestamp_ms, last_offset = 0, -1, self.base_offset
        for timestamp_ms, at in self.view():
            if timestamp_ms <= last_timestamp_ms or at < last_offset or at >= offset:
                break
            keep, last_timestamp_ms, last_offset = keep + 1, timestamp_ms, at
        self._rows.cut(keep)
        self._last = None

    def trim(self) -> None:
        self._rows.trim()

    def close(self) -> None:
        self._rows.close()
