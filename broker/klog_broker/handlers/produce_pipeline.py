"""The appends of Produce: a turn's batches partition by partition, answered when they are safe.

They run together when a turn's receiving is over; the records are views of the receive buffer until
then. What takes more than the loop's share to validate is held until a helper thread has done that.
With acks=-1 the answer waits in the purgatory until the high watermark has passed, and wherever
flush.messages=1 at least until the flush; or until the leadership that appended has ended.
"""

from __future__ import annotations

from typing import NamedTuple

from klog_broker.handlers.context import BrokerServices, RequestContext
from klog_broker.handlers.held_appends import HeldAppends, Prepared
from klog_broker.handlers.partitions import ended_code
from klog_broker.log.errors import (
    InvalidProducerEpoch,
    InvalidTimestamp,
    LogStorageError,
    OutOfOrderSequence,
    RecordBatchTooLarge,
    RecordsRefused,
    RecordTooLarge,
    StaleLeaderEpoch,
    UnsupportedForMessageFormat,
)
from klog_broker.log.loop_share import LoopShare, TooMuchForTheLoop
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.results import AppendInfo
from klog_broker.replication.errors import LeadershipEnded, NotEnoughReplicas
from klog_broker.replication.partition import Leader
from klog_broker.runtime.purgatory import DelayedOperation
from pyspark_klog.errors import ErrorCode, InvariantViolation, KlogError
from pyspark_klog.protocol.apis.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from pyspark_klog.records.errors import (
    CorruptRecords,
    DecompressedTooLarge,
    InvalidRecords,
    RecordsError,
    UnsupportedCodec,
)

