"""PartitionLog: one partition's log. Its methods call the classes in the packages append, read,
maintenance and others, which do the work."""

from collections.abc import Callable, Iterable
from pathlib import Path

from klog_broker.log.append.follower_append import FollowerAppender
from klog_broker.log.append.leader_append import Appender
from klog_broker.log.append.log_writer import LogWriter
from klog_broker.log.append.plain_append import PlainAppender
from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.log.errors import LogStorageError
from klog_broker.log.log_config import LogConfig
from klog_broker.log.maintenance.cleaning import LogCleaning
from klog_broker.log.maintenance.record_removal import RecordRemoval
from klog_broker.log.producers.producer_state import ProducerEntry, ProducerHead
from klog_broker.log.producers.verification import VerificationGuard
from klog_broker.log.read.log_reader import find_offset_for_timestamp, read_region
from klog_broker.log.read.read_results import AppendInfo, EpochEndOffset, ReadInfo, TimestampOffset
from klog_broker.log.recovery.log_loading import LoadedLog
from klog_broker.log.segment.planned_append import PlanFacts, PlannedAppend
from klog_broker.log.segment.segment import Segment
from klog_broker.log.state.durability import LogFlushing
from klog_broker.log.state.flushes import FlushCallback
from klog_broker.log.state.log_listener import LogListener
from klog_broker.log.state.log_state import LogState
from klog_broker.log.state.transactions import LogTransactions
from klog_broker.log.validation.append_rules import AppendOrigin
from klog_broker.log.validation.log_validator import Validated
from klog_broker.log.validation.loop_share import LoopShare
from klog_broker.log.validation.record_checks import RecordChecks
from klog_broker.metrics.topic_counts import TopicCounts
from klog_broker.runtime.disk.files import File, ReadRegion
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from pyspark_klog.records.control import EndTransactionMarker
from pyspark_klog.storage.transaction_index import AbortedEntry


