"""Transactional Produce: what a batch says of its producer, and the question to the coordinator.

A batch that begins a transaction in its partition is appended only once the transaction coordinator
has said that the partition is part of the producer's open transaction (KIP-890; Kafka's
ReplicaManager and AddPartitionsToTxnManager). Clients of Produce 12 and later (transaction version
2) leave it to the broker to add the partition.
"""

from __future__ import annotations

from typing import NamedTuple

from klog_broker.dispatch.request_context import RequestContext
from klog_broker.log.producers.verification import VerificationGuard
from klog_broker.log.segment.planned_append import FirstBatch, PlannedLog
from klog_broker.produce.pending_produce import Append, set_error
from klog_broker.produce.services import ProduceServices
from klog_broker.replication.leader import Leader
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.produce import ProduceRequest
from pyspark_klog.records.layout import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    BATCH_HEADER_BYTES,
    INT16,
    INT32,
    INT64,
    MAGIC_AT,
    MAGIC_V2,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
    Buffer,
)

_FIRST_VERSION_THAT_ADDS = 12
_FIRST_VERSION_WITH_ABORTABLE = 11
# What older clients would not try again; they do with NOT_ENOUGH_REPLICAS, which makes them ask for
# no new metadata.
_OF_COORDINATORS = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class TransactionalBatch(NamedTuple):
    """The producer fields of a transactional batch."""

    producer_id: int
    producer_epoch: int
    first_sequence: int


class Unverified(NamedTuple):
    """An append that needs the coordinator's word."""

    leader: Leader
    append: Append


def transactional_batch(records: Buffer | None) -> TransactionalBatch | None:
    """What a partition's records say, by their first header; None if that is not transactional, or
    refused whatever the coordinator says."""
    if (
        records is None
        or len(records) < BATCH_HEADER_BYTES
        or records[MAGIC_AT] != MAGIC_V2
        or not records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT
    ):
        return None
    batch = TransactionalBatch(
        INT64.unpack_from(records, PRODUCER_ID_AT)[0],
        INT16.unpack_from(records, PRODUCER_EPOCH_AT)[0],
        INT32.unpack_from(records, BASE_SEQUENCE_AT)[0],
    )
    return batch if min(batch) >= 0 else None


def transactional_producers(request: ProduceRequest) -> set[tuple[int, int]]:
    """Producer id and epoch of the request's transactional batches: there may be one of them."""
    found = (
        transactional_batch(partition.records)
        for topic in request.topic_data
        for partition in topic.partition_data
    )
    return {batch[:2] for batch in found if batch is not None}


def guard_for(
    services: ProduceServices, leader: Leader, batch: TransactionalBatch, context: RequestContext
) -> VerificationGuard | None:
    """What the batch's append must bring; None if nothing has to be verified for it."""
    return leader.log.begin_verification(
        *batch,
        supports_epoch_bump=context.api_version >= _FIRST_VERSION_THAT_ADDS,
        now_ms=services.clock.now_ms(),
    )


class Verification:
    """The appends of one request that wait for the coordinator."""

    def __init__(
        self,
        services: ProduceServices,
        request: ProduceRequest,
        context: RequestContext,
        appends: list[Unverified],
    ) -> None:
        self._services = services
        self._request = request
        self._context = context
        self._appends = appends
        self._is_over = False

    def begin(self, producer_id: int, producer_epoch: int) -> None:
        """Ask; the appends go on once there is an answer.

        Nothing more of their connection is parsed before they are answered: then the transaction is
        open in the log, and the batches that follow need no verification and can be planned.
        """
        transactional_id = self._request.transactional_id
        assert transactional_id is not None
        self._services.verify_transactions(
            transactional_id,
            producer_id,
            producer_epoch,
            [each.leader.topic_partition for each in self._appends],
            adds=self._context.api_version >= _FIRST_VERSION_THAT_ADDS,
            done=self._done,
        )
        keeps_bytes = self._context.reply.hold()
        if not self._is_over and not keeps_bytes:
            # The records are views of a buffer that is used again after this turn.
            self._appends = [
                Unverified(leader, append._replace(records=bytearray(append.records)))
                for leader, append in self._appends
            ]

    def _done(self, codes: dict[TopicPartition, ErrorCode]) -> None:
        self._is_over = True
        for leader, append in self._appends:
            code = codes.get(leader.topic_partition, ErrorCode.NONE)
            if code is ErrorCode.NONE:
                self._services.produce.add(leader, append)
            else:
                set_error(append.answer, *told_error(code, self._context.api_version))
                append.pending.appended()


def begins_now(services: ProduceServices, log: PlannedLog, first: FirstBatch) -> bool:
    """Whether the batch, appended at once, begins its producer's transaction in the partition.

    False if the coordinator or the log refuses that, or the coordinator's answer has to wait: then
    all this is to be asked anew.
    """
    if services.verifies_elsewhere(first.transactional_id):
        # Another broker would be asked twice.
        return False
    head, now_ms = first.head, services.clock.now_ms()
    adds = first.api_version >= _FIRST_VERSION_THAT_ADDS
    guard = log.begin_verification(
        head.producer_id,
        head.producer_epoch,
        head.first_sequence,
        supports_epoch_bump=adds,
        now_ms=now_ms,
    )
    answers: list[dict[TopicPartition, ErrorCode]] = []
    services.verify_transactions(
        first.transactional_id,
        head.producer_id,
        head.producer_epoch,
        [log.topic_partition],
        adds=adds,
        done=answers.append,
    )
    if guard is None or not answers:
        return False
    code = answers[0].get(log.topic_partition, ErrorCode.NONE)
    return code is ErrorCode.NONE and log.may_begin(head, guard)


def told_error(code: ErrorCode, api_version: int) -> tuple[ErrorCode, str]:
    """What a client of this version of Produce is told of the coordinator's error."""
    text = f"the transaction coordinator answers {code.name}"
    if code is ErrorCode.PRODUCER_FENCED:
        # The producer can still abort, and go on.
        return ErrorCode.INVALID_PRODUCER_EPOCH, text
    is_retriable = code in _OF_COORDINATORS
    if code is ErrorCode.CONCURRENT_TRANSACTIONS:
        is_retriable = api_version < _FIRST_VERSION_THAT_ADDS
    if is_retriable:
        return ErrorCode.NOT_ENOUGH_REPLICAS, f"the partition could not be verified: {text}"
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < _FIRST_VERSION_WITH_ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return code, "the partition was not added to the transaction"
    return code, text
