"""Transactional Produce: asks the transaction coordinator to verify a batch's partition.

A batch that begins a transaction in its partition is appended only after the transaction
coordinator has confirmed that the partition is part of the producer's open transaction (KIP-890;
Kafka's ReplicaManager and AddPartitionsToTxnManager). Clients of Produce 12 and later (transaction
version 2) leave it to the broker to add the partition.
"""

from __future__ import annotations

from typing import NamedTuple

from klog_broker.dispatch.request_context import RequestContext
from klog_broker.log.producers.verification import VerificationGuard
from klog_broker.log.segment.planned_append import FirstBatch, PlannedLog
from klog_broker.produce.pending_produce import PartitionAppend, set_error
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
# Errors of the transaction coordinator that older Kafka clients may fail to retry when a Produce
# response has them. So the response has NOT_ENOUGH_REPLICAS instead, which clients retry without a
# new metadata request.
_COORDINATOR_ERRORS = (
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
    """An append that waits for the transaction coordinator's confirmation that the partition is in
    the transaction."""

    leader: Leader
    append: PartitionAppend


def transactional_batch(records: Buffer | None) -> TransactionalBatch | None:
    """Return the producer fields of the first batch in a partition's records; None if the batch is
    not transactional, or if the log refuses it in any case."""
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
    """Return producer id and epoch of the request's transactional batches; a valid request has at
    most one pair."""
    found = (
        transactional_batch(partition.records)
        for topic in request.topic_data
        for partition in topic.partition_data
    )
    return {batch[:2] for batch in found if batch is not None}


def guard_for(
    services: ProduceServices, leader: Leader, batch: TransactionalBatch, context: RequestContext
) -> VerificationGuard | None:
    """Begin the verification of a transactional batch. Return the guard (a token of this
    verification) that the batch's append must pass to the log; None if the batch needs no
    verification."""
    return leader.log.begin_verification(
        *batch,
        supports_epoch_bump=context.api_version >= _FIRST_VERSION_THAT_ADDS,
        now_ms=services.clock.now_ms(),
    )


class ProduceVerification:
    """The appends of one Produce request that wait until the transaction coordinator has verified
    them."""

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

    def ask_coordinator(self, producer_id: int, producer_epoch: int) -> None:
        """Ask the transaction coordinator whether the partitions are part of the transaction. If
        so, the batches are appended; if not, the appends fail.

        The connection's next requests are parsed only after the response to this one. By then the
        appended batches have opened the transaction in the log, so the next batches need no
        verification, and the compiled kernel can serve them in a produce plan.
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
        keeps_bytes = self._context.response_sink.hold()
        if not self._is_over and not keeps_bytes:
            # The records are views of the receive buffer, which is reused after this event-loop
            # turn: copy them, because the append is made later.
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
                set_error(append.answer, *client_error(code, self._context.api_version))
                append.pending.appended()


def begins_now(services: ProduceServices, log: PlannedLog, first: FirstBatch) -> bool:
    """Return whether the batch, if appended now, begins its producer's transaction in the
    partition.

    Return False if the transaction coordinator or the log refuses, if the coordinator may be on
    another broker or cannot answer at once, or if the transaction is open already. The ordinary
    Produce handler then serves the request, and asks the coordinator if necessary.
    """
    if services.verifies_elsewhere(first.transactional_id):
        # Another broker may be the transaction coordinator, and the ordinary Produce handler asks
        # that broker. If this function asked, too, the request would be sent twice.
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
    return code is ErrorCode.NONE and log.may_begin_transaction(head, guard)


def client_error(code: ErrorCode, api_version: int) -> tuple[ErrorCode, str]:
    """Return the error code and the message that a client of this version of Produce gets for the
    transaction coordinator's error."""
    text = f"the transaction coordinator answers {code.name}"
    if code is ErrorCode.PRODUCER_FENCED:
        # A producer stops for good after PRODUCER_FENCED. After INVALID_PRODUCER_EPOCH it can still
        # abort its transaction and continue.
        return ErrorCode.INVALID_PRODUCER_EPOCH, text
    is_retriable = code in _COORDINATOR_ERRORS
    if code is ErrorCode.CONCURRENT_TRANSACTIONS:
        is_retriable = api_version < _FIRST_VERSION_THAT_ADDS
    if is_retriable:
        return ErrorCode.NOT_ENOUGH_REPLICAS, f"the partition could not be verified: {text}"
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < _FIRST_VERSION_WITH_ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return code, "the partition was not added to the transaction"
    return code, text