_CODES: tuple[tuple[type[KlogError], ErrorCode], ...] = (
    (InvalidTimestamp, ErrorCode.INVALID_TIMESTAMP),
    (InvalidRecords, ErrorCode.INVALID_RECORD),
    (CorruptRecords, ErrorCode.CORRUPT_MESSAGE),
    (UnsupportedCodec, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (DecompressedTooLarge, ErrorCode.MESSAGE_TOO_LARGE),
    (RecordsError, ErrorCode.CORRUPT_MESSAGE),
    (RecordTooLarge, ErrorCode.MESSAGE_TOO_LARGE),
    (RecordBatchTooLarge, ErrorCode.RECORD_LIST_TOO_LARGE),
    (InvalidProducerEpoch, ErrorCode.INVALID_PRODUCER_EPOCH),
    (OutOfOrderSequence, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (NotEnoughReplicas, ErrorCode.NOT_ENOUGH_REPLICAS),
    (StaleLeaderEpoch, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (UnsupportedForMessageFormat, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    (LogStorageError, ErrorCode.KAFKA_STORAGE_ERROR),
    (InvariantViolation, ErrorCode.KAFKA_STORAGE_ERROR),
)


class Append(NamedTuple):
    """One partition's records in one request."""

    pending: PendingProduce
    answer: PartitionProduceResponse
    records: memoryview | bytearray | bytes


class _Waiting(NamedTuple):
    """An append whose answer is not due yet."""

    answer: PartitionProduceResponse
    leader: Leader
    required_offset: int


class PendingProduce(DelayedOperation):
    """A Produce request until it is answered."""

    __slots__ = ("_waiting", "acks", "context", "open_appends", "request", "response")

    def __init__(self, request: ProduceRequest, context: RequestContext) -> None:
        self.request = request
        self.context = context
        self.acks = request.acks
        self.response = ProduceResponse()
        self.open_appends = 0
        self._waiting: list[_Waiting] = []

    def wait_for(
        self, answer: PartitionProduceResponse, leader: Leader, required_offset: int
    ) -> None:
        """This answer is due when what lies before the offset is as safe as ``acks`` asks for."""
        if self._safe_offset(leader) < required_offset:
            self._waiting.append(_Waiting(answer, leader, required_offset))

    def _safe_offset(self, leader: Leader) -> int:
        log = leader.log
        if self.acks == -1:
            return log.high_watermark
        # What others have is of no concern then.
        return max(log.high_watermark, log.flushed_offset)

    def appended(self) -> None:
        """One of its partitions is done with; after the last one it answers, or waits for that."""
        self.open_appends -= 1
        if self.open_appends:
            return
        if not self._waiting:
            self._answer()
            return
        keys = [each.leader.topic_partition for each in self._waiting]
        self.context.broker.purgatory.watch(self, keys, self.request.timeout_ms)

    def try_complete(self, _now_ms: int) -> bool:
        still_waiting: list[_Waiting] = []
        for each in self._waiting:
            leader = each.leader
            if leader.ended is not None:
                set_error(each.answer, ended_code(self.context.broker, leader))
            elif self._safe_offset(leader) < each.required_offset:
                still_waiting.append(each)
            elif self.acks == -1 and not leader.is_enough_in_sync:
                set_error(each.answer, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self._waiting = still_waiting
        if still_waiting:
            return False
        self._answer()
        return True

    def on_expire(self, _now_ms: int) -> None:
        for each in self._waiting:
            set_error(each.answer, ErrorCode.REQUEST_TIMED_OUT)
        self._waiting = []
        self._answer()

    def _answer(self) -> None:
        reply = self.context.reply
        if self.acks != 0:
            reply.send(self.response)
            return
        for topic in self.response.responses:
            for partition in topic.partition_responses:
                if partition.error_code:
                    # There is no other way to tell a client that expects no answer.
                    name = f"{topic.name or topic.topic_id}-{partition.index}"
                    reply.close(f"Produce with acks=0 to {name}: {partition.error_message}")
                    return
        reply.skip()


class ProducePipeline:
    """The appends of a turn: collected while it receives, run together when it has received."""

    def __init__(self) -> None:
        self._appends: dict[Leader, list[Append]] = {}
        self._share = LoopShare()
        self._held: HeldAppends | None = None
        self._broker: BrokerServices | None = None

    def add(self, leader: Leader, append: Append, broker: BrokerServices) -> None:
        """Puts an append behind the others to its partition."""
        appends = self._appends
        if not appends:
            if self._held is None:
                self._broker = broker
                self._held = HeldAppends(broker.helpers, self._append)
            broker.loop.call_at_append(self._run)
        appends.setdefault(leader, []).append(append)

    def _run(self) -> None:
        held = self._held
        assert held is not None
        by_leader, self._appends = self._appends, {}
        done: list[Append] = []
        for leader, appends in by_leader.items():
            for append in appends:
                connection_id = append.pending.context.connection_id
                if held.has(connection_id) or not self._append(leader, append, None):
                    held.hold(connection_id, leader, append)
                else:
                    done.append(append)
        for append in done:
            append.pending.appended()

    def _append(self, leader: Leader, append: Append, result: Prepared | None) -> bool:
        """Append, and write down what came of it; False if it has to be validated in a helper
        first, which ``result`` comes from."""
        broker = self._broker
        assert broker is not None
        pending, answer, records = append
        acks_all, now_ms = pending.acks == -1, broker.clock.now_ms()
        try:
            if result is None:
                self._share.begin_batch(broker.loop.turn)
                info = leader.append(records, acks_all=acks_all, now_ms=now_ms, share=self._share)
            else:
                info = leader.append_prepared(result, acks_all=acks_all, now_ms=now_ms)
        except TooMuchForTheLoop:
            return False
        except LeadershipEnded as error:
            set_error(answer, ended_code(broker, leader), str(error))
        except KlogError as error:
            if not _set_refusal(answer, error, leader.log):
                broker.bugs.report(f"append to {leader.topic_partition}", error)
        except Exception as error:
            # If it was half done the log has gone offline by itself, and acknowledges nothing more.
            broker.bugs.report(f"append to {leader.topic_partition}", error)
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


def set_error(answer: PartitionProduceResponse, code: ErrorCode, text: str | None = None) -> None:
    answer.error_code = code
    answer.error_message = text
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1


def _set_refusal(answer: PartitionProduceResponse, error: KlogError, log: PartitionLog) -> bool:
    """Says what the log's error means to clients; False if it means nothing to them."""
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
