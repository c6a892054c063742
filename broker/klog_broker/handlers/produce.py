"""Produce: appends a turn's batches partition by partition, and answers when they are safe.

A request is checked and split as it is parsed; the appends of a turn run together when receiving is
over (the records are views of the receive buffer until then). With acks=-1, and wherever
flush.messages=1, the answer waits in the purgatory until the high watermark has passed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from klog_broker.handlers.context import BrokerServices, RequestContext
from klog_broker.handlers.dispatcher import ApiHandler
from klog_broker.handlers.partitions import led_log, topic_by_id
from klog_broker.handlers.transactions import NO_TRANSACTIONS
from klog_broker.log.errors import (
    InvalidProducerEpoch,
    InvalidTimestamp,
    LogStorageError,
    OutOfOrderSequence,
    RecordBatchTooLarge,
    RecordsRefused,
    RecordTooLarge,
    UnsupportedForMessageFormat,
)
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.results import AppendInfo
from klog_broker.metadata.image import INTERNAL_TOPICS, Topic
from klog_broker.runtime.purgatory import DelayedOperation, Purgatory
from pyspark_klog.errors import BrokerError, ErrorCode, InvariantViolation, KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.errors import (
    CorruptRecords,
    DecompressedTooLarge,
    InvalidRecords,
    RecordsError,
    UnsupportedCodec,
)

_log = logging.getLogger("klog.produce")

# Kafka's tools write to internal topics under this client id; nobody else may.
ADMIN_CLIENT_ID = "__admin_client"

_MAGIC_AT = 16
_ATTRIBUTES_AT = 22  # the low byte of a v2 batch's attributes
_CODEC_MASK = 0x07
_TRANSACTIONAL_BIT = 0x10
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
    (UnsupportedForMessageFormat, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    (LogStorageError, ErrorCode.KAFKA_STORAGE_ERROR),
    (InvariantViolation, ErrorCode.KAFKA_STORAGE_ERROR),
)


class _Append(NamedTuple):
    """One partition's records in one request."""

    pending: _PendingProduce
    answer: PartitionProduceResponse
    records: memoryview | bytes


class _Waiting(NamedTuple):
    """An append whose answer is not due yet."""

    answer: PartitionProduceResponse
    log: PartitionLog
    required_offset: int


class _PendingProduce(DelayedOperation):
    """A Produce request until it is answered."""

    __slots__ = ("_waiting", "acks", "context", "open_appends", "request", "response")

    def __init__(self, request: ProduceRequest, context: RequestContext) -> None:
        self.request = request
        self.context = context
        self.acks = request.acks
        self.response = ProduceResponse()
        self.open_appends = 0
        self._waiting: list[_Waiting] = []

    def wait_for(self, answer: PartitionProduceResponse, log: PartitionLog, offset: int) -> None:
        """This answer is due when the high watermark of ``log`` has reached ``offset``."""
        self._waiting.append(_Waiting(answer, log, offset))

    def appended(self) -> None:
        """One of its partitions is done with; after the last one it answers, or waits for that."""
        self.open_appends -= 1
        if self.open_appends:
            return
        if not self._waiting:
            self._answer()
            return
        keys = [each.log.topic_partition for each in self._waiting]
        purgatory = self.context.broker.purgatory
        if purgatory.watch(self, keys, self.request.timeout_ms):
            return
        for each in self._waiting:
            key = each.log.topic_partition
            each.log.when_flushed(each.required_offset, _check_on_failure(purgatory, key))

    def try_complete(self, _now_ms: int) -> bool:
        still_waiting: list[_Waiting] = []
        for each in self._waiting:
            if each.log.is_offline:
                _set_error(each.answer, ErrorCode.KAFKA_STORAGE_ERROR)
            elif each.log.high_watermark < each.required_offset:
                still_waiting.append(each)
        self._waiting = still_waiting
        if still_waiting:
            return False
        self._answer()
        return True

    def on_expire(self, _now_ms: int) -> None:
        for each in self._waiting:
            _set_error(each.answer, ErrorCode.REQUEST_TIMED_OUT)
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


def _check_on_failure(
    purgatory: Purgatory, key: TopicPartition
) -> Callable[[BaseException | None], None]:
    """A flush that succeeds moves the high watermark, and that is watched; one that fails not."""

    def flushed(error: BaseException | None) -> None:
        if error is not None:
            purgatory.check(key)

    return flushed


class ProducePipeline:
    """The appends of a turn: collected while it receives, run together when it has received."""

    def __init__(self) -> None:
        self._appends: dict[PartitionLog, list[_Append]] = {}
        self._broker: BrokerServices | None = None

    def add(self, log: PartitionLog, append: _Append, broker: BrokerServices) -> None:
        """Puts an append behind the others to its log."""
        appends = self._appends
        if not appends:
            self._broker = broker
            broker.loop.call_at_append(self._run)
        appends.setdefault(log, []).append(append)

    def _run(self) -> None:
        broker = self._broker
        assert broker is not None
        by_log, self._appends = self._appends, {}
        now_ms = broker.clock.now_ms()
        for log, appends in by_log.items():
            for append in appends:
                _append(log, append, now_ms)
        for appends in by_log.values():
            for append in appends:
                append.pending.appended()


