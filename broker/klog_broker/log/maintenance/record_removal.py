"""Shortens a log: at its start by retention and DeleteRecords, at its end by truncation.

A log can also start over at another offset, without any of its records.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from klog_broker.log.errors import LogStorageError, OffsetOutOfRange
from klog_broker.log.maintenance.retention import (
    RetentionLogFacts,
    RetentionSegmentFacts,
    deletable_segments,
    why_deletable,
)
from klog_broker.log.recovery.segment_recovery import restart_indexes
from klog_broker.log.segment.batch_search import find_batch
from klog_broker.log.segment.segment import Segment
from klog_broker.log.segment.segment_renaming import mark_deleted
from klog_broker.log.state.durability import LogFlushing
from klog_broker.log.state.log_state import LogState
from klog_broker.runtime.system.descriptors import describe_exhaustion, is_exhausted
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.ids import Offset

T = TypeVar("T")

_log = logging.getLogger("klog.log")

TRIES_WITHOUT_DESCRIPTORS = 20
"""How often the truncation or emptying of a log is tried while no file descriptor is free: once a
second, or once per log.flush.scheduler.interval.ms if that is shorter. The log cannot be used
between the tries."""


class RecordRemoval:
    """Removes records from one log.

    ``roll(now_ms)`` begins a new segment. ``remove_later(paths, delay_ms)`` removes files that are
    renamed for deletion. ``renew_checkpoints(done)`` writes all checkpoint files with the present
    offsets of all logs, and then calls ``done``. ``start_grew()`` is called when the log start
    offset has grown.
    """

    def __init__(
        self,
        state: LogState,
        flushing: LogFlushing,
        helpers: Helpers,
        *,
        roll: Callable[[int], None],
        remove_later: Callable[[list[Path], int], None],
        renew_checkpoints: Callable[[Callable[[], None]], None],
        start_grew: Callable[[], None],
    ) -> None:
        self._state = state
        self._flushing = flushing
        self._helpers = helpers
        self._roll = roll
        self._remove_later = remove_later
        self._renew_checkpoints = renew_checkpoints
        self._start_grew = start_grew
        self._retry: Callable[[], None] | None = None
        self._cut_at: int | None = None

    # --- deleting records at the start of the log ------------------------------------------------
    def delete_records_before(self, offset: int) -> Offset:
        """Raise the log start offset to ``offset``; see PartitionLog.delete_records_before."""
        state = self._state
        state.check_online()
        target = state.high_watermark if offset == -1 else offset
        if not 0 <= target <= state.high_watermark:
            raise OffsetOutOfRange(
                f"records of {state.topic_partition} before offset {offset} cannot be deleted: "
                f"expected 0 to the high watermark {state.high_watermark}, or -1 for the watermark"
            )
        self._raise_log_start(target)
        return state.log_start_offset

    def _raise_log_start(self, offset: int) -> None:
        state = self._state
        if offset > state.log_start_offset:
            state.log_start_offset = Offset(offset)
            # Do not rewrite leader-epoch-checkpoint here: if the file still has epochs that end
            # before the log start offset, start-up drops them.
            state.epochs.truncate_from_start(offset)
            self._start_grew()

    def apply_retention(self, now_ms: int) -> int:
        """Delete the segments that retention.ms, retention.bytes or the log start offset allow to
        delete; returns how many."""
        state = self._state
        state.check_online()
        if state.is_being_cleaned:
            return 0  # the log cleaner reads the segments; the next retention round deletes them
        try:
            facts = self._retention_facts(now_ms)
            count = deletable_segments(facts)
            if not count:
                return 0
            if count == len(state.segments.segments):
                self._roll(now_ms)
        except OSError as error:
            raise state.log_directory.error_for(error, state.topic_partition) from error
        try:
            self._delete_first(count, why_deletable(facts, count))
        except OSError as error:
            raise state.log_directory.go_offline(error) from error
        return count

    def _retention_facts(self, now_ms: int) -> RetentionLogFacts:
        state = self._state
        segments = [
            RetentionSegmentFacts(
                segment.base_offset,
                state.segments.end_of(index, state.log_end_offset),
                segment.size_bytes,
                segment.retention_timestamp_ms,
            )
            for index, segment in enumerate(state.segments.segments)
        ]
        return RetentionLogFacts(
            segments, state.log_start_offset, state.high_watermark, now_ms, state.config
        )

    def _delete_first(self, count: int, why: str) -> None:
        state = self._state
        segments = state.segments.segments
        removed, retained = segments[:count], segments[count:]
        # Take the segments off the list first, so that no new read begins in them. Reads that have
        # begun keep the segments' files open, and so are not disturbed.
        state.set_segments(retained)
        self._raise_log_start(retained[0].base_offset)
        renamed = [path for segment in removed for path in mark_deleted(segment)]
        _log.info(
            "log=%s deleted_segments=%d deleted_bytes=%d by=%s log_start_offset=%d",
            state.path,
            count,
            sum(segment.size_bytes for segment in removed),
            why,
            state.log_start_offset,
        )
        self._remove_later(renamed, state.config.file_delete_delay_ms)

    # --- truncating the end of the log -----------------------------------------------------------
    def truncate_async(self, offset: int, done: Callable[[BaseException | None], None]) -> None:
        """Truncate the log in a helper thread; see PartitionLog.truncate_async."""
        state = self._state
        state.check_online()
        if offset >= state.log_end_offset:
            state.epochs.truncate_from_end(state.log_end_offset)
            done(None)
            return
        if offset < state.log_start_offset:
            raise OffsetOutOfRange(
                f"{state.topic_partition} cannot be truncated to offset {offset}, because it "
                f"starts at {state.log_start_offset}"
            )
        end_offset = state.log_end_offset = Offset(offset)
        state.begin_cut()
        state.high_watermark = min(state.high_watermark, end_offset)
        if state.cleaned_offset is not None:
            state.cleaned_offset = min(state.cleaned_offset, end_offset)
        state.epochs.truncate_from_end(offset)
        is_synced, epochs = self._flushing.note_cut(end_offset), state.epochs.unsaved()
        self._cut_at = None

        def work() -> None:
            is_synced()
            self._cut_files(end_offset)
            epochs.write()

        def cut(_: None, error: BaseException | None) -> None:
            if error is None:
                state.epochs.mark_saved(epochs)
            self._end_cut(error, done)

        # Lower the recovery point in the checkpoint file before the log file is truncated. After a
        # power cut during the truncation, the log file can have its old length, with zeros from the
        # truncation offset on, so the next start must check these bytes.
        self._renew_checkpoints(
            lambda: state.when_in_place(lambda: self._run_with_retries(work, cut))
        )

    def _run_with_retries(
        self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run ``work`` on the files in a helper thread; call ``done`` with the outcome.

        If no file descriptor is free, all of ``work`` runs again later, so ``work`` must accept
        files that an earlier run of it has changed in part.
        """
        state = self._state
        left = TRIES_WITHOUT_DESCRIPTORS

        def try_work() -> None:
            try:
                state.check_usable()
            except LogStorageError as error:
                done(None, error)
            else:
                self._helpers.submit(work, tried)

        def tried(result: T | None, error: BaseException | None) -> None:
            nonlocal left
            left -= 1
            if isinstance(error, OSError) and is_exhausted(error) and left:
                _log.warning(
                    "log=%s not truncated yet: %s (tries_left=%d)",
                    state.path,
                    describe_exhaustion(error),
                    left,
                )
                self._retry = try_work
            else:
                done(result, error)

        try_work()

    @property
    def awaits_cut(self) -> bool:
        """Whether a truncation or emptying failed because no file descriptor was free, and must be
        tried again."""
        return self._retry is not None

    def retry_cut(self) -> None:
        """Repeat the truncation or emptying that failed because no file descriptor was free."""
        again, self._retry = self._retry, None
        if again is not None:
            again()

    def _end_cut(
        self, error: BaseException | None, done: Callable[[BaseException | None], None]
    ) -> None:
        """Call ``done``, and then the callbacks that wait for the end of this truncation or
        emptying of the log. A helper thread has changed the files, or ``error`` prevented this."""
        state = self._state
        if isinstance(error, OSError) and not is_exhausted(error):
            error = state.log_directory.go_offline(error)
        elif error is not None:
            # Perhaps only some of the log's files were changed. The next start recovers the log.
            error = state.go_offline(error)
        # First call the callback of the truncation itself, then the callbacks that wait for its end
        # (passed to PartitionLog.after_cut).
        state.is_being_cut = False
        done(error)
        state.end_cut()

    def _cut_files(self, offset: Offset) -> None:
        """Truncate the log's files to ``offset``, while no other thread uses the log.

        If this fails because no file descriptor is free, it can be called again.
        """
        state = self._state
        segments = state.segments.segments
        index = state.segments.index_for(offset)
        retained, removed = segments[: index + 1], segments[index + 1 :]
        # Remove the last segment first. Start-up loads all segments that are left, so a crash
        # between two removals must leave no gap in the log.
        for segment in reversed(removed):
            for path in mark_deleted(segment):
                state.files.remove(path)
        if removed:
            # Make the removal durable before the last kept segment is truncated, so that a crash
            # after the truncation cannot bring a removed segment back. If compaction may have left
            # gaps in the log, start-up would take the truncated part for such a gap, and accept the
            # removed segment.
            state.files.sync_dir(state.path)
        last = retained[-1]
        if self._cut_at is None:
            # Find the position at which to truncate the log file only in the first attempt: after
            # the file is truncated, index entries can point past its end.
            place = find_batch(last, offset)
            self._cut_at = last.size_bytes if place is None else place.position
        position = self._cut_at
        last.activate(state.config)
        last.log_file.truncate(position)
        last.size_bytes = position
        restart_indexes(last, position)
        state.set_segments(retained)
        state.snapshots.load(
            state.producers,
            retained,
            state.log_start_offset,
            offset,
            state.checks(),
            high_watermark=state.high_watermark,
        )
        with state.log_directory.sync_notes.note_sync(state.path.name):
            last.log_file.sync()
            # Truncate the transaction index only after the log file is synced: until then a power
            # cut can bring abort markers back, which need their entries in the index.
            last.transaction_index.cut_to_offset(offset)
            for file in last.sync_files():
                file.sync()
            state.files.sync_dir(state.path)

    # --- removing all records --------------------------------------------------------------------
    def start_over_async(
        self, offset: int, now_ms: int, done: Callable[[BaseException | None], None]
    ) -> None:
        """Drop all records and epochs in a helper thread; see PartitionLog.start_over_async."""
        state = self._state
        state.check_online()
        start = Offset(offset)
        is_before = start < state.log_start_offset
        state.begin_cut()
        state.log_start_offset = min(state.log_start_offset, start)
        # Do not raise the high watermark to ``start``: a crash may bring the old records back, and
        # then readers must not see those that were above the high watermark.
        seen = min(state.high_watermark, start)
        state.high_watermark = max(state.log_start_offset, seen)
        state.cleaned_offset = None
        state.epochs.clear()
        is_synced, epochs = self._flushing.note_cut(Offset(0)), state.epochs.unsaved()

        def work() -> Segment:
            is_synced()
            self._remove_files()
            # The directory must not hold the new segment together with an old one, because start-up
            # could take both for one log. The epoch file must not keep an epoch of the old log
            # either: its start offset could lie in the new segment.
            epochs.write()
            return self._first_segment(start, now_ms)

        def begun(segment: Segment | None, error: BaseException | None) -> None:
            if segment is not None:
                state.epochs.mark_saved(epochs)
                state.set_segments((segment,))
                state.producers.clear(start)
                has_grown = start > state.log_start_offset
                state.log_start_offset = state.log_end_offset = state.high_watermark = start
                self._flushing.note_start_over(start)
                if has_grown:
                    self._start_grew()
                # Rewrite the checkpoints before records are appended: recovery would not check
                # records before the recovery point of an older checkpoint.
                self._renew_checkpoints(lambda: self._end_cut(None, done))
            else:
                self._end_cut(error, done)

        def run_when_in_place() -> None:
            state.when_in_place(lambda: self._run_with_retries(work, begun))

        if is_before:
            # Lower the log start offset in the checkpoint file before the log starts over. With the
            # old checkpoint file, a start after a crash would drop the records before the old log
            # start offset, which this log is about to copy from the leader.
            self._renew_checkpoints(run_when_in_place)
        else:
            run_when_in_place()

    def _remove_files(self) -> None:
        """Remove all segments durably, while no other thread uses the log."""
        state = self._state
        # Remove the producer snapshots too: they describe removed records, and the emptied log
        # needs none.
        state.snapshots.remove_all()
        # Remove the last segment first, so that a crash between two removals leaves no gap between
        # segments.
        for segment in reversed(state.segments.segments):
            for path in mark_deleted(segment):
                state.files.remove(path)
        state.files.sync_dir(state.path)

    def _first_segment(self, offset: Offset, now_ms: int) -> Segment:
        state = self._state
        segment = Segment.create(state.files, state.path, offset, state.config, now_ms)
        with state.log_directory.sync_notes.note_sync(state.path.name):
            for file in segment.sync_files():
                file.sync()
            state.files.sync_dir(state.path)
        return segment
