"""Checks the files of one partition's folder. The partition's batches are scanned once, in order;
indexes, producer snapshots and leader epochs are compared with the batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from klog_broker.inspection.epoch_checks import EpochCheck
from klog_broker.inspection.index_checks import OffsetIndexCheck, TimeIndexCheck
from klog_broker.inspection.index_rows import MAX_SNAPSHOT_BYTES
from klog_broker.inspection.lines import Finding, Level
from klog_broker.inspection.next_batch import next_good_batch
from klog_broker.inspection.producer_checks import ProducerReplay, compare_aborted
from klog_broker.inspection.report import MOST_OF_A_FILE, Report
from klog_broker.inspection.segment_scan import (
    BadPlace,
    ScannedBatches,
    faults_inside,
    scan_segment,
)
from klog_broker.inspection.small_files import SMALL_FILES, read_small, small_file_rows
from klog_broker.inspection.stored_entries import is_all_zeros
from pyspark_klog.records import layout as at
from pyspark_klog.records.kernels import scan
from pyspark_klog.storage import names
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.indexes import MAX_RELATIVE_OFFSET
from pyspark_klog.storage.names import Suffix
from pyspark_klog.storage.partition_files import Listing, PartitionFiles, ReadOnlyFile
from pyspark_klog.storage.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_producer_snapshot,
)
from pyspark_klog.storage.text_files import EpochStart, decode_leader_epochs
from pyspark_klog.storage.transaction_index import (
    ENTRY as ABORTED_ENTRY,
)
from pyspark_klog.storage.transaction_index import AbortedEntry, decode_transaction_index

_LEFTOVERS = (names.DELETED_SUFFIX, names.CLEANED_SUFFIX, names.SWAP_SUFFIX, names.TEMPORARY_SUFFIX)
# The files that KRaft keeps in the folder of its metadata log, next to the segments.
_KRAFT_FILES = ("quorum-state", "bootstrap.checkpoint")
_KRAFT_SUFFIX = ".checkpoint"
_MOST_BAD_PLACES = 100


@dataclass(frozen=True)
class DirectoryFacts:
    """The facts about a partition that the files of its data directory state. A missing fact is
    None, or False for ``is_running``."""

    is_clean: bool | None = None
    """Whether the data directory has the marker of a clean shutdown."""
    is_running: bool = False
    """Whether a broker has locked the data directory, and so may write to it now."""
    recovery_point: int | None = None
    """The offset before which all records were synced to disk."""
    high_watermark: int | None = None
    log_start_offset: int | None = None

    def level_of(self, offset: int) -> Level:
        """Return the severity of a fault at this offset. Every fault is recoverable while a broker
        runs on the directory. After a crash, a fault in the part of the log that was not synced is
        recoverable, because a starting broker checks and repairs this part."""
        if self.is_running:
            return Level.RECOVERABLE
        if self.is_clean or self.recovery_point is None or offset < self.recovery_point:
            return Level.ERROR
        return Level.RECOVERABLE


class PartitionCheck:
    """The checks of one partition's folder; their findings are added to ``report``."""

    def __init__(self, path: Path, circumstances: DirectoryFacts, report: Report) -> None:
        self._path = path
        self._files = PartitionFiles(path)
        self._known = circumstances
        self._report = report
        self._end = 0
        self._has_gaps = False
        self._replay = ProducerReplay(is_complete=False)
        self._snapshots: list[int] = []
        self._start = 0

    def run(self) -> None:
        """Run all checks. OSError if a file cannot be read. For a segment or producer snapshot that
        is removed during the checks, the report gets a note."""
        listing = self._files.listing()
        self._check_names(listing)
        if not listing.bases:
            self._report.note(self._path, "the folder has no segment")
            return
        self._start = self._end = listing.bases[0]
        self._snapshots = list(listing.snapshots)
        self._replay.is_complete = self._start == 0
        self._take_snapshots(self._start)
        epoch_file = self._path / names.LEADER_EPOCH_CHECKPOINT
        epochs = EpochCheck(
            self._leader_epochs(epoch_file), epoch_file, self._report, self._known.level_of
        )
        for base in listing.bases:
            try:
                self._check_segment(base, listing, epochs)
            except FileNotFoundError as error:
                self._report.note(Path(str(error.filename)), "removed during the check")
        epochs.check_newest_epoch(self._end, self._known.level_of(self._end))
        self._take_snapshots(self._end)
        for offset in self._snapshots:
            text = f"the snapshot is of offset {offset}, but the log ends at {self._end}"
            self._report.add(self._known.level_of(offset), self._snapshot_path(offset), text)
        self._check_bounds()
        self._report.partitions += 1

    # --- the folder's file names, and the offsets in the data directory's checkpoints -------------
    def _check_names(self, listing: Listing) -> None:
        for path in sorted(self._path.iterdir()):
            found = names.parse_segment_file_name(path.name)
            if found is not None:
                base, suffix = found
                if suffix is not Suffix.PRODUCER_SNAPSHOT and base not in listing.bases:
                    self._report.recoverable(path, "the segment's .log file is missing")
            elif path.name in SMALL_FILES and path.is_file():
                for what in small_file_rows(path):
                    if isinstance(what, Finding):
                        self._report.add(what.level, path, what.text)
            elif path.name.endswith(_LEFTOVERS):
                self._report.recoverable(path, "a leftover, which a broker removes when it starts")
            elif path.name not in _KRAFT_FILES and path.suffix != _KRAFT_SUFFIX:
                self._report.note(path, "not a file of a partition")

    def _leader_epochs(self, path: Path) -> list[EpochStart] | None:
        try:
            data = read_small(path)
            return decode_leader_epochs(data) if data else []
        except FileNotFoundError:
            return None
        except StorageFormatError:
            return None  # no finding here: `_check_names` has reported the damaged file

    def _check_bounds(self) -> None:
        """Check the offsets in the data directory's checkpoints against the log end offset, unless
        a broker runs on the directory."""
        known, end = self._known, self._end
        if known.is_running:
            return
        if known.recovery_point is not None:
            if known.recovery_point > end:
                text = (
                    f"the log ends at offset {end}, below its recovery point {known.recovery_point}"
                )
                self._report.error(self._path, text)
            elif known.is_clean and known.recovery_point < end:
                text = f"the log ends at offset {end}, but was closed at {known.recovery_point}"
                self._report.error(self._path, text)
        if known.high_watermark is not None and known.high_watermark > end:
            text = f"the log ends at offset {end}, below its high watermark {known.high_watermark}"
            self._report.add(known.level_of(end), self._path, text)
        if known.log_start_offset is not None and known.log_start_offset > end:
            text = f"the log ends at offset {end}, below its start offset {known.log_start_offset}"
            self._report.error(self._path, text)

    # --- the files of one segment -----------------------------------------------------------------
    def _check_segment(self, base: int, listing: Listing, epochs: EpochCheck) -> None:
        following = listing.after(base)
        report = self._report
        if base > self._end:
            self._has_gaps = True
            text = f"offsets {self._end} to {base - 1} are missing: perhaps compacted away"
            report.note(self._files.path / names.segment_file_name(base, Suffix.LOG), text)
        self._take_snapshots(base)
        with self._files.open(base) as log:
            index = self._open_index(base, Suffix.OFFSET_INDEX)
            times = self._open_index(base, Suffix.TIME_INDEX)
            level_of = self._known.level_of
            index_check = OffsetIndexCheck(index, base, report, level_of) if index else None
            time_check = TimeIndexCheck(times, base, report, level_of) if times else None
            for chunk in self._chunks(log, base, following is None):
                self._check_order(chunk, log.path, base, following)
                for fault in faults_inside(chunk):
                    level = Level.NOTE if fault.is_unread else Level.ERROR
                    position = int(chunk.rows[fault.row, scan.POSITION]) + chunk.shift
                    report.add(level, log.path, fault.text, position)
                epochs.add(chunk, log.path)
                self._follow_producers(chunk, log.path)
                if index_check:
                    index_check.add(chunk.rows, chunk.positions())
                if time_check:
                    time_check.add(chunk.rows)
            report.bytes += log.size()
        is_full = following is not None
        is_growing = self._known.is_running and not is_full
        if index_check and index:
            index_check.finish_segment(is_full=is_full, is_growing=is_growing)
            index.close()
        if time_check and times:
            time_check.finish_segment(is_full=is_full, is_growing=is_growing)
            times.close()
        self._check_aborted(base, following)
        report.segments += 1

    def _open_index(self, base: int, suffix: Suffix) -> ReadOnlyFile | None:
        file = self._files.open_if_there(base, suffix)
        if file is None:
            path = self._path / names.segment_file_name(base, suffix)
            self._report.recoverable(
                path, "the file is missing: a broker creates it when it starts"
            )
        return file

    def _chunks(self, log: ReadOnlyFile, base: int, is_last: bool) -> Iterator[ScannedBatches]:
        """Yield the readable batches of a segment, and report the bytes that are not a batch. At
        most _MOST_BAD_PLACES times, the scan continues after such bytes, at the next v2 batch that
        has a right CRC."""
        position = places = 0
        while True:
            bad = None
            for found in scan_segment(log, position):
                if isinstance(found, BadPlace):
                    bad = found
                    break
                yield found
            if bad is None:
                return
            end, behind = log.size(), None
            if places < _MOST_BAD_PLACES:
                behind = next_good_batch(log, bad.position + 1, end, base)
            if behind is None:
                self._report_tail(log, bad, end, is_last)
                return
            text = f"{behind - bad.position} bytes, up to the next good batch, are not a batch: "
            text += bad.text
            self._report.error(log.path, text, bad.position)
            self._has_gaps = True
            position, places = behind, places + 1

    def _report_tail(self, log: ReadOnlyFile, bad: BadPlace, end: int, is_last: bool) -> None:
        """Report the bytes from ``bad`` to the end of a segment, among which no readable batch was
        found."""
        known = self._known
        size = end - bad.position
        may_be_torn = is_last and not known.is_clean
        may_be_torn &= known.recovery_point is None or self._end >= known.recovery_point
        may_be_torn |= is_last and known.is_running
        if is_all_zeros(log, bad.position, end):
            text = f"{size} bytes of zeros at the end: preallocated, or never written"
            level = Level.RECOVERABLE if is_last else Level.ERROR
        else:
            text = f"{size} bytes at the end are not a whole batch: {bad.text}"
            level = Level.RECOVERABLE if may_be_torn else Level.ERROR
        if level is Level.RECOVERABLE:
            text += "; a broker cuts them off when it starts"
        else:
            self._has_gaps = True
        self._report.add(level, log.path, text, bad.position)

    def _check_order(
        self, chunk: ScannedBatches, path: Path, base: int, following: int | None
    ) -> None:
        """Report batches whose offsets do not rise, or are outside the segment. Set ``_has_gaps``
        if offsets may lack a record, as after compaction. Count batches and records."""
        rows = chunk.rows
        first, last = rows[:, scan.BASE_OFFSET], rows[:, scan.LAST_OFFSET]
        ends = np.concatenate(([self._end], last[:-1] + 1))
        limit = min(base + MAX_RELATIVE_OFFSET, at.INT64_MAX)
        if following is not None:
            limit = min(limit, following - 1)
        wrong = (first < ends) | (first < base) | (last > limit)
        for row in np.flatnonzero(wrong)[:MOST_OF_A_FILE].tolist():
            why = f"expected offsets from {ends[row]} to {limit}"
            text = f"the batch has offsets {first[row]} to {last[row]}: {why}"
            self._report.error(path, text, int(rows[row, scan.POSITION]) + chunk.shift)
        counts = rows[:, scan.RECORD_COUNT]
        self._has_gaps |= bool(((first > ends) | (counts != last - first + 1)).any())
        self._end = int(last[-1]) + 1
        self._report.batches += len(rows)
        self._report.records += int(np.maximum(counts, 0).sum())

    # --- producer snapshots and transaction indexes -----------------------------------------------
    def _follow_producers(self, chunk: ScannedBatches, path: Path) -> None:
        """Add the batches to the replay of the producers' state. At the offset of each producer
        snapshot, compare the state with the snapshot."""
        first_offsets = chunk.rows[:, scan.BASE_OFFSET]
        done = 0
        while done < len(chunk.rows):
            end = len(chunk.rows)
            if self._snapshots:
                end = max(int(np.searchsorted(first_offsets, self._snapshots[0])), done)
            wrong = self._replay.add(chunk, done, end)
            if wrong is not None:
                self._report.error(path, wrong)
            if self._replay.has_given_up and self._snapshots:
                self._snapshots.clear()
                text = "too many producers and aborted transactions: their check stops here"
                self._report.note(path, text)
            done = end
            if done < len(chunk.rows):
                self._take_snapshots(int(first_offsets[done]))

    def _take_snapshots(self, offset: int) -> None:
        """Compare the replayed state of the producers, which has reached ``offset``, with the
        snapshots up to that offset. A snapshot at the first segment's offset starts the replay,
        unless the offset is 0; an older snapshot is only checked to be readable."""
        while self._snapshots and self._snapshots[0] <= offset:
            of = self._snapshots.pop(0)
            entries = self._snapshot(of)
            if entries is None or of < self._start:
                continue
            if of == self._start and of:
                self._replay.start_from(entries)
                continue
            path = self._snapshot_path(of)
            self._replay.compare(
                entries, path, self._report, start=self._start, has_gaps=self._has_gaps
            )

    def _snapshot_path(self, offset: int) -> Path:
        return self._path / names.segment_file_name(offset, Suffix.PRODUCER_SNAPSHOT)

    def _snapshot(self, offset: int) -> list[ProducerSnapshotEntry] | None:
        """Return the entries of the producer snapshot at ``offset``; None if the snapshot is
        damaged or was removed, which is reported."""
        path = self._snapshot_path(offset)
        try:
            if path.stat().st_size > MAX_SNAPSHOT_BYTES:
                raise StorageFormatError(f"{path.stat().st_size} bytes are too many for a snapshot")
            return decode_producer_snapshot(path.read_bytes())
        except FileNotFoundError:
            self._report.note(path, "removed during the check")
        except StorageFormatError as error:
            self._report.add(self._known.level_of(offset), path, str(error))
        return None

    def _check_aborted(self, base: int, following: int | None) -> None:
        """Compare the transaction index of a segment with the segment's abort markers, which the
        replay of the producers' state has collected. The last segment is not compared while a
        broker runs on the directory."""
        path = self._path / names.segment_file_name(base, Suffix.TRANSACTION_INDEX)
        rows: list[AbortedEntry] = []
        try:
            size = path.stat().st_size
            if size > MAX_SNAPSHOT_BYTES:
                raise StorageFormatError(f"{size} bytes are too many for a transaction index")
            if size % ABORTED_ENTRY.size:
                text = f"{size % ABORTED_ENTRY.size} bytes are left after the last row"
                self._report.add(self._known.level_of(self._end), path, text)
            rows = decode_transaction_index(path.read_bytes())
        except FileNotFoundError:
            pass
        except StorageFormatError as error:
            self._report.error(path, str(error))
            self._replay.forget_aborted()
            return
        if self._known.is_running and following is None:
            self._replay.forget_aborted()
            return
        compare_aborted(rows, self._replay, path, self._report, has_gaps=self._has_gaps)
