"""Appends to a log in two steps: write, then commit.

Written bytes lie after the log's end, where readers do not see them. If the write fails, or if the
caller drops the append before the commit, the bytes are cut off again. The commit makes the batches
part of the log. Before an append that exceeds a limit of the active segment, a new segment begins.
"""

from collections.abc import Callable, Iterable, Sequence

from klog_broker.log.producers.producer_state import ProducerMarker
from klog_broker.log.producers.producer_steps import ProducerStep, apply_step
from klog_broker.log.segment.batch_positions import AppendedBatch
from klog_broker.log.segment.planned_append import NO_BEGIN, AppendLimits, PlannedAppend
from klog_broker.log.segment.segment import Segment
from klog_broker.log.state.durability import LogFlushing
from klog_broker.log.state.log_state import LogState
from klog_broker.log.state.rolling import should_roll
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import Offset
from pyspark_klog.storage.transaction_index import AbortedEntry


class LogWriter:
    """Writes and commits the appends of one log.

    ``on_appended()`` is called after each append as the leader.
    """

    def __init__(
        self,
        state: LogState,
        flushing: LogFlushing,
        *,
        on_appended: Callable[[], None],
    ) -> None:
        self._state = state
        self._flushing = flushing
        self._on_appended = on_appended

    def append_batch(
        self,
        data: bytearray | memoryview,
        batch: AppendedBatch,
        step: ProducerStep | None,
        now_ms: int,
    ) -> None:
        """Write the leader's next batch and make it part of the log, in a new segment if the batch
        needs one.

        ``step`` is the batch's effect on the state of its producer. Raises LogStorageError: if the
        write failed, the log has no new batch; if the commit failed, the log is offline.
        """
        self.roll_for(batch, now_ms)
        steps: tuple[ProducerStep, ...] = ()
        aborted: tuple[AbortedEntry, ...] = ()
        if step is not None:
            steps = (step,)
            if isinstance(step, ProducerMarker):
                entry = self._state.producers.aborted_entry_of(step)
                aborted = () if entry is None else (entry,)
        self.write(data, 1, aborted)
        self.commit_as_leader(batch, steps, now_ms)

    # --- rolling ---------------------------------------------------------------------------------
    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log's end, unless the last segment is empty.

        Raises OSError if the roll failed; LogStorageError, and takes the log offline, if also the
        files of the new segment cannot be removed.
        """
        state = self._state
        old, base_offset = state.active, state.log_end_offset
        if old.base_offset == base_offset:
            return
        try:
            new = Segment.create(state.files, state.path, base_offset, state.config, now_ms)
            old.deactivate()
        except OSError:
            # The files of the new segment must not stay: the old segment would grow past the offset
            # in their names, and the next start would cut off the records from that offset on.
            try:
                Segment.remove_files(state.files, state.path, base_offset)
            except OSError as error:
                raise state.go_offline(error) from error
            raise
        snapshot = state.snapshots.write(state.producers, base_offset)
        self._flushing.add([*old.sync_files(), *snapshot])
        old.close_indexes()
        state.set_segments((*state.segments.segments, new))
        state.choose_jitter()
        # Once the old segment is synced, the recovery point moves to the new one.
        self._flushing.start_flush()

    def roll_for(self, batch: AppendedBatch, now_ms: int) -> bool:
        """Begin a new segment if the batch exceeds a limit of the active segment (its size,
        offsets, age or indexes); returns whether a segment began.

        Raises LogStorageError if a file cannot be read or written.
        """
        state = self._state
        size_bytes, _, end_offset, max_timestamp_ms = batch
        active = state.active
        try:
            if not should_roll(
                active,
                state.config,
                size_bytes=size_bytes,
                max_timestamp_ms=max_timestamp_ms,
                last_offset=end_offset - 1,
                now_ms=now_ms,
                jitter_ms=state.jitter_ms,
            ):
                return False
            self.roll(now_ms)
        except OSError as error:
            raise state.write_failed(error) from error
        return state.active is not active

    def limits_for_next(self, now_ms: int) -> AppendLimits:
        """Return what can still be appended to the active segment before it must be rolled; begin a
        new segment if a roll is due.

        Raises LogStorageError if a file cannot be read or written.
        """
        state = self._state
        try:
            limits = state.append_limits(now_ms)
            if limits is None:
                self.roll(now_ms)
                limits = state.append_limits(now_ms)
        except OSError as error:
            raise state.write_failed(error) from error
        if limits is None:
            raise InvariantViolation(
                f"{state.topic_partition}: a new segment has no space for an append"
            )
        return limits

    # --- write, then commit ----------------------------------------------------------------------
    def write(
        self,
        data: bytearray | memoryview,
        index_rows: int = 1,
        aborted: Sequence[AbortedEntry] = (),
    ) -> None:
        """Write whole batches at the log's end. Readers do not see them until the commit, the call
        that makes them part of the log.

        ``index_rows`` is the most index entries that the commit can add. Disk space for them is
        allocated now, because on a full disk the commit's store into the mapped index file would
        kill the process. ``aborted`` are the entries to be written to the transaction index. Raises
        LogStorageError if the write fails; then the log has no new batch.
        """
        state = self._state
        try:
            state.active.write(data, index_rows, aborted)
        except OSError as error:
            raise state.write_failed(error) from error

    def cut_back(self) -> None:
        """Cut off the bytes of :meth:`write`, because the caller will not commit them. Does nothing
        if the log is offline."""
        if not self._state.is_offline:
            self._state.cut_back()

    def commit_as_leader(
        self, written: AppendedBatch | PlannedAppend, steps: Iterable[ProducerStep], now_ms: int
    ) -> None:
        """Make written batches part of the log, and count their records in the topic's metrics.

        Raises LogStorageError, and takes the log offline, if the batches do not begin at the log's
        end or if the commit fails.
        """
        state = self._state
        first_offset = written.first_offset
        if first_offset != state.log_end_offset:
            error = InvariantViolation(
                f"written for offset {first_offset}, the log ends at {state.log_end_offset}"
            )
            raise state.go_offline(error) from error
        self.commit(written, steps, now_ms)
        counts = state.counts
        counts.messages_in += written.end_offset - first_offset
        counts.bytes_in += written.size_bytes
        self._on_appended()

    def commit(
        self,
        written: AppendedBatch | PlannedAppend,
        steps: Iterable[ProducerStep],
        now_ms: int,
        epochs: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Make the batches of :meth:`write` part of the log.

        Adds the batches' index entries, changes the producer states as the batches require
        (``steps``, and ``written.producers`` of a PlannedAppend), and adds the leader epochs that
        begin in the batches (``epochs``). If one of these changes fails, the log goes offline and
        LogStorageError is raised.
        """
        state = self._state
        producers = state.producers
        try:
            if isinstance(written, AppendedBatch):
                state.active.commit(written)
                end_offset = written.end_offset
            else:
                end_offset = Offset(written.end_offset)
                state.active.commit_planned(written)
                for producer_id, producer_epoch, batches, begins_at in written.producers:
                    for batch in batches:
                        producers.apply_batch(producer_id, producer_epoch, batch, now_ms)
                    if begins_at != NO_BEGIN:
                        producers.begin_transaction(producer_id, Offset(begins_at))
            state.log_end_offset = end_offset
            for step in steps:
                apply_step(producers, step, now_ms)
            producers.end_offset = end_offset
            if epochs:
                for epoch, start_offset in epochs:
                    state.epochs.add_epoch(epoch, start_offset)
                state.newest_epoch = max(state.newest_epoch, state.epochs.latest)
        except Exception as error:
            raise state.go_offline(error) from error