class PartitionLog:
    """The log of one partition, with its segments, producers and checkpointed offsets.

    Only the LogManager makes logs, and only the loop's thread uses them (any thread may call
    :meth:`begin_close`). Work that blocks (fsync, deleting, reading ahead) is given to helper
    threads, and its outcome comes back to the loop.

    After a failed sync or a failed invariant the log, or its whole directory, is offline. Methods
    that read or write the log then raise LogStorageError, and the callbacks that wait for a flush
    get that error.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        path: Path,
        loaded: LoadedLog,
        *,
        log_directory: LogDirectory,
        config: LogConfig,
        helpers: Helpers,
        checks: Callable[[], RecordChecks],
        remove_later: Callable[[list[Path], int], None],
        chance: Chance,
        renew_checkpoints: Callable[[Callable[[], None]], None],
        counts: TopicCounts,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.path = path
        self.log_directory = log_directory
        self.counts = counts
        """The counters (messages, bytes and others) of this log's topic."""
        self.was_unclean = loaded.was_unclean
        """Whether the log had not been closed properly, and had to be recovered.

        Readers may have seen records of its newest epoch that are lost now, so the log must be led
        in a newer epoch.
        """
        self.last_flush_ms = 0
        self.listener: LogListener[PartitionLog] | None = None
        state = self._state = LogState(
            topic_partition,
            path,
            loaded,
            log_directory=log_directory,
            config=config,
            checks=checks,
            chance=chance,
            on_offline=self._went_offline,
            counts=counts,
        )
        flushing = self._flushing = LogFlushing(
            state, helpers, recovery_point=loaded.recovery_point, on_flushed=self._flushed
        )
        on_appended = self._count_appended
        writer = self._writer = LogWriter(state, flushing, on_appended=on_appended)
        self._appender = Appender(state, writer, flushing)
        self._plain = PlainAppender(state, writer, self._appender)
        self._follower = FollowerAppender(state, writer, on_appended=on_appended)
        self._record_removal = RecordRemoval(
            state,
            flushing,
            helpers,
            roll=writer.roll,
            remove_later=remove_later,
            renew_checkpoints=renew_checkpoints,
            start_grew=self._start_grew,
        )
        self.cleaning = LogCleaning(state, helpers, remove_later)
        self._transactions = LogTransactions(state)
        self._undecided = state.producers.transactions
        if log_directory.is_offline:
            # The directory went offline because another of its logs failed to load.
            self._close_files()

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.topic_partition}, {self.log_start_offset} to "
            f"{self.log_end_offset}, flushed to {self.flushed_offset})"
        )

    # --- settings, offsets and epochs ------------------------------------------------------------
    @property
    def config(self) -> LogConfig:
        return self._state.config

    @property
    def log_start_offset(self) -> Offset:
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""
        return self._state.log_end_offset

    @property
    def high_watermark(self) -> Offset:
        """Readers see records before this offset, which the partition's leader or follower sets."""
        return self._state.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """Readers with read_committed see records before this offset."""
        return self._transactions.last_stable_offset

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The newest epoch that the log has had since it was loaded, even if no record of it is
        left; -1 if none.

        Appends as the leader of an older epoch are refused.
        """
        return self._state.newest_epoch

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The newest epoch in the log's list of epochs, even if the log has no record of this epoch
        yet; -1 if the list is empty."""
        return self._state.epochs.latest

    @property
    def cleaned_offset(self) -> Offset | None:
        """The log cleaner has cleaned up to this offset; None if it has not cleaned the log since
        the log was made or last emptied."""
        return self._state.cleaned_offset

    @property
    def compacted_before(self) -> Offset:
        """The end of the part of the log in which compaction may remove records.

        A record may have been removed if a later record with the same key lies before this offset.
        """
        state = self._state
        if state.config.compact or state.cleaned_offset is not None:
            return max(state.high_watermark, state.cleaned_offset or Offset(0))
        return Offset(0)

    @property
    def is_offline(self) -> bool:
        return self._state.is_offline

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; the last one is active."""
        return self._state.segments.segments

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def producers(self) -> Iterable[ProducerEntry]:
        """The active producers (DescribeProducers)."""
        return tuple(self._state.producers)

    def producer(self, producer_id: int) -> ProducerEntry | None:
        """The state of a producer; None if the log does not know it."""
        return self._state.producers.get(producer_id)

    def update_config(self, config: LogConfig) -> None:
        """Use these settings for later appends, rolls, flushes and retention.

        This method does not change the high watermark. If flush.messages has changed, the leader of
        the partition must compute the high watermark again, because with flush.messages=1 it waits
        for flushes.
        """
        self._state.config = config
        self._state.choose_jitter()
        self._flushing.start_flush_if_due()

    def begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """Begin a leader's epoch at the log's end, if it has not begun yet.

        Raises StaleLeaderEpoch if the epoch is older than the log's newest one. The epoch must
        already be durable in the metadata store, or another leader could get the same epoch. The
        log notes the epoch in memory, and on the disk with the next flush that moves the recovery
        point or syncs the indexes.
        """
        self._appender.begin_epoch(leader_epoch)

    def set_high_watermark(self, offset: int) -> None:
        """Let readers see records before ``offset``, but none past the log's end.

        This method never lowers the watermark.
        """
        state = self._state
        end_offset = state.log_end_offset
        reached = Offset(offset) if offset < end_offset else end_offset
        if reached > state.high_watermark:
            state.high_watermark = reached
            if self._undecided.first_unstable_offset < reached:
                self._undecided.advance_high_watermark(reached)
            if self.listener is not None:
                self.listener.high_watermark_grew(self)

    # --- notifying the listener ------------------------------------------------------------------
    def _count_appended(self) -> None:
        self._flushing.start_flush_if_due()
        if self.listener is not None:
            self.listener.log_end_grew(self)

    def _start_grew(self) -> None:
        if self.listener is not None:
            self.listener.log_start_grew(self)

    def _flushed(self) -> None:
        if self.listener is not None:
            self.listener.log_flushed(self)

    def _went_offline(self, error: LogStorageError) -> None:
        self._flushing.fail_waiters(error)
        if self.listener is not None:
            self.listener.log_went_offline(self)

    def directory_went_offline(self) -> None:
        """Fail the callbacks that wait for a flush, because the directory is offline, and close the
        log's files.

        Called by the LogManager. The failed disk can be unmounted once the files are closed.
        """
        self._went_offline(self.log_directory.storage_error())
        self._close_files()

    # --- segments --------------------------------------------------------------------------------
    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log's end, unless the last segment is empty.

        Raises OSError if the roll failed; LogStorageError, and takes the log offline, if also the
        files of the new segment cannot be removed.
        """
        self._writer.roll(now_ms)

    # --- durability ------------------------------------------------------------------------------
    @property
    def flushed_offset(self) -> Offset:
        """Records before this offset survive a power cut."""
        return self._flushing.flushed_offset

    @property
    def recovery_point(self) -> Offset:
        """The records before this offset, and their index entries, survive a power cut. Once this
        offset is in the checkpoint file, a start after a crash need not check these records."""
        return self._flushing.recovery_point

    @property
    def has_unflushed(self) -> bool:
        return self._flushing.has_unflushed

    @property
    def awaits_flush(self) -> bool:
        """Whether a flush failed for want of a file descriptor, and has to be started again."""
        return self._flushing.awaits_flush

    @property
    def flush_waiters(self) -> int:
        """How many callbacks of :meth:`when_flushed` are still waiting."""
        return self._flushing.waiting

    def when_flushed(self, offset: int, callback: FlushCallback) -> None:
        """Call back in the loop's thread: with None once ``flushed_offset >= offset``.

        The call comes at once if the offset is flushed already. The callback gets a LogStorageError
        if the log is or goes offline, or if the log is truncated below ``offset`` before the
        flush. Starts a flush if none is running.
        """
        self._flushing.when_flushed(offset, callback)

    def start_flush(self, *, with_indexes: bool = False) -> None:
        """Sync all records appended so far in a helper thread, one flush at a time.

        With ``with_indexes`` the flush also syncs the index files, and so raises the recovery
        point: a start after a crash then has fewer records to scan.
        """
        self._flushing.start_flush(with_indexes=with_indexes)

    def flush(self) -> None:
        """Sync all appended records and their indexes. Blocks."""
        self._state.check_online()
        self._flushing.flush_now()

    # --- appending as the leader -----------------------------------------------------------------
    def append_as_leader(
        self,
        records: bytes | bytearray | memoryview,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        share: LoopShare | None = None,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Validate records as Kafka does, assign offsets, and append the batch.

        ``records`` is one v2 batch, or a set of v0 and v1 messages, which is converted to v2. The
        epoch must have begun (:meth:`begin_epoch`).

        A writable buffer may be changed in place; a read-only buffer is copied. A client's
        batch that begins a transaction needs the ``guard`` of the verification of this transaction
        (:meth:`begin_verification`).

        The log is unchanged after CorruptRecords, InvalidRecords (RecordsRefused and
        InvalidTimestamp with record_errors), UnsupportedCodec, DecompressedTooLarge,
        RecordTooLarge, RecordBatchTooLarge, InvalidProducerEpoch, OutOfOrderSequence,
        InvalidTransactionState and StaleLeaderEpoch. After LogStorageError the log has no new
        batch, or is offline. ``share`` limits the validation work in the event loop. If it does not
        suffice, LoopShareExceeded is raised: then run :meth:`validation_job` in a helper thread,
        and pass the result to :meth:`append_validated`.
        """
        return self._appender.append_as_leader(
            records,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            origin=origin,
            share=share,
            guard=guard,
        )

    def validation_job(
        self, records: bytes | bytearray | memoryview, now_ms: int
    ) -> Callable[[], Validated]:
        """Return a function that validates a client's records by the log's present settings.

        The function is for a helper thread, and does not touch the log. Its errors are those that
        the validation in :meth:`append_as_leader` raises.
        """
        return self._appender.validation_job(records, now_ms)

    def append_validated(
        self,
        validated: Validated,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append a client's batch that :meth:`validation_job` has validated.

        Raises as :meth:`append_as_leader` does, except for the errors of the validation.
        """
        return self._appender.append_validated(
            validated, leader_epoch=leader_epoch, now_ms=now_ms, guard=guard
        )

    def append_plain(
        self,
        batch: bytearray,
        record_count: int,
        timestamp_ms: int,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
    ) -> None:
        """Append a coordinator's batch, whose header the function finish_plain_batch has filled in.

        The batch is validated only if a topic setting (such as compression.type) requires a change
        of the batch, or if ``leader_epoch`` is not the log's newest. All records of the batch have
        the timestamp ``timestamp_ms``. The log gets the same batch, and the same errors are
        raised, as by :meth:`append_as_leader` with the origin COORDINATOR.
        """
        self._plain.append_plain(batch, record_count, timestamp_ms, leader_epoch, now_ms)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        *,
        transaction_version: int,
        leader_epoch: LeaderEpoch,
        now_ms: int,
    ) -> Offset:
        """Append a marker that ends a producer's transaction; returns the log's new end.

        ``transaction_version`` is the transaction version (KIP-890) that the coordinator uses for
        the transaction. A marker is appended even if the producer has no open transaction, as in
        Kafka.

        The log is unchanged after InvalidProducerEpoch, CoordinatorFenced, StaleLeaderEpoch,
        RecordTooLarge and RecordBatchTooLarge. After LogStorageError the log has no new marker, or
        is offline.
        """
        return self._plain.append_marker(
            producer_id,
            producer_epoch,
            marker,
            transaction_version=transaction_version,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
        )

    # --- verification of transactions ------------------------------------------------------------
    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        first_sequence: int,
        *,
        supports_epoch_bump: bool,
        now_ms: int,
    ) -> VerificationGuard | None:
        """Return the guard of a verification (KIP-890), the object that stands for the question to
        the transaction coordinator; None if the transaction is open in this log already.

        The caller then asks the transaction coordinator whether the producer's transaction includes
        this partition, and passes the guard to the append.
        """
        return self._appender.begin_verification(
            producer_id,
            producer_epoch,
            first_sequence,
            supports_epoch_bump=supports_epoch_bump,
            now_ms=now_ms,
        )

    def is_verified(self, producer_id: int, producer_epoch: int, guard: VerificationGuard) -> bool:
        """Whether the transaction coordinator's confirmation that belongs to ``guard`` still holds.

        True if the transaction is open in this log, or if ``guard`` belongs to the producer's
        current verification. A transaction marker of the producer ends the verification.
        """
        return self._appender.is_verified(producer_id, producer_epoch, guard)

    def may_begin_transaction(self, head: ProducerHead, guard: VerificationGuard) -> bool:
        """Whether a batch with the producer fields ``head`` can be appended with ``guard``, and so
        begin its transaction: the batch is no duplicate, and no check refuses it."""
        return self._appender.may_begin_transaction(head, guard)

    # --- appends of a produce plan (planned by compiled code for many requests at once) ----------
    def plan_facts(self, now_ms: int) -> PlanFacts | None:
        """Return the state of the log that a produce plan at ``now_ms`` needs.

        In a produce plan, compiled code checks the batches of many requests at once and plans their
        appends. Returns None if a plan cannot append to this log: its settings change stored
        records or delay responses until a flush, the active segment must be rolled, or the log
        cannot be used.
        """
        return self._appender.plan_facts(now_ms)

    def write_planned(self, data: memoryview, index_rows: int) -> None:
        """Write the batches whose append compiled code has planned in a produce plan (see
        :meth:`plan_facts`) after the log's end, without effect until :meth:`commit_planned`.

        No other append may come between the two calls. Raises LogStorageError if the write fails;
        then the log is unchanged.
        """
        self._state.check_online()
        self._writer.write(data, index_rows)

    def cut_back_planned(self) -> None:
        """Cut off the bytes of :meth:`write_planned`, because they will not be committed."""
        self._writer.cut_back()

    def commit_planned(self, planned: PlannedAppend, now_ms: int) -> None:
        """Make the batches that :meth:`write_planned` has written part of the log.

        If the batches do not begin at the log's end, or if the commit fails, the log goes offline,
        and LogStorageError is raised.
        """
        self._writer.commit_as_leader(planned, (), now_ms)

    # --- appending as a follower -----------------------------------------------------------------
    def append_as_follower(
        self, records: memoryview, *, leader_epoch: LeaderEpoch, now_ms: int
    ) -> None:
        """Append batches from the leader of ``leader_epoch`` with the same bytes and offsets.

        The batches may begin after the log's end, because a compacted leader has gaps. An
        incomplete batch at the end of ``records`` is ignored.

        With the same settings, the log usually rolls where the leader's log rolled. The log has no
        new records after CorruptRecords, OffsetOutOfRange and StaleLeaderEpoch. If ``records`` do
        not fit into one segment, the first batches may have been appended despite a
        LogStorageError.
        """
        self._follower.append_as_follower(records, leader_epoch=leader_epoch, now_ms=now_ms)

    # --- reading ---------------------------------------------------------------------------------
    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int | None = None,
        min_one_batch: bool = False,
        may_block: bool = True,
    ) -> ReadInfo:
        """Find the batches from ``offset`` on, up to ``max_bytes`` and before ``end_offset``.

        The default of ``end_offset`` is the high watermark. A read returns batches of one segment,
        as in Kafka. With ``min_one_batch`` the first batch is returned whole, however large.

        Raises OffsetOutOfRange outside of [log_start_offset, log_end_offset]. For an offset at or
        past ``end_offset`` within this range the result is empty. With ``may_block=False`` raises
        ColdRead if the search for the batches, or a read of the first or last bytes of the found
        region, would have to wait for the disk.
        """
        state = self._state
        state.check_online()
        found = read_region(
            state,
            offset,
            max_bytes,
            end_offset=state.high_watermark if end_offset is None else end_offset,
            min_one_batch=min_one_batch,
            may_block=may_block,
        )
        segment, region = found or (None, None)
        return ReadInfo(region, state.high_watermark, state.log_start_offset, segment)

    def read_failed(self, error: OSError) -> LogStorageError:
        """Handle a failed read of this log's files; returns the exception to raise.

        The whole data directory goes offline, as in Kafka, unless the read only failed because no
        file descriptor was free.
        """
        return self._state.log_directory.error_for(error, self.topic_partition)

    def report_damage(self, request: str, error: object) -> None:
        """Log that a request, described with its offset or time, has met damaged records."""
        self._state.log_directory.log_damage(self.topic_partition, request, error)

    def offset_for_timestamp(
        self, timestamp_ms: int, *, may_block: bool = True
    ) -> TimestampOffset | None:
        """Return the first record with a timestamp not before ``timestamp_ms`` (ListOffsets).

        The special timestamps -1 to -6 (constants in read_results.py) ask for the latest, the
        earliest and other offsets; -5 and -6 concern tiered storage, which klog lacks. Returns None
        if no visible record matches. With ``may_block=False`` raises ColdRead if the search
        would wait for the disk, and LongLookUp if it would take long.
        """
        self._state.check_online()
        return find_offset_for_timestamp(self._state, timestamp_ms, may_block=may_block)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Return the newest epoch that is not newer than ``leader_epoch``, and its end (KIP-320).

        If ``leader_epoch`` is older than all epochs of the log, return ``leader_epoch`` and the
        offset where the oldest epoch begins; if it is newer than all of them, return (-1, -1).
        """
        state = self._state
        state.check_online()
        return EpochEndOffset(*state.epochs.end_offset_for(leader_epoch, state.log_end_offset))

    def aborted_transactions(
        self, from_offset: int, upper_offset: int, *, may_block: bool = True
    ) -> list[AbortedEntry]:
        """Return the aborted transactions of an offset range, ordered by their markers.

        The range is ``from_offset`` to ``upper_offset``, which is exclusive and at most the last
        stable offset.

        Raises LogStorageError, DamagedLog and OSError; with ``may_block=False`` also ColdRead.
        """
        return self._transactions.aborted(from_offset, upper_offset, may_block=may_block)

    def aborted_in(
        self, segment: Segment, region: ReadRegion, from_offset: int, *, may_block: bool
    ) -> list[AbortedEntry]:
        """Return the aborted transactions among the offsets from ``from_offset`` to the end of
        ``region``, the byte range of a segment's .log file that :meth:`read` has returned.

        The list can include transactions that begin shortly after the region.
        """
        return self._transactions.aborted_in(segment, region, from_offset, may_block=may_block)

    # --- deleting records and truncating ---------------------------------------------------------
    def delete_records_before(self, offset: int) -> Offset:
        """Raise the log start offset (-1: to the high watermark) for DeleteRecords; returns it.

        Raises OffsetOutOfRange for another negative offset or one past the high watermark. A later
        :meth:`apply_retention` deletes the segments that end at or before the new start, except the
        last one.
        """
        return self._record_removal.delete_records_before(offset)

    def apply_retention(self, now_ms: int) -> int:
        """Delete the segments that retention.ms, retention.bytes or the log start offset allow to
        delete; returns how many."""
        return self._record_removal.apply_retention(now_ms)

    def truncate_async(self, offset: int, done: Callable[[BaseException | None], None]) -> None:
        """Truncate the log to ``offset`` in a helper thread, for followers that diverged.

        Drops batches with ``offset`` or later offsets, and epochs that begin at or after the log's
        new end (KAFKA-10706: even if the log ends before ``offset`` anyway).

        The log ends at ``offset`` as soon as this returns, and refuses all use (LogStorageError)
        until ``done(error)`` is called in the loop's thread. If no batch has to be dropped,
        ``done`` is called before this returns. Raises OffsetOutOfRange for an offset before the
        log's start.
        """
        self._record_removal.truncate_async(offset, done)

    def start_over_async(
        self, offset: int, now_ms: int, done: Callable[[BaseException | None], None]
    ) -> None:
        """Drop all records and epochs in a helper thread, and start over at ``offset``.

        A follower does so if truncation cannot make its log equal to the leader's, for example
        because the leader's log now starts after the follower's log end. The log then starts and
        ends at ``offset``, which may lie before its old start or after its old end. The log still
        refuses appends as the leader of an epoch older than :attr:`leader_epoch`.

        The log refuses all use (LogStorageError) until ``done(error)`` is called in the loop's
        thread. After a crash the log is the old one, the first part of the old one, empty, or the
        new one.
        """
        self._record_removal.start_over_async(offset, now_ms, done)

    @property
    def is_being_cut(self) -> bool:
        """Whether the log is being truncated, or emptied to start over at another offset."""
        return self._state.is_being_cut

    def after_cut(self, callback: Callable[[], None]) -> None:
        """Call back in the loop's thread once the running truncation or emptying of the log
        (:attr:`is_being_cut`) has ended.

        The log may be offline then.
        """
        self._state.after_cut(callback)

    @property
    def awaits_cut(self) -> bool:
        """Whether a truncation or emptying of the log failed for want of a file descriptor, and has
        to be tried again."""
        return self._record_removal.awaits_cut

    def retry_cut(self) -> None:
        """Repeat the truncation or emptying that failed because no file descriptor was free.

        If the log is offline, the ``done`` callback of the truncation or emptying gets the error.
        """
        self._record_removal.retry_cut()

    # --- expiring producers, and closing files ---------------------------------------------------
    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have no open transaction and wrote nothing for ``expiration_ms``.

        Returns the number of forgotten producers.
        """
        state = self._state
        return 0 if state.is_being_cut else state.producers.expire(now_ms, expiration_ms)

    def close_unused_indexes(self) -> None:
        """Close the indexes of all segments but the active one; readers open them again."""
        if not self._state.is_being_cut:
            for segment in self.segments[:-1]:
                segment.close_indexes()

    def close(self) -> None:
        """Flush and close the log, and write a last producer snapshot if needed. Blocks.

        Raises OSError or LogStorageError.
        """
        self.begin_close()()

    def begin_close(self) -> Callable[[], None]:
        """Do the part of :meth:`close` that blocks: write a last producer snapshot, and sync.

        Skips what is not needed: a sync if all files are synced, and then also the snapshot if
        there is one at the log's end.

        Any thread may call this, while no other thread uses the log. Returns a function for the
        loop's thread, which handles the outcome of the sync and closes the files. Both can raise
        OSError and LogStorageError.
        """
        state = self._state
        state.check_online()
        active, end_offset = state.active, state.log_end_offset
        # If all records and indexes are synced already, neither the index files that `deactivate`
        # trims nor the snapshot need a sync: start-up after a power cut detects damaged files and
        # makes them again.
        is_whole = self._flushing.is_fully_synced and active.has_final_entry
        active.deactivate()
        snapshot: tuple[File, ...] = ()
        if not is_whole or not state.snapshots.has_snapshot(end_offset):
            snapshot = state.snapshots.write(state.producers, end_offset)
        if not is_whole:
            self._flushing.add([*active.sync_files(), *snapshot])
        take = self._flushing.sync_now()

        def finish() -> None:
            take()
            for segment in self.segments:
                segment.close()
            self.cleaning.close()

        return finish

    def abandon(self) -> None:
        """Write nothing to the log from now on, because the partition is deleted."""
        deleted = LogStorageError(f"{self.topic_partition} was deleted")
        self._state.error = deleted
        self._flushing.abandon(deleted)
        self._close_files()

    def _close_files(self) -> None:
        """Close all files of a log that was deleted or has failed.

        The log is not used any more, but reference cycles would keep its files open until the next
        garbage collection.
        """
        state = self._state
        if state.is_being_cut:
            # A helper thread is truncating or emptying the log, and may make a new segment.
            state.after_cut(self._close_files)
            return
        self._flushing.drop_files()
        for segment in self.segments:
            segment.close()
