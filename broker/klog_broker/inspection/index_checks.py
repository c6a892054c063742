"""Checks a segment's index files against its batches; reads each file's rows once, in order."""

from collections.abc import Callable
from struct import Struct

import numpy as np
import numpy.typing as npt

from klog_broker.inspection.lines import Level
from klog_broker.inspection.report import MOST_OF_A_FILE, Report
from pyspark_klog.records.kernels import scan
from pyspark_klog.storage.indexes import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from pyspark_klog.storage.partition_files import ReadOnlyFile
from pyspark_klog.storage.segment_walk import Table

_ROWS_AT_ONCE = 65_536
_OFFSET_ROW = np.dtype([("first", ">i4"), ("second", ">i4")])
_TIME_ROW = np.dtype([("first", ">i8"), ("second", ">i4")])
assert _OFFSET_ROW.itemsize == OFFSET_INDEX_ENTRY.size
assert _TIME_ROW.itemsize == TIME_INDEX_ENTRY.size
# If a Kafka follower or Kafka's cleaner appended several batches at once, an index row can have the
# position of one of these batches, but the last offset of a later one. At most this many such rows
# are remembered until the scan reaches the later batch; further ones are reported as wrong, or are
# not checked.
_MOST_WAITING_ROWS = 1_000
_Numbers = npt.NDArray[np.int64]


