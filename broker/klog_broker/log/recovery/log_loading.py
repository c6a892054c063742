"""Loads a partition's log: opens its segments, and recovers them after a crash."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from klog_broker.log.directory.sync_notes import SyncNotes
from klog_broker.log.log_config import LogConfig
from klog_broker.log.producers.producer_state import ProducerStates
from klog_broker.log.recovery.leftovers import clear_leftovers
from klog_broker.log.recovery.loading_progress import LoadingTally
from klog_broker.log.recovery.producer_snapshots import ProducerSnapshots
from klog_broker.log.recovery.segment_recovery import (
    Recovered,
    are_indexes_sane,
    find_end,
    rebuild_indexes,
    recover_segment,
    resume_segment,
    scan_segment,
)
from klog_broker.log.segment.leader_epochs import LeaderEpochs
from klog_broker.log.segment.segment import Segment
from klog_broker.log.segment.segment_renaming import mark_deleted
from klog_broker.log.validation.batch_digests import Digest
from klog_broker.log.validation.record_checks import RecordChecks
from klog_broker.runtime.disk.files import Files
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import LeaderEpoch, Offset
from pyspark_klog.records.layout import INT64_MAX
from pyspark_klog.storage.names import Suffix, parse_segment_file_name

_log = logging.getLogger("klog.log")
_INDEX_SUFFIXES = (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX, Suffix.TRANSACTION_INDEX)


@dataclass
class LoadedLog:
    """The loaded state from which a PartitionLog begins.

    The records are durable, and so are the leader epochs that begin before the recovery point.
    """

    segments: tuple[Segment, ...]
    log_start_offset: Offset
    log_end_offset: Offset
    high_watermark: Offset
    recovery_point: Offset
    epochs: LeaderEpochs
    newest_epoch: LeaderEpoch
    """The newest epoch in the epoch file or the log, even if the epoch begins after the log end; -1
    if there is no epoch.
    """
    states: ProducerStates
    snapshots: ProducerSnapshots
    was_unclean: bool
    """Whether the log was recovered, because it had not been closed properly.

    Consumers may have read records past the present log end, which are lost now. So new records at
    these offsets need a newer leader epoch.
    """
    cut_bytes: int
    """How many bytes recovery has removed: damaged records and the records after them, or all
    records of a log that ends before its log start offset."""
    cleaned_offset: Offset | None


def load_log(
    files: Files,
    directory: Path,
    *,
    config: LogConfig,
    checks: RecordChecks,
    is_clean: bool,
    recovery_point: int,
    log_start_offset: int,
    high_watermark: int,
    cleaned_offset: Offset | None,
    now_ms: int,
    notes: SyncNotes,
    tally: LoadingTally | None = None,
) -> LoadedLog:
    """Load the log; if it was not closed properly, check all records past the recovery point.

    The caller has read the offsets from the checkpoint files. An offset that no checkpoint file
    contains is passed as 0, but ``cleaned_offset``, up to which the log cleaner has cleaned, as
    None. Blocks. Any thread may call this function. Raises OSError if the disk fails, and
    LoadingCancelled if ``tally``, which counts the progress, finds that the broker shuts down.
    """
    gaps_before = INT64_MAX if config.may_have_gaps else cleaned_offset or 0
    loader = _Loader(
        files, directory, config, checks, log_start_offset, gaps_before, now_ms, notes, tally
    )
    loaded = loader.load(is_clean, recovery_point, high_watermark)
    if cleaned_offset is not None:
        # Records past the log end are lost. New records will get their offsets and have not been
        # cleaned, so the cleaned offset must not exceed the log end.
        loaded = replace(loaded, cleaned_offset=min(cleaned_offset, loaded.log_end_offset))
    if tally is not None:
        tally.add_log(directory, was_unclean=loaded.was_unclean, cut_bytes=loaded.cut_bytes)
    return loaded


class _Loader:
    def __init__(
        self,
        files: Files,
        directory: Path,
        config: LogConfig,
        checks: RecordChecks,
        log_start_offset: int,
        gaps_before: int,
        now_ms: int,
        notes: SyncNotes,
        tally: LoadingTally | None,
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.checks = checks
        self.checkpointed_start = log_start_offset
        self.gaps_before = gaps_before
        self.now_ms = now_ms
        self.notes = notes
        self.tally = tally
        self.epochs = LeaderEpochs(files, directory)
        self.segments: list[Segment] = []
        # Segments whose files may not be durable, to be synced before the log is used.
        self.touched: list[Segment] = []
        self.must_sync = False
        self.cut_bytes = 0
        # Maps the base offset of a segment to the offset from which on its transaction index
        # lacks rows.
        self.unindexed: dict[int, int] = {}

    def load(self, is_clean: bool, recovery_point: int, high_watermark: int) -> LoadedLog:
        self._open_segments()
        epochs_are_good = self.epochs.load()
        newest_epoch = self.epochs.latest
        end_offset = self._end_of_clean_log() if is_clean else None
        if end_offset is None:
            is_clean = False
            end_offset = self._recover(recovery_point)
        end_offset = self._empty_if_behind(end_offset)
        log_start = Offset(max(self.checkpointed_start, self.segments[0].base_offset))
        if not epochs_are_good:
            # The epoch file is damaged. Find all epochs in the log: recovery has added only the
            # epochs of the batches that it checked.
            self.epochs.clear()
            self._epochs_from_log()
        elif not is_clean:
            self._find_earlier_epochs(log_start)
        newest_epoch = max(newest_epoch, self.epochs.latest)
        self.epochs.truncate_from_start(log_start)
        self.epochs.truncate_from_end(end_offset + 1)
        if not epochs_are_good:
            self.epochs.write()
        visible = Offset(min(max(high_watermark, log_start), end_offset))
        states, snapshots = self._load_producers(log_start, end_offset, visible)
        if self.must_sync:
            # Sync the directory even if no segment needs a sync: the names of files that a killed
            # process had made or removed may not be durable yet.
            with self.notes.note_sync(self.directory.name):
                for segment in self.touched:
                    for file in segment.sync_files():
                        file.sync()
                self.files.sync_dir(self.directory)
        for segment in self.segments:
            segment.release_descriptors()
        return LoadedLog(
            tuple(self.segments),
            log_start,
            end_offset,
            high_watermark=visible,
            # Do not write the epoch file here. The file may name an epoch whose records are all
            # lost, and the next start must still read this newest_epoch from it, until a newer
            # leader epoch is durable. If the file lacks epochs, keep the old recovery point, so
            # that the next start finds these epochs in the log again.
            recovery_point=(
                Offset(min(recovery_point, end_offset)) if self.epochs.is_dirty else end_offset
            ),
            epochs=self.epochs,
            newest_epoch=newest_epoch,
            states=states,
            snapshots=snapshots,
            was_unclean=not is_clean,
            cut_bytes=self.cut_bytes,
            cleaned_offset=None,
        )

    def _open_segments(self) -> None:
        bases: set[Offset] = set()
        index_files: list[tuple[Offset, str]] = []
        names = clear_leftovers(self.files, self.directory)
        for name in names:
            parsed = parse_segment_file_name(name)
            if parsed is not None and parsed[1] is Suffix.LOG:
                bases.add(parsed[0])
            elif parsed is not None and parsed[1] in _INDEX_SUFFIXES:
                index_files.append((parsed[0], name))
        for base_offset, name in index_files:
            if base_offset not in bases:
                _log.warning(
                    "index=%s/%s removing this file, because its segment has no log file",
                    self.directory,
                    name,
                )
                self.files.remove(self.directory / name)
        self.segments = [Segment.open(self.files, self.directory, base) for base in sorted(bases)]
        if not self.segments:
            self._start_at(self.checkpointed_start)

    def _start_at(self, offset: int) -> None:
        segment = Segment.create(self.files, self.directory, offset, self.config, self.now_ms)
        self.segments = [segment]
        self.touched = [segment]
        self.must_sync = True

    def _add_checked_bytes(self, size_bytes: int) -> None:
        if self.tally is not None:
            self.tally.add_checked_bytes(self.directory, size_bytes)

    def _rebuild(self, segment: Segment) -> None:
        _log.warning("log=%s rebuilding the offset and time index", segment.log_file.path)
        self._choose_checks(segment.size_bytes)
        rebuild_indexes(segment, self.config, self.checks, self._add_checked_bytes)
        segment.deactivate()
        self.touched.append(segment)
        self.must_sync = True

    def _end_limit(self, number: int) -> int:
        """The base offset of the next segment, or INT64_MAX: this segment's offsets are lower."""
        following = number + 1
        return self.segments[following].base_offset if following < len(self.segments) else INT64_MAX

    def _check_indexes(self, number: int) -> None:
        """Rebuild the offset and time index of a segment that needs no recovery if they are not
        plausible; note a transaction index that is not plausible in ``unindexed``."""
        segment = self.segments[number]
        if not are_indexes_sane(segment):
            self._rebuild(segment)
        if not segment.transaction_index.is_sane(self._end_limit(number)):
            _log.warning("log=%s rebuilding the transaction index", segment.log_file.path)
            self.unindexed[segment.base_offset] = segment.base_offset

    # --- loading a log that was closed properly --------------------------------------------------
    def _end_of_clean_log(self) -> Offset | None:
        """Return the log end offset; None if batch headers or indexes contradict a clean
        shutdown."""
        last = self.segments[-1]
        try:
            for number, segment in enumerate(self.segments):
                self._check_indexes(number)
                if segment is not last:
                    segment.close_indexes()
            end_offset = find_end(last)
        except InvariantViolation as error:
            _log.warning(
                "log=%s is damaged in spite of the clean shutdown, recovering it: %s",
                self.directory,
                error,
            )
            return None
        resume_segment(last, self.config)
        return end_offset

    # --- recovering a log that was not closed properly -------------------------------------------
    def _recover(self, recovery_point: int) -> Offset:
        self.must_sync = True
        # Forget the epochs that begin in the part to be checked: the epoch file may describe
        # records that were cut or overwritten after it was written. Recovery finds the epochs again
        # in the batch headers.
        self.epochs.truncate_from_end(recovery_point)
        suspects = [s for s in self.segments if s.base_offset >= recovery_point]
        self._choose_checks(sum(s.size_bytes for s in suspects or self.segments[-1:]))
        end_offset = self.segments[0].base_offset
        for number, segment in enumerate(self.segments):
            is_last = number + 1 == len(self.segments)
            next_base = self._end_limit(number)
            # If next_base equals the recovery point, the segment may have been rolled after the
            # last sync, so it must be recovered, too.
            if next_base < recovery_point:
                self._check_indexes(number)
                segment.close_indexes()
                continue
            segment.activate(self.config)

            def drop_after(
                end_offset: Offset, number: int = number, next_base: int = next_base
            ) -> None:
                # Remove the later segments before this one is truncated. After the truncation, the
                # missing records would look like a gap that a log cleaner left. So if this start is
                # killed here, the next one must find either the damage or no later segments.
                if end_offset < next_base < INT64_MAX:
                    self._drop_after(number)
                    self.files.sync_dir(self.directory)

            recovered = recover_segment(
                segment,
                recovery_point=recovery_point,
                end_limit=next_base,
                checks=self.checks,
                latest_epoch=self.epochs.latest,
                is_suspect=self.notes.is_suspect(self.directory.name),
                before_cut=drop_after,
                on_chunk=self._add_checked_bytes,
            )
            end_offset = recovered.end_offset
            self.cut_bytes += recovered.damaged_bytes
            self._cut_transaction_index(segment, recovered)
            for epoch, start_offset in recovered.epochs:
                self.epochs.add_epoch(epoch, start_offset)
            # Sync every recovered segment, except a last segment in which nothing was checked. A
            # segment that was rolled after the last sync has trimmed indexes that are not synced.
            if not (is_last and recovered.is_as_synced):
                self.touched.append(segment)
            if is_last:
                break
            # If end_offset equals next_base, no record is missing. If it is lower, records are
            # missing. Only Kafka's log cleaner leaves such a gap (klog's keeps the last
            # batch of each segment), only in the part of the log that may have been cleaned (below
            # gaps_before), and then no byte of the segment is bad. Any other gap is damage.
            if end_offset < next_base and (recovered.cut_bytes or next_base > self.gaps_before):
                self._drop_after(number)
                break
            segment.deactivate()
            segment.close_indexes()
        return end_offset

    def _choose_checks(self, size_bytes: int) -> None:
        """Add ``size_bytes`` to the number of bytes that must be checked. Use the record checks
        compiled by numba once they are worth loading for this number of bytes."""
        if self.tally is not None:
            self.checks = self.tally.total.checks_for(size_bytes) or self.checks

    def _cut_transaction_index(self, segment: Segment, recovered: Recovered) -> None:
        """Drop the transaction index rows of markers at or after ``trusted_offset``, from which on
        recovery has checked all batches. ``replay_producers`` writes these rows again from the log.
        If recovery has checked the whole segment and found markers, no row is dropped here, because
        ``replay_producers`` then replaces all rows."""
        index, trusted_offset = segment.transaction_index, recovered.trusted_offset
        if trusted_offset > segment.base_offset or not recovered.has_markers:
            index.cut_to_offset(trusted_offset)
        if recovered.has_markers:
            self.unindexed[segment.base_offset] = trusted_offset

    def _drop_after(self, number: int) -> None:
        """Remove all segments after ``self.segments[number]``, the last one first.

        If this start is killed in between, there is no gap among the remaining segments.
        """
        for segment in reversed(self.segments[number + 1 :]):
            _log.warning(
                "log=%s removing this segment, which is not part of the recovered log",
                segment.log_file.path,
            )
            self.cut_bytes += segment.size_bytes
            for path in mark_deleted(segment):
                self.files.remove(path)
        del self.segments[number + 1 :]

    def _find_earlier_epochs(self, log_start: int) -> None:
        """Find the epochs of deleted records that a crash has brought back.

        DeleteRecords raises the log start offset in memory. The epoch file can be written, without
        the epochs of the deleted records, before the log start checkpoint is written. After a crash
        in between, the deleted records are part of the log again, but the epoch file lacks their
        epochs.
        """
        known = self.epochs.entries
        if known and known[0].start_offset > log_start:
            self.epochs.clear()
            self._epochs_from_log(known[0].start_offset)
            for epoch, start_offset in known:
                self.epochs.add_epoch(epoch, start_offset)

    def _epochs_from_log(self, end_offset: int = INT64_MAX) -> None:
        """Add the leader epochs that the batch headers name, and that begin before ``end_offset``,
        to ``self.epochs``."""
        for segment in self.segments:
            if segment.base_offset >= end_offset:
                break
            digest = Digest(
                position=0, end_offset=segment.base_offset, latest_epoch=self.epochs.latest
            )
            for _ in scan_segment(
                segment, digest, self.checks, check_crc=False, on_chunk=self._add_checked_bytes
            ):
                pass
            for epoch, start_offset in digest.epochs:
                if start_offset < end_offset:
                    self.epochs.add_epoch(epoch, start_offset)

    def _empty_if_behind(self, end_offset: Offset) -> Offset:
        """Empty the log if it ends before its checkpointed start; return the log end offset.

        The log start offset is in a checkpoint file, which can survive a crash in which the records
        up to this offset are lost.
        """
        if end_offset >= self.checkpointed_start:
            return end_offset
        _log.warning(
            "log=%s end_offset=%d is below log_start_offset=%d: removing all segments of the log",
            self.directory,
            end_offset,
            self.checkpointed_start,
        )
        self._drop_after(-1)
        self._start_at(self.checkpointed_start)
        return Offset(self.checkpointed_start)

    # --- restoring producer states ---------------------------------------------------------------
    def _load_producers(
        self, log_start: Offset, end_offset: Offset, high_watermark: Offset
    ) -> tuple[ProducerStates, ProducerSnapshots]:
        states = ProducerStates()
        snapshots = ProducerSnapshots(self.files, self.directory)
        snapshots.remove_superfluous({segment.base_offset for segment in self.segments})
        for segment in self.segments:
            if segment.base_offset in self.unindexed:
                self.must_sync = True
                if segment not in self.touched:
                    self.touched.append(segment)
        snapshots.load(
            states,
            tuple(self.segments),
            log_start,
            end_offset,
            self.checks,
            high_watermark=high_watermark,
            unindexed=self.unindexed,
            on_chunk=self._add_checked_bytes,
        )
        return states, snapshots
