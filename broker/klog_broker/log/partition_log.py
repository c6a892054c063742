"""One partition's log: what is appended, read, kept, flushed and found again after a crash."""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from klog_broker.log.checks import RecordChecks
from klog_broker.log.digests import BatchRow
from klog_broker.log.directory import LogDirectory
from klog_broker.log.durability import Durability
from klog_broker.log.errors import (
    LogStorageError,
    OffsetOutOfRange,
    RecordBatchTooLarge,
    StaleLeaderEpoch,
)
from klog_broker.log.flushing import FlushCallback, Flusher, FlushPlan
from klog_broker.log.following import Followed, fits, follow, halves
from klog_broker.log.listener import LogListener
from klog_broker.log.loading import LoadedLog
from klog_broker.log.log_config import INT64_MAX, INT64_MIN, LogConfig
from klog_broker.log.loop_share import LoopShare
from klog_broker.log.planned import AppendRoom, PlanFacts, PlannedAppend
from klog_broker.log.producer_state import ProducerBatch, ProducerEntry
from klog_broker.log.reading import LogView, SegmentList, answer_timestamp, read_region
from klog_broker.log.recovery import producer_batch, restart_indexes
from klog_broker.log.results import AppendInfo, EpochEndOffset, ReadInfo, TimestampOffset
from klog_broker.log.retention import LogFacts, SegmentFacts, deletable_segments, why_deletable
from klog_broker.log.segment import AppendedBatch, Segment
from klog_broker.log.validation import AppendOrigin, Validated, place, prepare
from klog_broker.runtime.chance import Chance
from klog_broker.runtime.descriptors import is_exhausted
from klog_broker.runtime.helpers import Helpers
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import (
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.record import TimestampType

_LOGGER = logging.getLogger(__name__)

__all__ = ["AppendInfo", "AppendOrigin", "PartitionLog", "ReadInfo", "TimestampOffset"]


class PartitionLog:
    """Made by the LogManager only. Used from one thread, the loop's; what blocks (fsync, deleting,
    reading ahead) is handed out as work for helper threads and its outcome comes back to the loop.

    After a failed sync or a failed invariant the log, or its whole directory, is offline: every
    method then raises LogStorageError, and waiters are told so.
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
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.path = path
        self.config = config
        self.log_directory = log_directory
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.was_unclean = loaded.was_unclean
        """Whether loading had to recover it after an unclean stop: records of its newest epoch may
        have been seen and lost, so that who leads it must do so in a newer one."""
        self.last_flush_ms = 0
        self.listener: LogListener | None = None
        self._high_watermark = loaded.high_watermark
        self._files = log_directory.files
        self._checks = checks
        self._remove_later = remove_later
        self._chance = chance
        self._renew_checkpoints = renew_checkpoints
        self._helpers = helpers
        self._list = SegmentList(loaded.segments)
        self._active = loaded.segments[-1]
        self._epochs = loaded.epochs
        self._newest_epoch = loaded.newest_epoch
        self._states = loaded.states
        self._snapshots = loaded.snapshots
        self._error: BaseException | None = None
        self._is_deleted = False
        self._is_being_cut = False
        self._jitter_ms = self._choose_jitter_ms()
        self._durability = Durability(loaded.log_end_offset, loaded.recovery_point)
        self._flusher = Flusher(
            self._files,
            helpers,
            plan=self._plan_flush,
            on_flushed=self._flushed,
            on_postponed=self._durability.put_back,
            on_failed=self._flush_failed,
            on_refused=lambda error: log_directory.refuse(error, topic_partition),
        )

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.topic_partition}, {self.log_start_offset} to "
            f"{self.log_end_offset}, flushed to {self.flushed_offset})"
        )

    # --- what it is ------------------------------------------------------------------------------
    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The newest epoch that was ever noted for the log, also one of which loading or truncation
        has left nothing; -1 if none. Appends must not come in an older one."""
        return self._newest_epoch

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The newest epoch of what the log holds now; -1 if none."""
        return self._epochs.latest

    @property
    def high_watermark(self) -> Offset:
        """Up to here readers see: as far as the host of the log has said."""
        return self._high_watermark

    @property
    def is_offline(self) -> bool:
        return self._error is not None or self.log_directory.is_offline

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one is active."""
        return self._list.segments

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._list.segments)

    @property
    def producers(self) -> Iterable[ProducerEntry]:
        """The active ones (DescribeProducers)."""
        return tuple(self._states)

    def _check_online(self) -> None:
        if self._error is not None:
            raise LogStorageError(f"{self.topic_partition} is offline after: {self._error}")
        if self.log_directory.is_offline:
            raise self.log_directory.storage_error()
        if self._is_being_cut:
            raise LogStorageError(f"{self.topic_partition} is being cut")

    def _go_offline(self, error: BaseException) -> LogStorageError:
        """This partition alone: what it would do next could not be trusted."""
        if self._error is None:
            self._error = error
            _LOGGER.error("log=%s offline=%r", self.path, error, exc_info=error)
        storage_error = LogStorageError(f"{self.topic_partition} is offline after: {error}")
        self._flusher.fail(storage_error)
        self._tell_offline()
        return storage_error

    def directory_went_offline(self) -> None:
        """Tell those who wait. Called by the LogManager."""
        self._flusher.fail(self.log_directory.storage_error())
        self._tell_offline()

    def _tell_offline(self) -> None:
        if self.listener is not None:
            self.listener.log_went_offline(self)

    def update_config(self, config: LogConfig) -> None:
        """Counts from the next append or check on. The high watermark stays: whoever hosts the log
        reckons it anew."""
        self.config = config
        self._jitter_ms = self._choose_jitter_ms()
        self._flush_if_due()

    def _choose_jitter_ms(self) -> int:
        # Spreads the rolls of partitions that were created together.
        limit = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return self._chance.below(limit)

    # --- appending: plan, write, commit ----------------------------------------------------------
    def begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """A leader's epoch begins at the log's end, if it has not begun. StaleLeaderEpoch if it is
        older than the newest one.

        Noted in memory, and on the disk with the next flush that moves the recovery point: before,
        it must be durable where leaders are chosen, or another leader could get the same one.
        """
        self._check_epoch(leader_epoch)
        if leader_epoch > self._epochs.latest:
            self._epochs.note(leader_epoch, self.log_end_offset)
            self._newest_epoch = leader_epoch

    def _check_epoch(self, leader_epoch: LeaderEpoch) -> None:
        self._check_online()
        if leader_epoch < self._newest_epoch:
            raise StaleLeaderEpoch(
                f"{self.topic_partition} knows of leader epoch {self._newest_epoch}, "
                f"{leader_epoch} is over"
            )

    def append_as_leader(
        self,
        records: bytes | bytearray | memoryview,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        share: LoopShare | None = None,
    ) -> AppendInfo:
        """Validate as Kafka does, give offsets, append. Takes one v2 batch, or a set of v0 and v1
        messages, which is converted up. The epoch must have begun (:meth:`begin_epoch`).

        A writable buffer is patched in place and kept by nobody; a read-only one is copied.

        Nothing has changed when it raises: CorruptRecords, InvalidRecords (RecordsRefused and
        InvalidTimestamp with record_errors), UnsupportedCodec, DecompressedTooLarge,
        RecordTooLarge, RecordBatchTooLarge, InvalidProducerEpoch, OutOfOrderSequence,
        StaleLeaderEpoch, LogStorageError. With a ``share`` also TooMuchForTheLoop: then run
        :meth:`preparation` in a helper thread, and append what it returns with
        :meth:`append_prepared`.
        """
        self._check_online()
        prepared = prepare(
            records,
            now_ms=now_ms,
            config=self.config,
            checks=self._checks(),
            origin=origin,
            share=share,
        )
        return self.append_prepared(
            prepared, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin
        )

    def preparation(
        self, records: bytes | bytearray | memoryview, now_ms: int
    ) -> Callable[[], Validated]:
        """What validates a client's records by the settings of now. Of the log it touches nothing,
        and raises as :meth:`append_as_leader` does."""
        config, checks = self.config, self._checks()
        return lambda: prepare(records, now_ms=now_ms, config=config, checks=checks)

    def append_prepared(
        self,
        prepared: Validated,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Give offsets to what was validated, here or in a helper thread, and append it."""
        self._check_epoch(leader_epoch)
        if leader_epoch > self._epochs.latest:
            raise InvariantViolation(
                f"{self.topic_partition}: leader epoch {leader_epoch} has not begun"
            )
        planned = place(prepared, self.log_end_offset, leader_epoch, now_ms)
        row = planned.row
        if row.size_bytes > self.config.segment_bytes:
            raise RecordBatchTooLarge(
                f"a batch of {row.size_bytes} bytes, segment.bytes is {self.config.segment_bytes}"
            )
        producer = producer_batch(row)
        if producer is not None:
            duplicate = self._states.check(
                producer[0], check_sequence=origin is AppendOrigin.CLIENT
            )
            if duplicate is not None:
                return self._answer_duplicate(duplicate)
        self._write(planned, now_ms)
        return self._commit(planned, now_ms)

    def _answer_duplicate(self, first: ProducerBatch) -> AppendInfo:
        end_offset = Offset(first.last_offset + 1)
        return AppendInfo(
            first.first_offset,
            first.last_offset,
            first.log_append_time_ms,
            self.log_start_offset,
            self._required_flush(end_offset),
            is_duplicate=True,
            record_count=first.last_offset - first.first_offset + 1,
            size_bytes=0,
        )

    def _required_flush(self, end_offset: Offset) -> Offset | None:
        if self.config.replies_wait_for_flush and end_offset > self.flushed_offset:
            return end_offset
        return None

    def _write(self, planned: Validated, now_ms: int) -> None:
        """Roll if need be, and write. LogStorageError if that fails; then all is as it was."""
        try:
            self._maybe_roll(planned.row, now_ms)
            self._active.write(planned.data)
        except OSError as error:
            raise self._write_failed(error) from error

    def _write_failed(self, error: OSError) -> LogStorageError:
        """Makes all as it was, if that can be; returns what is to be raised."""
        if not is_exhausted(error):
            self._cut_back()
        return self.log_directory.refuse(error, self.topic_partition)

    def _cut_back(self) -> None:
        try:
            self._active.cut_back()
        except OSError as error:
            if not is_exhausted(error):
                raise self.log_directory.go_offline(error) from error

    def _commit(self, planned: Validated, now_ms: int) -> AppendInfo:
        """The bytes are complete: let them count."""
        row = planned.row
        first_offset, last_offset = Offset(row.base_offset), Offset(row.last_offset)
        try:
            if first_offset != self.log_end_offset:
                raise InvariantViolation(
                    f"appended at offset {first_offset}, the log ends at {self.log_end_offset}"
                )
            self._active.commit(
                (
                    AppendedBatch(
                        row.size_bytes,
                        first_offset,
                        last_offset,
                        row.max_timestamp_ms,
                        row.attributes,
                    ),
                )
            )
            self.log_end_offset = Offset(last_offset + 1)
            producer = producer_batch(row)
            if producer is not None:
                head, batch = producer
                self._states.apply(head.producer_id, head.producer_epoch, batch, now_ms)
            self._states.end_offset = self.log_end_offset
        except Exception as error:
            raise self._go_offline(error) from error
        info = AppendInfo(
            first_offset,
            last_offset,
            planned.log_append_time_ms,
            self.log_start_offset,
            self._required_flush(self.log_end_offset),
            is_duplicate=False,
            record_count=row.record_count,
            size_bytes=row.size_bytes,
        )
        self._count_appended()
        return info

    def _count_appended(self) -> None:
        self._flush_if_due()
        if self.listener is not None:
            self.listener.log_end_grew(self)

    def _flush_if_due(self) -> None:
        unflushed = self.log_end_offset - self._durability.flushed_offset
        if unflushed >= self.config.flush_messages:
            self._flusher.start()

    def set_high_watermark(self, offset: int) -> None:
        """Readers see up to there from now on; not past the log's end, never less than before."""
        reached = min(offset, self.log_end_offset)
        if reached > self._high_watermark:
            self._high_watermark = Offset(reached)
            if self.listener is not None:
                self.listener.high_watermark_grew(self)

    # --- appending what the produce kernel has planned -------------------------------------------
    def plan_facts(self, now_ms: int) -> PlanFacts | None:
        """What a plan for appends at this time must know; None if none can be made: the log stores
        records otherwise than they come, holds replies back for a flush, or is about to roll."""
        config = self.config
        if (
            self.is_offline
            or self._is_being_cut
            or config.replies_wait_for_flush
            or config.message_timestamp_type is not TimestampType.CREATE_TIME
            or config.compression not in (None, Codec.NONE)
        ):
            return None
        try:
            room = self._active.append_room(config, now_ms=now_ms, jitter_ms=self._jitter_ms)
        except OSError:
            return None  # An append that is not planned says what is wrong.
        if room is None:
            return None
        return PlanFacts(
            self.log_end_offset,
            self._epochs.latest,
            self.log_start_offset,
            config.max_message_bytes,
            max(now_ms - config.message_timestamp_before_max_ms, INT64_MIN),
            min(now_ms + config.message_timestamp_after_max_ms, INT64_MAX),
            config.compact,
            room,
        )

    def producer(self, producer_id: int) -> ProducerEntry | None:
        """What is known of a producer."""
        return self._states.get(producer_id)

    def write_planned(self, data: memoryview, index_rows: int) -> None:
        """Write whole batches at the log's end, without effect until :meth:`commit_planned`; no
        other append may come between the two. LogStorageError if that fails; then all is as it
        was."""
        self._check_online()
        try:
            self._active.write(data, index_rows)
        except OSError as error:
            raise self._write_failed(error) from error

    def take_back_planned(self) -> None:
        """The plan is dropped: what :meth:`write_planned` wrote goes."""
        if not self.is_offline:
            self._cut_back()

    def commit_planned(self, planned: PlannedAppend, now_ms: int) -> None:
        """What was written counts from now on."""
        try:
            if planned.first_offset != self.log_end_offset:
                raise InvariantViolation(
                    f"planned for offset {planned.first_offset}, the log ends at "
                    f"{self.log_end_offset}"
                )
            self._apply_planned(planned, now_ms)
        except Exception as error:
            raise self._go_offline(error) from error
        self._count_appended()

    def _apply_planned(
        self, planned: PlannedAppend, now_ms: int, codec: Codec = Codec.NONE
    ) -> None:
        self._active.commit_planned(planned, codec)
        self.log_end_offset = Offset(planned.end_offset)
        for producer_id, producer_epoch, batches in planned.producers:
            for batch in batches:
                self._states.apply(producer_id, producer_epoch, batch, now_ms)
        self._states.end_offset = self.log_end_offset

    # --- appending what a leader holds -----------------------------------------------------------
    def append_as_follower(
        self, records: memoryview, *, leader_epoch: LeaderEpoch, now_ms: int
    ) -> None:
        """Append batches as the leader of ``leader_epoch`` sent them: offsets, epochs, bytes. They
        may begin behind the log's end (a cleaned leader has gaps); one that is cut off at the end
        of ``records`` is left off.

        Rolls where the leader rolled, if the settings are the same. Nothing has changed when it
        raises CorruptRecords, OffsetOutOfRange or StaleLeaderEpoch; LogStorageError may leave
        whole batches before a new segment's.
        """
        self._check_online()
        followed = self._follow(records, leader_epoch, now_ms, check_crc=True)
        if followed is not None:
            data = records[: followed.planned.size_bytes]
            self._append_followed(data, leader_epoch, now_ms, followed)
            self._count_appended()

    def _follow(
        self, data: memoryview, leader_epoch: LeaderEpoch, now_ms: int, *, check_crc: bool
    ) -> Followed | None:
        return follow(
            data,
            self._room(now_ms),
            log_end_offset=self.log_end_offset,
            latest_epoch=self._epochs.latest,
            leader_epoch=leader_epoch,
            checks=self._checks(),
            check_crc=check_crc,
        )

    def _room(self, now_ms: int) -> AppendRoom:
        """What the active segment has room for; a new one's, if it is to be rolled."""
        try:
            room = self._active.append_room(self.config, now_ms=now_ms, jitter_ms=self._jitter_ms)
            if room is None:
                self.roll(now_ms)
                room = self._active.append_room(
                    self.config, now_ms=now_ms, jitter_ms=self._jitter_ms
                )
        except OSError as error:
            raise self._write_failed(error) from error
        if room is None:
            raise InvariantViolation(f"{self.topic_partition}: a new segment has no room")
        return room

    def _append_followed(
        self, data: memoryview, leader_epoch: LeaderEpoch, now_ms: int, followed: Followed | None
    ) -> None:
        """``data`` is whole batches that were checked, and ``followed`` what they come to now."""
        room = self._room(now_ms)
        if followed is None:
            followed = self._follow(data, leader_epoch, now_ms, check_crc=False)
            assert followed is not None
        parts = None if fits(followed, room) else halves(data, self._checks())
        if parts is not None:
            # Somewhere within them a new segment begins, where the leader's does.
            for part in parts:
                self._append_followed(part, leader_epoch, now_ms, None)
            return
        try:
            if not fits(followed, room) and self._roll_for(data, now_ms):
                self._append_followed(data, leader_epoch, now_ms, None)
                return
            self._active.write(data, len(followed.planned.index_entries) or 1)
        except OSError as error:
            raise self._write_failed(error) from error
        try:
            self._apply_planned(followed.planned, now_ms, followed.codec)
            for epoch, start_offset in followed.epochs:
                self._epochs.note(epoch, start_offset)
            self._newest_epoch = max(self._newest_epoch, self._epochs.latest)
        except Exception as error:
            raise self._go_offline(error) from error

    def _roll_for(self, data: memoryview, now_ms: int) -> bool:
        active = self._active
        self._maybe_roll(self._checks().scan(data, 0, len(data), check_crc=False).rows[0], now_ms)
        return self._active is not active

    def _maybe_roll(self, row: BatchRow, now_ms: int) -> None:
        if self._active.should_roll(
            self.config,
            size_bytes=row.size_bytes,
            max_timestamp_ms=row.max_timestamp_ms,
            last_offset=row.last_offset,
            now_ms=now_ms,
            jitter_ms=self._jitter_ms,
        ):
            self.roll(now_ms)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log's end. OSError if that fails; then all is as it was."""
        old = self._active
        base_offset = self.log_end_offset
        if old.base_offset == base_offset:
            return
        try:
            new = Segment.create(self._files, self.path, base_offset, self.config, now_ms)
            old.deactivate()
        except OSError:
            # A new segment's file must not lie there while the old one goes on past its start.
            Segment.remove_files(self._files, self.path, base_offset)
            raise
        snapshot = self._snapshots.write(self._states, base_offset)
        self._durability.add([*old.sync_files(), *snapshot], self.path)
        old.close_indexes()
        self._list = SegmentList((*self._list.segments, new))
        self._active = new
        self._jitter_ms = self._choose_jitter_ms()
        # The recovery point moves to the new segment once the old one is synced.
        self._flusher.start()

    # --- durability ------------------------------------------------------------------------------
    def when_flushed(self, offset: int, callback: FlushCallback) -> None:
        """Call back, in the loop, once ``flushed_offset >= offset`` (with None; at once if so) or
        the log is offline (with a LogStorageError). Starts a flush if none is under way."""
        if self.is_offline:
            try:
                self._check_online()
            except LogStorageError as error:
                callback(error)
            return
        if offset <= self.flushed_offset:
            callback(None)
            return
        self._flusher.wait(offset, callback)
        self.start_flush()

    def start_flush(self, *, with_indexes: bool = False) -> None:
        """Sync what has been appended so far in a helper thread, one flush at a time.

        ``with_indexes`` moves the recovery point along, too: a crash then costs less scanning.
        """
        if not self.is_offline:
            self._flusher.start(with_indexes=with_indexes)

    def flush(self) -> None:
        """Sync all that has been appended, indexes too, here and now. Blocks."""
        self._check_online()
        self._flusher.flush_now()

    @property
    def flushed_offset(self) -> Offset:
        """What lies before it survives a power cut."""
        return self._durability.flushed_offset

    @property
    def recovery_point(self) -> Offset:
        """From here on a start after a crash checks every byte."""
        return self._durability.recovery_point

    @property
    def has_unflushed(self) -> bool:
        return self._durability.is_behind(self.log_end_offset)

    @property
    def awaits_flush(self) -> bool:
        """Whether a flush that was begun has to be begun again: a descriptor was wanting."""
        return self._flusher.is_postponed and not self.is_offline

    def _plan_flush(self, with_indexes: bool) -> FlushPlan | None:
        if self.is_offline or self._is_being_cut:
            return None
        epochs = self._epochs.unsaved() if self._epochs.is_dirty else None
        return self._durability.plan(
            self._active, self.log_end_offset, epochs, with_indexes=with_indexes
        )

    def _flushed(self, plan: FlushPlan) -> None:
        before = self._durability.flushed_offset
        if self._durability.done(plan) and plan.epochs is not None:
            self._epochs.saved(plan.epochs)
        if self._durability.flushed_offset > before and self.listener is not None:
            self.listener.log_flushed(self)

    def _flush_failed(self, error: BaseException) -> LogStorageError:
        if self._is_deleted and isinstance(error, FileNotFoundError):
            # Its directory has been renamed meanwhile: nothing of it is needed any more.
            return LogStorageError(f"{self.topic_partition} was deleted")
        if is_exhausted(error):
            assert isinstance(error, OSError)
            return self.log_directory.refuse(error, self.topic_partition)
        return self.log_directory.go_offline(error)

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
        """Where the batches from ``offset`` on lie, up to ``max_bytes`` and before ``end_offset``
        (default: the high watermark). From one segment at a time, as in Kafka. With
        ``min_one_batch`` the first batch comes whole, however large.

        Raises OffsetOutOfRange outside of [log_start_offset, log_end_offset]; an offset at or past
        ``end_offset`` within it gives an empty answer. With ``may_block=False`` raises ColdRead if
        the look-up or an end of the region would have to wait for the disk.
        """
        self._check_online()
        found = read_region(
            self._view(),
            offset,
            max_bytes,
            end_offset=self.high_watermark if end_offset is None else end_offset,
            min_one_batch=min_one_batch,
            may_block=may_block,
        )
        segment, region = found or (None, None)
        return ReadInfo(region, self.high_watermark, self.log_start_offset, segment)

    def _view(self) -> LogView:
        return LogView(
            self.topic_partition,
            self._list,
            self._epochs,
            self.log_start_offset,
            self.high_watermark,
            self.log_end_offset,
        )

    def offset_for_timestamp(
        self, timestamp_ms: int, *, may_block: bool = True
    ) -> TimestampOffset | None:
        """ListOffsets: the first record with a timestamp not before ``timestamp_ms``, or an answer
        to -1 to -6 (constants in results.py). None if no visible record is that late.

        Raises ColdRead as ``read`` does. -5 and -6 ask about tiered storage, which has nothing.
        """
        self._check_online()
        return answer_timestamp(self._view(), timestamp_ms, may_block=may_block)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Where the newest epoch not newer than ``leader_epoch`` ends (KIP-320)."""
        self._check_online()
        return EpochEndOffset(*self._epochs.end_offset_for(leader_epoch, self.log_end_offset))

    # --- getting shorter -------------------------------------------------------------------------
    def delete_records_before(self, offset: int) -> Offset:
        """DeleteRecords: raise the log start offset (-1: to the high watermark); returns it.

        Raises OffsetOutOfRange for a negative one or one past the high watermark. Segments that
        end before it go at the next :meth:`apply_retention`.
        """
        self._check_online()
        target = self.high_watermark if offset == -1 else offset
        if not 0 <= target <= self.high_watermark:
            raise OffsetOutOfRange(
                f"records of {self.topic_partition} before offset {offset} cannot be deleted: "
                f"expected 0 to the high watermark {self.high_watermark}, or -1 for that"
            )
        self._raise_log_start(target)
        return self.log_start_offset

    def _raise_log_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = Offset(offset)
            # Not written: older entries in the file do no harm, loading drops them again.
            self._epochs.truncate_from_start(offset)

    def apply_retention(self, now_ms: int) -> int:
        """Delete the segments that time, size or the log start allow; returns how many."""
        self._check_online()
        try:
            facts = self._retention_facts(now_ms)
            count = deletable_segments(facts)
            if not count:
                return 0
            if count == len(self._list.segments):
                self.roll(now_ms)
        except OSError as error:
            raise self.log_directory.refuse(error, self.topic_partition) from error
        try:
            self._delete_first(count, why_deletable(facts, count))
        except OSError as error:
            raise self.log_directory.go_offline(error) from error
        return count

    def _retention_facts(self, now_ms: int) -> LogFacts:
        segments = [
            SegmentFacts(
                segment.base_offset,
                self._list.end_of(index, self.log_end_offset),
                segment.size_bytes,
                segment.retention_timestamp_ms,
            )
            for index, segment in enumerate(self._list.segments)
        ]
        return LogFacts(segments, self.log_start_offset, self.high_watermark, now_ms, self.config)

    def _delete_first(self, count: int, why: str) -> None:
        gone, kept = self._list.segments[:count], self._list.segments[count:]
        # First out of the list, so that nothing new is read from them; those who read already hold
        # the open file.
        self._list = SegmentList(kept)
        self._raise_log_start(kept[0].base_offset)
        renamed = [path for segment in gone for path in segment.mark_deleted()]
        _LOGGER.info(
            "log=%s deleted_segments=%d deleted_bytes=%d by=%s log_start_offset=%d",
            self.path,
            count,
            sum(segment.size_bytes for segment in gone),
            why,
            self.log_start_offset,
        )
        self._remove_later(renamed, self.config.file_delete_delay_ms)

    def truncate_beside(self, offset: int, done: Callable[[BaseException | None], None]) -> None:
        """Drop the batches that hold ``offset`` or later ones, and the epochs that begin behind
        what is left (KAFKA-10706: also where the log ends before ``offset``, and at its end).

        The log ends at ``offset`` as soon as this returns, and refuses to be used (LogStorageError)
        until ``done(error)`` is called, in the loop; at once if no batch has to go. For a log that
        must follow another one's course. OffsetOutOfRange before the log's start.
        """
        self._check_online()
        if offset >= self.log_end_offset:
            self._epochs.truncate_from_end(self.log_end_offset)
            done(None)
            return
        if offset < self.log_start_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition} cannot end at {offset}, it starts at "
                f"{self.log_start_offset}"
            )
        end_offset = self.log_end_offset = Offset(offset)
        self._is_being_cut = True
        self._durability.truncate(end_offset)
        self._high_watermark = min(self._high_watermark, end_offset)
        self._epochs.truncate_from_end(offset)
        is_synced, epochs = self._flusher.wait_for_run(), self._epochs.unsaved()

        def work() -> None:
            is_synced()
            self._truncate(end_offset)
            epochs.write()

        def cut(_: None, error: BaseException | None) -> None:
            if error is None:
                self._epochs.saved(epochs)
                # What is appended must not lie before a recovery point that was noted earlier.
                self._renew_checkpoints(renewed)
            elif isinstance(error, OSError) and not is_exhausted(error):
                done(self.log_directory.go_offline(error))
            else:
                # Half done: the next start finds out what is there.
                done(self._go_offline(error))

        def renewed() -> None:
            self._is_being_cut = False
            done(None)

        self._helpers.submit(work, cut)

    def _truncate(self, offset: Offset) -> None:
        """The files' part; nobody else is at the log."""
        index = self._list.index_for(offset)
        kept, gone = self._list.segments[: index + 1], self._list.segments[index + 1 :]
        for segment in gone:
            for path in segment.mark_deleted():
                self._files.remove(path)
        last = kept[-1]
        place = last.find(offset)
        last.activate(self.config)
        position = last.size_bytes if place is None else place.position
        last.log_file.truncate(position)
        last.size_bytes = position
        restart_indexes(last, position)
        self._list = SegmentList(kept)
        self._active = last
        self._snapshots.load(self._states, kept, self.log_start_offset, offset, self._checks())
        for file in last.sync_files():
            file.sync()
        self._files.sync_dir(self.path)

    # --- housekeeping ----------------------------------------------------------------------------
    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have written nothing for so long; returns how many."""
        return 0 if self._is_being_cut else self._states.expire(now_ms, expiration_ms)

    def close_unused_indexes(self) -> None:
        """Those of closed segments: who reads there now and then opens them again."""
        if not self._is_being_cut:
            for segment in self._list.segments[:-1]:
                segment.close_indexes()

    def close(self) -> None:
        """Flush and close, with a producer snapshot at the end. Blocks. OSError offline."""
        self._check_online()
        active = self._active
        active.deactivate()
        snapshot = self._snapshots.write(self._states, self.log_end_offset)
        self._durability.add([*active.sync_files(), *snapshot], self.path)
        self.flush()
        for segment in self._list.segments:
            segment.close()

    def abandon(self) -> None:
        """The partition is deleted, or its directory gone: nothing is written any more."""
        self._is_deleted = True
        deleted = LogStorageError(f"{self.topic_partition} was deleted")
        self._error = deleted
        self._flusher.fail(deleted)
        for segment in self._list.segments:
            segment.close()