class _Rows:
    """The rows of an index file in order, up to the first row that consists of zeros, or whose
    columns do not rise above those of the row before it (the second column of a time index may stay
    the same)."""

    def __init__(
        self,
        file: ReadOnlyFile,
        form: Struct,
        row_type: np.dtype[np.void],
        report: Report,
        level_of: Callable[[int], Level],
        *,
        strictly: bool,
    ) -> None:
        self.file = file
        self.row_bytes = form.size
        self._row_type = row_type
        self._report = report
        self._level_of = level_of
        # Whether the second column must rise from row to row, as the first column must. False for
        # the time index, in which two rows may have the same offset (second column).
        self._strictly = strictly
        self._position = 0
        self._before = (-1, -1) if not strictly else (0, 0)
        self._is_at_end = False
        self.first = np.empty(0, np.int64)
        self.second = np.empty(0, np.int64)
        self.number = 0
        """The number that the first row in ``first`` and ``second`` has in the index file."""
        self.zeros_at: int | None = None

    def fill(self) -> bool:
        """Read more rows of the file, and add them to the rows in memory. Return whether there were
        any."""
        if self._is_at_end:
            return False
        data = self.file.read_at(self._position, _ROWS_AT_ONCE * self.row_bytes)
        data = data[: len(data) - len(data) % self.row_bytes]
        rows = np.frombuffer(data, self._row_type)
        first, second = rows["first"].astype(np.int64), rows["second"].astype(np.int64)
        zeros = np.flatnonzero((first == 0) & (second == 0))
        if len(zeros):
            self._is_at_end = True
            self.zeros_at = self._position + int(zeros[0]) * self.row_bytes
            first, second = first[: zeros[0]], second[: zeros[0]]
        first, second = self._rising(first, second)
        self._position += len(data)
        self._is_at_end |= not len(data)
        self.first = np.concatenate((self.first, first))
        self.second = np.concatenate((self.second, second))
        return bool(len(first))

    def _rising(self, first: _Numbers, second: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Return the rows before the first row that does not rise above the row before it. Report
        that row: the binary search in an index can miss it and the rows after it."""
        a = np.concatenate(([self._before[0]], first))
        b = np.concatenate(([self._before[1]], second))
        falls = (a[1:] <= a[:-1]) | (b[1:] <= b[:-1] if self._strictly else b[1:] < b[:-1])
        if falls.any():
            row = int(np.argmax(falls))
            position = self._position + row * self.row_bytes
            text = (
                f"row {position // self.row_bytes} ({a[row + 1]}, {b[row + 1]}) does not rise above"
                f" ({a[row]}, {b[row]})"
            )
            offset = int(min(a[row], a[row + 1]) if self._strictly else min(b[row], b[row + 1]))
            self._report.add(self._level_of(offset), self.file.path, text, position)
            self._is_at_end = True
            self.zeros_at = None
            first, second = first[:row], second[:row]
        if len(first):
            self._before = int(first[-1]), int(second[-1])
        return first, second

    def drop(self, count: int) -> None:
        """Remove the first ``count`` rows from memory, because they have been checked."""
        self.number += count
        self.first, self.second = self.first[count:], self.second[count:]

    def check_end(self, *, may_be_preallocated: bool, is_growing: bool) -> None:
        """Check the bytes after the rows: none, or zeros in the preallocated index of the active
        segment. A file that a broker is appending to is not checked."""
        if is_growing:
            return
        size = self.file.size()
        odd = size % self.row_bytes
        if odd:
            text = f"{odd} bytes are left after the last row of {self.row_bytes} bytes"
            self._report.error(self.file.path, text, size - odd)
        if self.zeros_at is None:
            return
        place = self.zeros_at
        while piece := self.file.read_at(place, _ROWS_AT_ONCE * self.row_bytes):
            behind = piece.lstrip(b"\0")
            if behind:
                text = "numbers follow a row of zeros, which ends an index"
                self._report.error(self.file.path, text, place + len(piece) - len(behind))
                return
            place += len(piece)
        if not may_be_preallocated:
            text = f"{size - self.zeros_at} bytes of zeros in the index of a segment that is full"
            self._report.error(self.file.path, text, self.zeros_at)


class OffsetIndexCheck:
    """Checks the offset index: each row has the position and the last offset of a batch.

    If several batches were appended at once (by a Kafka follower or Kafka's cleaner), the row has
    the last offset of the last batch, and searches still find the right position.
    """

    def __init__(
        self, file: ReadOnlyFile, base: int, report: Report, level_of: Callable[[int], Level]
    ) -> None:
        self._base = base
        self._report = report
        self._level_of = level_of
        self._rows = _Rows(
            file,
            OFFSET_INDEX_ENTRY,
            _OFFSET_ROW,
            report,
            lambda relative: level_of(base + relative),
            strictly=True,
        )
        # The rows whose offset is not the last offset of the batch at their position, so that a
        # later batch must end with this offset: the row's number, its offset, and the last offset
        # of the batch at its position.
        self._later: list[tuple[int, int, int]] = []

    def add(self, rows: Table, positions: _Numbers) -> None:
        """Check the index rows that point into the next batches of the log: ``rows`` has the header
        fields of these batches, and ``positions`` their positions in the log file."""
        end = int(positions[-1] + rows[-1, scan.SIZE_BYTES])
        last_offsets = rows[:, scan.LAST_OFFSET]
        self._check_waiting_rows(last_offsets)
        while True:
            due = int(np.searchsorted(self._rows.second, end))
            self._check(due, rows, positions)
            if len(self._rows.second) or not self._rows.fill():
                return

    def _check(self, due: int, rows: Table, positions: _Numbers) -> None:
        wanted, offsets = self._rows.second[:due], self._rows.first[:due] + self._base
        place = np.searchsorted(positions, wanted)
        place[place == len(positions)] = 0
        begins = positions[place] == wanted
        found = rows[place, scan.LAST_OFFSET]
        odd = np.flatnonzero(~begins | (found != offsets))
        for row in odd[:_MOST_WAITING_ROWS].tolist():
            number, offset = self._rows.number + row, int(offsets[row])
            if not begins[row]:
                self._misfit(number, offset, f"no batch begins at byte {wanted[row]}")
            elif offset < rows[place[row], scan.BASE_OFFSET]:
                self._misfit(number, offset, _ends(int(found[row]), int(wanted[row])))
            else:
                self._later.append((number, offset, int(found[row])))
        for number, offset, last_offset in self._later[_MOST_WAITING_ROWS:]:
            self._misfit(number, offset, _ends(last_offset, None))
        del self._later[_MOST_WAITING_ROWS:]
        self._rows.drop(due)
        self._check_waiting_rows(rows[:, scan.LAST_OFFSET])

    def _check_waiting_rows(self, last_offsets: _Numbers) -> None:
        """Check the rows in ``_later`` against the next batches of the log, which have these last
        offsets: a row is right if one of the batches ends with the row's offset. Rows with a later
        offset wait for further batches."""
        still = []
        for number, offset, found in self._later:
            if offset > last_offsets[-1]:
                still.append((number, offset, found))
                continue
            at = int(np.searchsorted(last_offsets, offset))
            if offset < found or last_offsets[at] != offset:
                self._misfit(number, offset, _ends(found, None))
        self._later = still

    def _misfit(self, number: int, offset: int, why: str) -> None:
        text = f"row {number} names offset {offset}: {why}"
        place = number * self._rows.row_bytes
        self._report.add(self._level_of(offset), self._rows.file.path, text, place)

    def finish_segment(self, *, is_full: bool, is_growing: bool) -> None:
        """Finish the check after the segment's last batch: report the rows in ``_later``, the first
        row whose position is behind that batch, and unexpected bytes after the last row.
        ``is_full``: another segment follows this one. ``is_growing``: a broker is appending to this
        segment."""
        for number, offset, found in self._later:
            self._misfit(number, offset, _ends(found, None))
        if len(self._rows.second) or self._rows.fill():
            offset = int(self._rows.first[0]) + self._base
            why = f"byte {self._rows.second[0]} is behind the segment's last batch"
            self._misfit(self._rows.number, offset, why)
        self._rows.check_end(may_be_preallocated=not is_full, is_growing=is_growing)


def _ends(last_offset: int, position: int | None) -> str:
    where = "there" if position is None else f"at byte {position}"
    return f"the batch {where} ends with offset {last_offset}"


class TimeIndexCheck:
    """Checks the time index: each row has a new maximum timestamp of the segment, and an offset in
    the batch with that timestamp."""

    def __init__(
        self, file: ReadOnlyFile, base: int, report: Report, level_of: Callable[[int], Level]
    ) -> None:
        self._base = base
        self._report = report
        self._level_of = level_of
        self._rows = _Rows(
            file,
            TIME_INDEX_ENTRY,
            _TIME_ROW,
            report,
            lambda relative: level_of(base + relative),
            strictly=False,
        )
        self._largest_ms = -1
        self._largest_at = base
        self._last_row_ms = -1

    def add(self, rows: Table) -> None:
        """Check the index rows up to the largest timestamp of the next batches of the log, whose
        header fields are in ``rows``."""
        timestamps = rows[:, scan.MAX_TIMESTAMP_MS]
        before = np.maximum.accumulate(np.concatenate(([self._largest_ms], timestamps)))
        risers = np.flatnonzero(timestamps > before[:-1])
        if not len(risers):
            return
        self._largest_ms = int(before[-1])
        self._largest_at = int(rows[risers[-1], scan.LAST_OFFSET])
        while True:
            due = int(np.searchsorted(self._rows.first, self._largest_ms, side="right"))
            self._check(due, rows[risers])
            if len(self._rows.first) or not self._rows.fill():
                return

    def _check(self, due: int, risers: Table) -> None:
        wanted, offsets = self._rows.first[:due], self._rows.second[:due] + self._base
        place = np.searchsorted(risers[:, scan.MAX_TIMESTAMP_MS], wanted)
        place[place == len(risers)] = 0
        same = risers[place, scan.MAX_TIMESTAMP_MS] == wanted
        within = (risers[place, scan.BASE_OFFSET] <= offsets) & (
            offsets <= risers[place, scan.LAST_OFFSET]
        )
        for row in np.flatnonzero(~(same & within))[:MOST_OF_A_FILE].tolist():
            why = "no batch is the first with this timestamp"
            if same[row]:
                why = (
                    "the first batch with this timestamp ends with offset "
                    f"{risers[place[row], scan.LAST_OFFSET]}"
                )
            self._misfit(self._rows.number + row, int(wanted[row]), int(offsets[row]), why)
        if due:
            self._last_row_ms = int(wanted[-1])
        self._rows.drop(due)

    def _misfit(self, number: int, timestamp_ms: int, offset: int, why: str) -> None:
        text = f"row {number} names timestamp {timestamp_ms} at offset {offset}: {why}"
        place = number * self._rows.row_bytes
        self._report.add(self._level_of(offset), self._rows.file.path, text, place)

    def finish_segment(self, *, is_full: bool, is_growing: bool) -> None:
        """Finish the check after the segment's last batch: report the first row whose timestamp is
        above the segment's largest, in a full segment a last row below the largest timestamp, and
        unexpected bytes after the last row. ``is_full``: another segment follows this one.
        ``is_growing``: a broker is appending to this segment."""
        if len(self._rows.first) or self._rows.fill():
            self._last_row_ms = int(self._rows.first[0])
            offset = int(self._rows.second[0]) + self._base
            why = f"the segment's largest timestamp is {self._largest_ms}"
            self._misfit(self._rows.number, self._last_row_ms, offset, why)
        # If the largest timestamp is 0, its row may be missing: with the relative offset 0, the row
        # would consist of zeros, like the free space after the last row.
        if is_full and self._last_row_ms < self._largest_ms and self._largest_ms > 0:
            text = (
                f"the last row has timestamp {self._last_row_ms}, but the segment's largest "
                f"timestamp is {self._largest_ms}: retention uses the last row"
            )
            self._report.add(self._level_of(self._largest_at), self._rows.file.path, text)
        self._rows.check_end(may_be_preallocated=not is_full, is_growing=is_growing)
