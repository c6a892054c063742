"""Segment: a .log file of batches, its offset index, time index and transaction index.

A segment only reads and writes bytes at positions. PartitionLog decides which batches are appended
and which batches readers may see.
"""

import errno
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from klog_broker.log.errors import ColdRead, ShortWrite
from klog_broker.log.log_config import LogConfig
from klog_broker.log.segment.batch_positions import (
    AppendedBatch,
    BatchPosition,
    iterate_batches,
    max_timestamp_of,
)
from klog_broker.log.segment.index_files import OffsetIndexFile, TimeIndexFile
from klog_broker.log.segment.planned_append import PlannedAppend, RollLimits
from klog_broker.log.segment.transaction_index_file import TransactionIndexFile
from klog_broker.log.validation.batch_digests import IndexRow
from klog_broker.runtime.disk.files import ClosedFile, File, Files, ProbedRegion, ReadRegion
from pyspark_klog.ids import Offset
from pyspark_klog.records.layout import BATCH_HEADER_BYTES
from pyspark_klog.storage.indexes import TimeIndexEntry
from pyspark_klog.storage.names import Suffix, segment_file_name
from pyspark_klog.storage.transaction_index import AbortedEntry

_INDEXES = (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX)
# The number of newest batches whose positions stay in memory, for readers at the end of the log.
_REMEMBERED_POSITIONS = 256


