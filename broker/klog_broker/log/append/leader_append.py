"""Appends as the leader: validates records, assigns offsets, and writes the batch."""

from collections.abc import Callable

from klog_broker.log.append.log_writer import LogWriter
from klog_broker.log.errors import (
    DamagedLog,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    RecordBatchTooLarge,
    StaleLeaderEpoch,
)
from klog_broker.log.log_config import INT64_MAX, INT64_MIN
from klog_broker.log.producers.producer_state import ProducerBatch, ProducerHead
from klog_broker.log.producers.producer_steps import ProducerStep, data_step, marker_step
from klog_broker.log.producers.verification import VerificationGuard
from klog_broker.log.read.read_results import AppendInfo
from klog_broker.log.segment.batch_positions import AppendedBatch
from klog_broker.log.segment.planned_append import PlanFacts
from klog_broker.log.state.durability import LogFlushing
from klog_broker.log.state.log_state import LogState
from klog_broker.log.state.rolling import append_limits
from klog_broker.log.validation.append_rules import AppendOrigin
from klog_broker.log.validation.log_validator import Validated, set_offsets, validate_and_convert
from klog_broker.log.validation.loop_share import LoopShare
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import LeaderEpoch, Offset
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.control import EndTransactionMarker
from pyspark_klog.records.record import TimestampType