def _append(log: PartitionLog, append: _Append, now_ms: int) -> None:
    pending, answer, records = append
    try:
        info = log.append_as_leader(records, leader_epoch=log.leader_epoch, now_ms=now_ms)
    except KlogError as error:
        if not _set_refusal(answer, error, log):
            pending.context.broker.bugs.report(f"append to {log.topic_partition}", error)
        return
    except Exception as error:
        # If it was half done the log has gone offline by itself, and acknowledges nothing more.
        pending.context.broker.bugs.report(f"append to {log.topic_partition}", error)
        _set_error(answer, ErrorCode.UNKNOWN_SERVER_ERROR)
        return
    _set_success(answer, info)
    if pending.acks == 0:
        return
    required = int(info.required_flush_offset or 0)
    if pending.acks == -1:
        required = max(info.last_offset + 1, required)
    if log.high_watermark < required:
        pending.wait_for(answer, log, required)


def _set_success(answer: PartitionProduceResponse, info: AppendInfo) -> None:
    answer.base_offset = info.first_offset
    answer.log_append_time_ms = info.log_append_time_ms
    answer.log_start_offset = info.log_start_offset


def _set_error(answer: PartitionProduceResponse, code: ErrorCode, text: str | None = None) -> None:
    answer.error_code = code
    answer.error_message = text
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1


def _set_refusal(answer: PartitionProduceResponse, error: KlogError, log: PartitionLog) -> bool:
    """Says what the log's error means to clients; False if it means nothing to them."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), None)
    if code is None:
        _set_error(answer, ErrorCode.UNKNOWN_SERVER_ERROR)
        return False
    _set_error(answer, code, str(error))
    if isinstance(error, RecordsRefused):
        answer.log_start_offset = log.log_start_offset
        answer.record_errors = [
            BatchIndexAndErrorMessage(
                batch_index=each.batch_index, batch_index_error_message=each.message
            )
            for each in error.record_errors
        ]
    return True


def handle(request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    if request.transactional_id is not None or _has_transactional_batch(request):
        return _refuse(request, context, NO_TRANSACTIONS)
    if request.acks not in (-1, 0, 1):
        return _refuse(request, context, BrokerError(ErrorCode.INVALID_REQUIRED_ACKS))
    pending = _PendingProduce(request, context)
    # One more than there are partitions, so that it cannot be answered before all are looked at.
    pending.open_appends = 1
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        for partition in topic.partition_data:
            answer = PartitionProduceResponse(index=partition.index)
            answers.append(answer)
            try:
                name = topic.name
                if context.api_version >= 13:
                    name = topic_by_id(context.broker, topic.topic_id).name
                log = _appendable_log(context, request.acks, name, partition.index)
                records = _checked_records(partition.records, context.api_version)
            except BrokerError as error:
                _set_error(answer, error.code, error.text)
                continue
            pending.open_appends += 1
            append = _Append(pending, answer, records)
            context.broker.produce.add(log, append, context.broker)
        pending.response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    pending.appended()
    return None


def _appendable_log(context: RequestContext, acks: int, topic: str, partition: int) -> PartitionLog:
    broker = context.broker
    if topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own")
    log = led_log(broker, topic, partition)
    if acks == -1:
        found = broker.metadata.image.topics[topic]
        least = min_in_sync_replicas(broker, found, partition)
        in_sync = len(found.partitions[partition].in_sync)
        if in_sync < least:
            raise BrokerError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{in_sync} replicas are in sync, min.insync.replicas asks for {least}",
            )
    return log


def min_in_sync_replicas(broker: BrokerServices, topic: Topic, partition: int) -> int:
    """How many replicas acks=-1 asks for: no more than the partition has, as since Kafka 3.7."""
    least = int(topic.configs.get("min.insync.replicas", broker.config["min.insync.replicas"]))
    return min(least, len(topic.partitions[partition].replicas))


def _checked_records(records: memoryview | bytes | None, api_version: int) -> memoryview | bytes:
    """From version 3 on exactly one batch of format v2; zstd not before version 7 (KIP-110)."""
    if records is None or len(records) == 0:
        if api_version >= 3:
            raise BrokerError(ErrorCode.INVALID_RECORD, "the records of a partition are missing")
        return b""
    if len(records) <= _ATTRIBUTES_AT:
        return records  # no batch, as the log will say
    magic = records[_MAGIC_AT]
    if api_version >= 3 and magic != 2:
        raise BrokerError(
            ErrorCode.INVALID_RECORD,
            f"a batch of format v{magic} came with Produce {api_version}, which takes v2 only",
        )
    if api_version < 7 and magic == 2 and records[_ATTRIBUTES_AT] & _CODEC_MASK == Codec.ZSTD:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd came with Produce {api_version}; it needs version 7 or later",
        )
    return records


def _has_transactional_batch(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if (
                records is not None
                and len(records) > _ATTRIBUTES_AT
                and records[_MAGIC_AT] == 2
                and records[_ATTRIBUTES_AT] & _TRANSACTIONAL_BIT
            ):
                return True
    return False


def _refuse(
    request: ProduceRequest, context: RequestContext, error: BrokerError
) -> ProduceResponse | None:
    """The same error for every partition."""
    if request.acks == 0:
        context.reply.close(f"Produce with acks=0: {error}")
        return None
    return _all_refused(request, error)


def error_response(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    return None if request.acks == 0 else _all_refused(request, BrokerError(code))


def _all_refused(request: ProduceRequest, error: BrokerError) -> ProduceResponse:
    def answer(index: int) -> PartitionProduceResponse:
        response = PartitionProduceResponse(index=index)
        _set_error(response, error.code, error.text)
        return response

    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[answer(each.index) for each in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def codes_by_error() -> Sequence[tuple[type[KlogError], ErrorCode]]:
    """What each error of the log is on the wire, the first that fits: for who appends too."""
    return _CODES


HANDLER = ApiHandler(ApiKey.PRODUCE, handle, error_response, lets_next_parse=True)
