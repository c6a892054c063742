"""Appends the batches of Produce requests, partition by partition, and answers a request once its
batches are replicated or flushed as its acks requires.

All appends of an event-loop turn run together after the turn has received; until then their records
are views of the receive buffer. A batch whose validation would take too long in the loop thread
waits until a helper thread has validated it.
"""

from __future__ import annotations

from klog_broker.log.errors import (
    InvalidProducerEpoch,
    InvalidTimestamp,
    InvalidTransactionState,
    LogStorageError,
    OutOfOrderSequence,
    RecordBatchTooLarge,
    RecordsRefused,
    RecordTooLarge,
    StaleLeaderEpoch,
)
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.read.read_results import AppendInfo
from klog_broker.log.validation.loop_share import LoopShare, LoopShareExceeded
from klog_broker.produce.append_validation import AppendValidation, FinishedValidation
from klog_broker.produce.pending_produce import PartitionAppend, set_error
from klog_broker.produce.services import PipelineServices
from klog_broker.replication.errors import LeadershipEnded, NotEnoughReplicas, TooLittleFreeSpace
from klog_broker.replication.leader import Leader
from klog_broker.resources.led_partitions import ended_code
from pyspark_klog.errors import ErrorCode, InvariantViolation, KlogError
from pyspark_klog.protocol.apis.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
)
from pyspark_klog.records.errors import (
    CorruptRecords,
    DamagedCompression,
    DecompressedTooLarge,
    InvalidRecords,
    RecordsError,
    UnsupportedCodec,
)

_CODES: tuple[tuple[type[KlogError], ErrorCode], ...] = (
    (InvalidTimestamp, ErrorCode.INVALID_TIMESTAMP),
    (InvalidRecords, ErrorCode.INVALID_RECORD),
    (DamagedCompression, ErrorCode.UNKNOWN_SERVER_ERROR),
    (CorruptRecords, ErrorCode.CORRUPT_MESSAGE),
    (UnsupportedCodec, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (DecompressedTooLarge, ErrorCode.MESSAGE_TOO_LARGE),
    (RecordsError, ErrorCode.CORRUPT_MESSAGE),
    (RecordTooLarge, ErrorCode.MESSAGE_TOO_LARGE),
    (RecordBatchTooLarge, ErrorCode.RECORD_LIST_TOO_LARGE),
    (InvalidProducerEpoch, ErrorCode.INVALID_PRODUCER_EPOCH),
    (OutOfOrderSequence, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (InvalidTransactionState, ErrorCode.INVALID_TXN_STATE),
    (NotEnoughReplicas, ErrorCode.NOT_ENOUGH_REPLICAS),
    (TooLittleFreeSpace, ErrorCode.NOT_ENOUGH_REPLICAS),
    (StaleLeaderEpoch, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (LogStorageError, ErrorCode.KAFKA_STORAGE_ERROR),
    (InvariantViolation, ErrorCode.KAFKA_STORAGE_ERROR),
)


class ProducePipeline:
    """The appends of an event-loop turn: collected while the turn receives, then run together."""

    def __init__(self, services: PipelineServices) -> None:
        self._services = services
        self._appends: dict[Leader, list[PartitionAppend]] = {}
        self._share = LoopShare()
        self._held = AppendValidation(services.helpers, services.clock, self._append)

    def add(self, leader: Leader, append: PartitionAppend) -> None:
        """Add an append to this event-loop turn's appends, behind earlier ones to the same
        partition."""
        appends = self._appends
        if not appends:
            self._services.loop.call_at_append(self._run)
        appends.setdefault(leader, []).append(append)

    def _run(self) -> None:
        held = self._held
        by_leader, self._appends = self._appends, {}
        done: list[PartitionAppend] = []
        for leader, appends in by_leader.items():
            for append in appends:
                connection_id = append.pending.context.connection_id
                if held.has_waiting(connection_id) or not self._append(leader, append, None):
                    held.add_append(connection_id, leader, append)
                else:
                    done.append(append)
        if any(each.pending.acks == -1 for each in done):
            # Complete the delayed fetches of followers first, because the responses to acks=all
            # requests wait until the followers have the records.
            self._services.purgatory.check_now()
        for append in done:
            append.pending.appended()

    def _append(
        self, leader: Leader, append: PartitionAppend, result: FinishedValidation | None
    ) -> bool:
        """Append the batch, and fill in the partition's response. Return False if a helper thread
        has to validate the batch first; the next call passes the helper's ``result``."""
        services = self._services
        pending, answer, records, guard = append
        acks_all, now_ms = pending.acks == -1, services.clock.now_ms()
        try:
            if result is None:
                self._share.begin_batch(services.loop.turn)
                info = leader.append(
                    records, acks_all=acks_all, now_ms=now_ms, share=self._share, guard=guard
                )
            else:
                info = leader.append_validated(
                    result, acks_all=acks_all, now_ms=now_ms, guard=guard
                )
        except LoopShareExceeded:
            return False
        except LeadershipEnded as error:
            set_error(answer, ended_code(services, leader), str(error))
        except KlogError as error:
            if not _set_refusal(answer, error, leader.log):
                services.requests.bugs.report(f"append to {leader.topic_partition}", error)
        except Exception as error:
            # The append had no effect: if it had failed halfway, the log would be offline, and the
            # error a LogStorageError.
            services.requests.bugs.report(f"append to {leader.topic_partition}", error)
            set_error(answer, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            _set_success(answer, info)
            if acks_all:
                pending.wait_for(answer, leader, info.last_offset + 1)
            elif pending.acks != 0 and info.required_flush_offset is not None:
                pending.wait_for(answer, leader, info.required_flush_offset)
        return True


def _set_success(answer: PartitionProduceResponse, info: AppendInfo) -> None:
    answer.base_offset = info.first_offset
    answer.log_append_time_ms = info.log_append_time_ms
    answer.log_start_offset = info.log_start_offset


def _set_refusal(answer: PartitionProduceResponse, error: KlogError, log: PartitionLog) -> bool:
    """Put the error code for the log's ``error`` into the partition's response. If _CODES has no
    code for this kind of error, put UNKNOWN_SERVER_ERROR and return False."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), None)
    if code is None:
        set_error(answer, ErrorCode.UNKNOWN_SERVER_ERROR)
        return False
    set_error(answer, code, str(error))
    if isinstance(error, RecordsRefused):
        answer.log_start_offset = log.log_start_offset
        answer.record_errors = [
            BatchIndexAndErrorMessage(
                batch_index=each.batch_index, batch_index_error_message=each.message
            )
            for each in error.record_errors
        ]
    return True