class Segment:
    """The segment that begins at ``base_offset``, in the partition's ``directory``. Use
    :meth:`create` or :meth:`open` to make an instance."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        base_offset: int,
        log_file: File,
        size_bytes: int,
        *,
        suffix: str = "",
    ) -> None:
        self.files = files
        self.suffix = suffix
        """Appended to the segment's file names, such as .cleaned; empty for a segment in use."""
        self.directory = directory
        self.base_offset = Offset(base_offset)
        self.log_file = log_file
        self.size_bytes = size_bytes
        self.is_active = False
        self.created_ms = 0
        # The largest timestamp of the first batch, from which segment.ms is counted; None until
        # read from the batch.
        self.rolling_timestamp_ms: int | None = None
        self.index_interval_bytes = 0
        self.bytes_since_index_entry = 0
        self.roll_limits: RollLimits | None = None
        """Limits within which appends need no new segment; None if the next append must compute
        them (rolling.py), for example after a new index entry."""
        # Whether disk space for the next entry of each index is already allocated.
        self._is_reserved = False
        # The largest timestamp, and the last offset of the first batch that has it; None until read
        # from the time index.
        self._max_timestamp: TimeIndexEntry | None = None
        # Whether uncommitted bytes or transaction index rows may be in the files: while abort
        # markers are written, and after a failed write until cut_back succeeds.
        self._is_uncut = False
        self._positions: dict[int, int] = {}
        self.near_row = 0
        """The number of offset index rows at or below the offset of the last search; the next
        search begins there (batch_search.py)."""
        self._offset_index: OffsetIndexFile | None = None
        self._time_index: TimeIndexFile | None = None
        self._is_closed = False
        self.transaction_index = TransactionIndexFile(
            files, self.path(Suffix.TRANSACTION_INDEX), base_offset
        )

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}, size_bytes={self.size_bytes}, active={self.is_active})"

    # --- opening and closing the segment ---------------------------------------------------------
    @classmethod
    def create(
        cls,
        files: Files,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        *,
        suffix: str = "",
    ) -> "Segment":
        """Create an empty, active segment, whose file names end with ``suffix``.

        The names are durable once the directory is synced. Start-up removes files whose names end
        with .cleaned. Raises OSError.
        """
        for kind in (*_INDEXES, Suffix.TRANSACTION_INDEX):
            files.remove(directory / (segment_file_name(base_offset, kind) + suffix))
        path = directory / (segment_file_name(base_offset, Suffix.LOG) + suffix)
        log_file = files.open(path, create=True)
        log_file.truncate(0)
        segment = cls(files, directory, base_offset, log_file, 0, suffix=suffix)
        segment.created_ms = now_ms
        segment.activate(config)
        return segment

    @classmethod
    def open(cls, files: Files, directory: Path, base_offset: int) -> "Segment":
        """Open an existing segment, which is not active. The offset index and the time index are
        opened at first use."""
        log_file = files.open(directory / segment_file_name(base_offset, Suffix.LOG))
        segment = cls(files, directory, base_offset, log_file, log_file.size())
        segment.created_ms = log_file.modified_ms()
        return segment

    @staticmethod
    def remove_files(files: Files, directory: Path, base_offset: int) -> None:
        """Remove the files that :meth:`create` may have made for a segment that will not be used,
        because the roll has failed."""
        for suffix in (Suffix.LOG, Suffix.OFFSET_INDEX, Suffix.TIME_INDEX):
            files.remove(directory / segment_file_name(base_offset, suffix))

    def activate(self, config: LogConfig) -> None:
        """Prepare the segment for appends: open writable indexes, and preallocate the .log file if
        the ``preallocate`` setting is true."""
        self.close_indexes()
        self.index_interval_bytes = config.index_interval_bytes
        self._offset_index = OffsetIndexFile(
            self.files,
            self.path(Suffix.OFFSET_INDEX),
            self.base_offset,
            config.segment_index_bytes,
        )
        self._time_index = TimeIndexFile(
            self.files, self.path(Suffix.TIME_INDEX), self.base_offset, config.segment_index_bytes
        )
        if config.preallocate:
            self.log_file.truncate(max(config.segment_bytes, self.size_bytes))
        self.is_active = True

    def deactivate(self) -> None:
        """End appends to the segment: add the final entry of the time index, and cut off
        preallocated space. Called when the segment is rolled, cleaned or repaired, and when the
        log is closed.

        Raises OSError, and changes nothing, if no file descriptor is free.
        """
        if self._is_uncut:
            self.cut_back()
        offset_index, time_index = self.offset_index, self.time_index
        with self.log_file.held(), offset_index.file.held(), time_index.file.held():
            time_index.maybe_append(*self.max_timestamp)
            offset_index.trim()
            time_index.trim()
            if self.log_file.size() != self.size_bytes:
                self.log_file.truncate(self.size_bytes)
        offset_index.file.release_descriptor()
        time_index.file.release_descriptor()
        self._positions.clear()
        self.is_active = False

    def close(self) -> None:
        """Close all files for good, because the log has been closed, failed or dropped the segment.

        A file that is in use (by a response that is being sent, or by a read or sync in a helper
        thread) closes when that use ends. Later uses of the segment raise OSError (EBADF).
        """
        # Set the flag first, so that a helper thread that opens an index now closes it again.
        self._is_closed = True
        self.close_indexes()
        self.log_file = ClosedFile(self.log_file.path)
        self.transaction_index.close()
        self._positions.clear()

    def release_descriptors(self) -> None:
        """Give up the descriptors of a segment that is not in use. Later uses open the files
        again."""
        if not self.is_active:
            self.close_indexes()
        self.transaction_index.release_descriptor()
        self.log_file.release_descriptor()

    def close_indexes(self) -> None:
        """Close the indexes. The next use opens them again."""
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.close()
        self._offset_index = self._time_index = None
        self._forget_limits()

    def _forget_limits(self) -> None:
        self.roll_limits, self._is_reserved = None, False

    def opened_files(self) -> list[File]:
        indexes = (self._offset_index, self._time_index, self.transaction_index)
        files = [each.file for each in indexes if each is not None]
        return [self.log_file, *(file for file in files if file is not None)]

    def path(self, suffix: Suffix) -> Path:
        return self.directory / (segment_file_name(self.base_offset, suffix) + self.suffix)

    # --- the segment's indexes -------------------------------------------------------------------
    @property
    def offset_index(self) -> OffsetIndexFile:
        index = self._offset_index
        if index is None:
            self._check_open()
            path = self.path(Suffix.OFFSET_INDEX)
            index = self._offset_index = OffsetIndexFile(self.files, path, self.base_offset)
            self._close_again_if_closed()
        return index

    @property
    def time_index(self) -> TimeIndexFile:
        index = self._time_index
        if index is None:
            self._check_open()
            path = self.path(Suffix.TIME_INDEX)
            index = self._time_index = TimeIndexFile(self.files, path, self.base_offset)
            self._close_again_if_closed()
        return index

    def _check_open(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, "the segment was closed", str(self.log_file.path))

    def _close_again_if_closed(self) -> None:
        """A helper thread has opened an index: close the index if :meth:`close` ran meanwhile."""
        if self._is_closed:
            self.close_indexes()
            self._check_open()

    def open_offset_index(self) -> File:
        """Open the offset index for reading, apart from the index that the segment keeps open;
        returns its File. Any thread may call this method."""
        self._check_open()
        return self.files.open(self.path(Suffix.OFFSET_INDEX), writable=False)

    @property
    def max_timestamp(self) -> TimeIndexEntry:
        """The largest timestamp in the segment, and the last offset of the first batch that has it;
        (-1, base offset) if no batch has a timestamp."""
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.last
        return self._max_timestamp

    @property
    def has_final_entry(self) -> bool:
        """Whether the last row of the time index has the largest timestamp, as required in a closed
        segment."""
        return self.time_index.last.timestamp_ms >= self.max_timestamp.timestamp_ms

    @property
    def knows_max_timestamp(self) -> bool:
        """Whether :attr:`max_timestamp` is in memory."""
        return self._max_timestamp is not None

    @property
    def retention_timestamp_ms(self) -> int:
        """The time in ms from which retention.ms is counted: the largest timestamp, or without any
        timestamp the modification time of the .log file."""
        largest_ms = self.max_timestamp.timestamp_ms
        return largest_ms if largest_ms >= 0 else self.log_file.modified_ms()

    def sync_files(self) -> list[File]:
        """Return the segment's files that must be synced to make its records and index entries
        durable."""
        files = [self.log_file, self.offset_index.file, self.time_index.file]
        if self.transaction_index.file is not None:
            files.append(self.transaction_index.file)
        return files

    # --- appending batches -----------------------------------------------------------------------
    @property
    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch, from which segment.ms is counted; -1 if the
        batch has no timestamp. The segment must not be empty."""
        if self.rolling_timestamp_ms is None:
            first = next(self.batch_positions(), None)
            self.rolling_timestamp_ms = -1 if first is None else self.max_timestamp_at(first)
        return self.rolling_timestamp_ms

    def reserve_index_rows(self, rows: int = 1) -> None:
        """Allocate disk space for the next index entries. A full disk raises OSError here; without
        the allocation, a later store into the mapped file would kill the process."""
        self.offset_index.reserve(rows)
        self.time_index.reserve(rows)

    def write(
        self,
        data: bytes | bytearray | memoryview,
        index_rows: int = 1,
        aborted: Sequence[AbortedEntry] = (),
    ) -> None:
        """Write ``data`` after the last batch, and transaction index rows for the transactions that
        markers in ``data`` abort. The written bytes and rows do not belong to the segment until
        :meth:`commit` or :meth:`commit_planned`.

        Raises OSError if not all bytes could be written; the caller must then call
        :meth:`cut_back`.
        """
        if self._is_uncut:
            self.cut_back()
        if index_rows > 1 or not self._is_reserved:
            self.reserve_index_rows(index_rows)
            self._is_reserved = True
        if aborted:
            self._is_uncut = True
            self.transaction_index.write(aborted)
        written = self.log_file.pwrite(data, self.size_bytes)
        if written != len(data):
            raise ShortWrite(written, len(data))

    def cut_back(self) -> None:
        """Cut off the bytes and rows that :meth:`write` has written and that are not committed. If
        this fails because no file descriptor is free, the next :meth:`write` tries again first."""
        self._is_uncut = True
        self.log_file.truncate(self.size_bytes)
        self.transaction_index.cut_back()
        self._is_uncut = False

    def commit(self, batch: AppendedBatch) -> None:
        """Commit the written batch: update the size, and add index entries where Kafka 4.3 does."""
        size_bytes, first_offset, end_offset, max_timestamp_ms = batch
        position, positions = self.size_bytes, self._positions
        if self._is_uncut:
            self._commit_aborted()
        if position == 0:
            self.rolling_timestamp_ms = max_timestamp_ms
            self._forget_limits()
        if max_timestamp_ms > self.max_timestamp.timestamp_ms:
            self._max_timestamp = TimeIndexEntry(max_timestamp_ms, Offset(end_offset - 1))
        if self.bytes_since_index_entry > self.index_interval_bytes:
            self._add_index_entries(end_offset - 1, position)
        positions[first_offset] = position
        if len(positions) > _REMEMBERED_POSITIONS:
            del positions[next(iter(positions))]
        self.bytes_since_index_entry += size_bytes
        self.size_bytes = position + size_bytes

    def commit_planned(self, planned: PlannedAppend) -> None:
        """Commit (count as stored) written batches. ``planned``, which the compiled produce kernel
        of a leader or plan_follower_append has made, already contains their index entries."""
        if self._is_uncut:
            self._commit_aborted()
        if self.size_bytes == 0:
            self.rolling_timestamp_ms = planned.first_timestamp_ms
        if self.size_bytes == 0 or planned.index_entries:
            self._forget_limits()
        positions = self._positions
        positions[planned.first_offset] = self.size_bytes
        while len(positions) > _REMEMBERED_POSITIONS:
            del positions[next(iter(positions))]
        entries = planned.index_entries
        if entries:
            self.offset_index.append_all([entry[:2] for entry in entries])
            time_index = self.time_index
            # The timestamps of the planned entries never decrease. So if the last entry is not
            # later than the last row of the time index, no entry is.
            if entries[-1][2] > time_index.last.timestamp_ms:
                for _, _, max_timestamp_ms, max_timestamp_offset in entries:
                    time_index.maybe_append(max_timestamp_ms, max_timestamp_offset)
        self.bytes_since_index_entry = planned.bytes_since_index_entry
        self._max_timestamp = TimeIndexEntry(
            planned.max_timestamp_ms, Offset(planned.max_timestamp_offset)
        )
        self.size_bytes += planned.size_bytes

    def _commit_aborted(self) -> None:
        self.transaction_index.commit()
        self._is_uncut = False

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        if not self.offset_index.is_full:
            self.offset_index.append(last_offset, position)
        self.time_index.maybe_append(*self.max_timestamp)
        self.bytes_since_index_entry = 0
        self._forget_limits()

    # --- restoring the segment's state during recovery -------------------------------------------
    def restore(self, *, bytes_since_index_entry: int, max_timestamp: TimeIndexEntry) -> None:
        """Set the state that determines the next index entries, as recovery has computed it."""
        self.bytes_since_index_entry = bytes_since_index_entry
        self._max_timestamp = max_timestamp
        self._positions.clear()
        self.rolling_timestamp_ms = None
        self._forget_limits()

    def add_index_rows(self, rows: Sequence[IndexRow]) -> None:
        """Add index entries, made by recovery, for batches that are already in the file."""
        if not rows:
            return
        self.reserve_index_rows(len(rows))
        fitting = rows[: self.offset_index.free_rows]
        if fitting:
            self.offset_index.append_all([row[:2] for row in fitting])
        self.time_index.append_all([row[2:] for row in rows])
        self._max_timestamp = TimeIndexEntry(rows[-1][2], Offset(rows[-1][3]))
        self.bytes_since_index_entry = 0
        self._forget_limits()

    def max_timestamp_at(self, place: BatchPosition, *, may_block: bool = True) -> int:
        """Return the largest timestamp in the batch's header; -1 if the format has none."""
        size_bytes = min(BATCH_HEADER_BYTES, place.size_bytes)
        header = self.read_bytes(place.position, size_bytes, may_block=may_block)
        return max_timestamp_of(header)

    # --- reading batches -------------------------------------------------------------------------
    def read_bytes(self, position: int, size: int, *, may_block: bool = True) -> bytes:
        """Read ``size`` bytes at ``position``, fewer at the segment's end. With ``may_block=False``
        raises ColdRead if the bytes are not in the page cache."""
        size = min(size, self.size_bytes - position)
        if may_block:
            return self.log_file.pread(size, position)
        data = self.log_file.pread_now(size, position)
        if data is None:
            raise ColdRead(partial(self.log_file.read_ahead, position, size))
        return data

    def batch_positions(
        self, position: int = 0, stop: int | None = None, *, may_block: bool = True
    ) -> Iterator[BatchPosition]:
        """Iterate over the batches that start in ``[position, stop)``; ``stop`` is the segment's
        end by default. Raises DamagedLog at bytes that are no batch, and ColdRead as
        :meth:`read_bytes` does."""
        end = self.size_bytes
        return iterate_batches(
            partial(self.read_bytes, may_block=may_block),
            position,
            end if stop is None else stop,
            end,
            self.log_file.path,
        )

    def recent_position(self, offset: int) -> int | None:
        """Return the position of the batch with this base offset, if the position is still in
        memory; else None."""
        return self._positions.get(offset)

    def region(self, position: int, size: int, *, may_block: bool = True) -> ReadRegion:
        """Return a region of the .log file.

        With ``may_block=False`` raises ColdRead, whose ``warm`` reads the region into the page
        cache, if the region's last byte is not in the page cache. The first bytes are there,
        because the caller has just read them.
        """
        file = self.log_file
        if not (may_block or file.is_warm(position + size - 1, 1)):
            raise ColdRead(partial(file.read_ahead, position, size))
        return (ReadRegion if may_block else ProbedRegion)(file, position, size)