class Appender:
    """Appends to one log as its leader.

    A public method without a docstring does the same as the method of this name in PartitionLog.
    """

    def __init__(self, state: LogState, writer: LogWriter, flushing: LogFlushing) -> None:
        self._state = state
        self._writer = writer
        self._flushing = flushing

    def begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        state = self._state
        self._check_epoch(leader_epoch)
        if leader_epoch > state.epochs.latest:
            state.epochs.add_epoch(leader_epoch, state.log_end_offset)
            state.newest_epoch = leader_epoch

    def _check_epoch(self, leader_epoch: LeaderEpoch) -> None:
        state = self._state
        state.check_online()
        if leader_epoch < state.newest_epoch:
            raise StaleLeaderEpoch(
                f"{state.topic_partition} is in leader epoch {state.newest_epoch}, "
                f"leader epoch {leader_epoch} is over"
            )

    # --- appending batches after their validation ------------------------------------------------
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
        state = self._state
        state.check_online()
        validated = validate_and_convert(
            records,
            now_ms=now_ms,
            config=state.config,
            checks=state.checks(),
            origin=origin,
            share=share,
        )
        return self.append_validated(
            validated, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin, guard=guard
        )

    def validation_job(
        self, records: bytes | bytearray | memoryview, now_ms: int
    ) -> Callable[[], Validated]:
        config, checks = self._state.config, self._state.checks()
        return lambda: validate_and_convert(records, now_ms=now_ms, config=config, checks=checks)

    def append_validated(
        self,
        validated: Validated,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Assign offsets to a validated batch of records, and append it. A client's duplicate is
        not appended: the result has the offsets of the first copy."""
        planned = self._place(validated, leader_epoch, now_ms)
        step = data_step(planned.row)
        if step is not None:
            producers = self._state.producers
            if origin is AppendOrigin.CLIENT:
                duplicate = producers.check_client_batch(
                    step.head, is_transactional=step.is_transactional, guard=guard
                )
                if duplicate is not None:
                    return self._duplicate_info(duplicate)
            else:
                producers.check_coordinator_batch(step.head, is_transactional=step.is_transactional)
        return self._append(planned, step, now_ms)

    def append_marker(
        self,
        batch: bytearray,
        marker: EndTransactionMarker,
        transaction_version: int,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
    ) -> AppendInfo:
        """Append a transaction marker for a coordinator: ``batch`` is the control batch with the
        marker, made by end_transaction_batch, and ``marker`` its contents.

        ``transaction_version`` is the transaction version (KIP-890) that the coordinator uses for
        the transaction. A marker for a producer without an open transaction is appended, too, as in
        Kafka.

        Raises InvalidProducerEpoch, CoordinatorFenced, StaleLeaderEpoch, RecordTooLarge,
        RecordBatchTooLarge or LogStorageError; then the log has no new marker, or is offline.
        """
        state = self._state
        state.check_online()
        validated = validate_and_convert(
            batch,
            now_ms=now_ms,
            config=state.config,
            checks=state.checks(),
            origin=AppendOrigin.COORDINATOR,
        )
        planned = self._place(validated, leader_epoch, now_ms)
        step = marker_step(planned.row, marker)
        state.producers.check_marker(step, transaction_version)
        return self._append(planned, step, now_ms)

    def _place(self, validated: Validated, leader_epoch: LeaderEpoch, now_ms: int) -> Validated:
        """Set the batch's offsets, which begin at the log's end, and its leader epoch."""
        state = self._state
        self._check_epoch(leader_epoch)
        if leader_epoch > state.epochs.latest:
            raise InvariantViolation(
                f"{state.topic_partition}: leader epoch {leader_epoch} has not begun"
            )
        planned = set_offsets(validated, state.log_end_offset, leader_epoch, now_ms)
        size_bytes = planned.row.size_bytes
        if size_bytes > state.config.segment_bytes:
            raise RecordBatchTooLarge(
                f"a batch of {size_bytes} bytes is too large: segment.bytes is "
                f"{state.config.segment_bytes}"
            )
        return planned

    def _append(self, planned: Validated, step: ProducerStep | None, now_ms: int) -> AppendInfo:
        state, row = self._state, planned.row
        first_offset, last_offset = Offset(row.base_offset), Offset(row.last_offset)
        batch = AppendedBatch(
            row.size_bytes, first_offset, Offset(last_offset + 1), row.max_timestamp_ms
        )
        info = AppendInfo(
            first_offset,
            last_offset,
            planned.log_append_time_ms,
            state.log_start_offset,
            self._required_flush(batch.end_offset),
            is_duplicate=False,
            record_count=row.record_count,
            size_bytes=row.size_bytes,
        )
        self._writer.append_batch(planned.data, batch, step, now_ms)
        return info

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
        producers = self._state.producers
        entry = producers.get(producer_id)
        if entry is not None and entry.has_ongoing_transaction(producer_epoch):
            return None
        return producers.verifications.create_guard(
            producer_id,
            producer_epoch,
            first_sequence,
            now_ms,
            supports_epoch_bump=supports_epoch_bump,
        )

    def is_verified(self, producer_id: int, producer_epoch: int, guard: VerificationGuard) -> bool:
        producers = self._state.producers
        entry = producers.get(producer_id)
        if entry is not None and entry.has_ongoing_transaction(producer_epoch):
            return True
        return producers.verifications.has_guard(producer_id, guard)

    def may_begin_transaction(self, head: ProducerHead, guard: VerificationGuard) -> bool:
        try:
            first = self._state.producers.check_client_batch(
                head, is_transactional=True, guard=guard
            )
        except (InvalidTransactionState, InvalidProducerEpoch, OutOfOrderSequence):
            return False
        return first is None

    def _duplicate_info(self, first: ProducerBatch) -> AppendInfo:
        end_offset = Offset(first.last_offset + 1)
        return AppendInfo(
            first.first_offset,
            first.last_offset,
            first.log_append_time_ms,
            self._state.log_start_offset,
            self._required_flush(end_offset),
            is_duplicate=True,
            record_count=first.last_offset - first.first_offset + 1,
            size_bytes=0,
        )

    def _required_flush(self, end_offset: Offset) -> Offset | None:
        waits = self._state.config.responses_wait_for_flush
        return end_offset if waits and end_offset > self._flushing.flushed_offset else None

    # --- the state of the log for a produce plan (appends planned by compiled code) --------------
    def plan_facts(self, now_ms: int) -> PlanFacts | None:
        state = self._state
        config = state.config
        if (
            state.is_offline
            or state.is_being_cut
            or config.responses_wait_for_flush
            or config.message_timestamp_type is not TimestampType.CREATE_TIME
            or config.compression not in (None, Codec.NONE)
        ):
            return None
        try:
            limits = append_limits(state.active, config, now_ms=now_ms, jitter_ms=state.jitter_ms)
        except (OSError, DamagedLog):
            # Reading the active segment failed. Return no PlanFacts, so that no produce plan
            # appends to this log: each request's batch is then appended by itself, and gets the
            # error if reading fails again.
            return None
        if limits is None:
            return None
        return PlanFacts(
            state.log_end_offset,
            state.epochs.latest,
            state.log_start_offset,
            config.max_message_bytes,
            max(now_ms - config.message_timestamp_before_max_ms, INT64_MIN),
            min(now_ms + config.message_timestamp_after_max_ms, INT64_MAX),
            config.compact,
            limits,
        )
