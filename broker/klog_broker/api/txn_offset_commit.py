"""TxnOffsetCommit: commits a group's offsets within a producer's transaction (KIP-98, KIP-447).

The transaction coordinator first verifies that the group's partition of ``__consumer_offsets`` is
in the transaction. A broker that is not this coordinator does not ask it if the transaction is
already open in the partition's log. For clients of transaction.version 2 the coordinator adds the
partition (KIP-890).
"""

from collections.abc import Sequence

from klog_broker.api.services import TransactionServices
from klog_broker.coordinator.group.coordinator import Commit, CommitRequest, MemberName
from klog_broker.coordinator.shard import RecordProducer
from klog_broker.dispatch.access import on_group, on_topics, on_transactional_id
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.producers.verification import VerificationGuard
from klog_broker.resources.led_partitions import led_partition
from klog_broker.resources.requested_topics import requested_topic
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pyspark_klog.protocol.keys import ApiKey

ADDS_PARTITION_SINCE = 5
ABORTABLE_SINCE = 4
LOADING_SINCE = 2
TOPIC_IDS_SINCE = 6
MISSING_GROUP_SINCE = 6

# Cost of one partition's commit, which is created, encoded, appended to __consumer_offsets, and
# stored in the group's offsets in memory, in units of about 5 us of the event loop's time
# (runtime/event_loop/slices.py).
_COMMIT = 5

_Results = dict[TopicPartition, ErrorCode]


def handle(
    services: TransactionServices, request: TxnOffsetCommitRequest, context: RequestContext
) -> ResponseSteps:
    """Answer when the records of all accepted commits are below the high watermark of the group's
    partition of __consumer_offsets, or have failed. Each partition in the request has its own
    result."""
    by_id = context.api_version >= TOPIC_IDS_SINCE
    results: _Results = {}
    commits: dict[TopicPartition, Commit] = {}
    for topic in request.topics:
        found = requested_topic(
            services,
            context,
            AclOperation.READ,
            topic.name,
            topic.topic_id if by_id else None,
            not_sent_yet=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )
        topic.name = found.name
        for each in topic.partitions:
            yield _COMMIT
            partition = TopicPartition(topic.name, each.partition_index)
            error = found.partition_error(each.partition_index)
            if found.topic is None or error is not ErrorCode.NONE:
                results[partition] = error
                continue
            commits[partition] = Commit(
                partition=partition,
                offset=each.committed_offset,
                leader_epoch=each.committed_leader_epoch,
                metadata=each.committed_metadata or "",
                topic_id=found.topic.topic_id,
            )
    if not commits:
        return (yield from _response(request, results, context.api_version))
    offsets_partition = _offsets_partition(services, request)
    guarded = _VerificationCheck(services, offsets_partition, request, context)

    def answer(codes: Sequence[ErrorCode]) -> None:
        results.update(zip(commits, codes, strict=True))
        context.response_sink.send_in_slices(_response(request, results, context.api_version))

    def verified(errors: _Results) -> None:
        error = errors[offsets_partition]
        if error is ErrorCode.NONE and not guarded.still_holds():
            error = ErrorCode.INVALID_TXN_STATE
        if error is not ErrorCode.NONE:
            answer([_verification_error(error, context.api_version)] * len(commits))
            return
        name = MemberName(request.member_id, request.group_instance_id)
        generation_id = request.generation_id_or_member_epoch
        services.groups.commit_in_transaction(
            CommitRequest(
                request.group_id,
                name,
                generation_id,
                list(commits.values()),
                answer,
                _missing_group_error(context.api_version),
            ),
            RecordProducer(request.producer_id, request.producer_epoch),
        )

    if guarded.is_verified:
        verified({offsets_partition: ErrorCode.NONE})
        return None
    services.verify_transactions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [offsets_partition],
        adds=context.api_version >= ADDS_PARTITION_SINCE,
        done=verified,
    )
    return None


class _VerificationCheck:
    """Refuses offsets of a transaction that has ended while this broker verified with the
    transaction coordinator that it is open.

    If another broker is the transaction coordinator, the transaction can end while this broker
    waits for the answer. Offsets appended after the transaction's marker would open a transaction
    that nobody ends. So, as for Produce, the log creates a verification guard (an object that
    stands for one question to the coordinator) before the coordinator is asked, and the commit of
    the offsets is refused if a marker has ended the verification since. If this broker is the
    coordinator, no guard is needed: the coordinator answers with the state at the time of the
    append.
    """

    def __init__(
        self,
        services: TransactionServices,
        offsets_partition: TopicPartition,
        request: TxnOffsetCommitRequest,
        context: RequestContext,
    ) -> None:
        self.is_verified = False
        """Whether the transaction is already open in the group's partition of __consumer_offsets,
        so that the transaction coordinator need not be asked."""
        self._producer = (request.producer_id, request.producer_epoch)
        self._guarded: tuple[PartitionLog, VerificationGuard] | None = None
        if (
            services.transactions.serving_error(request.transactional_id)
            is not ErrorCode.NOT_COORDINATOR
        ):
            return
        log = led_partition(services, *offsets_partition).log
        guard = log.begin_verification(
            request.producer_id,
            request.producer_epoch,
            0,
            supports_epoch_bump=context.api_version >= ADDS_PARTITION_SINCE,
            now_ms=services.clock.now_ms(),
        )
        if guard is None:
            self.is_verified = True
        else:
            self._guarded = log, guard

    def still_holds(self) -> bool:
        """Return whether the transaction coordinator's confirmation that the transaction is open
        still holds: no marker has ended the transaction in this log since the verification began.
        """
        if self._guarded is None:
            return True
        log, guard = self._guarded
        return log.is_verified(*self._producer, guard)


def _offsets_partition(
    services: TransactionServices, request: TxnOffsetCommitRequest
) -> TopicPartition:
    """Return the partition of ``__consumer_offsets`` with the group's offsets. BrokerError if this
    broker does not serve the group now, or if the group id is empty."""
    groups = services.groups
    partition = groups.partition_for(request.group_id)
    error = (
        groups.serving_error(request.group_id) if request.group_id else ErrorCode.INVALID_GROUP_ID
    )
    if partition is None or error is not ErrorCode.NONE:
        raise BrokerError(error)
    return partition


def _missing_group_error(version: int) -> ErrorCode:
    """Return the error for a member of a group that does not exist."""
    if version < MISSING_GROUP_SINCE:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.GROUP_ID_NOT_FOUND


def _verification_error(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error for the client if the verification with the transaction coordinator failed
    with ``error``, like Kafka's AddPartitionsToTxnManager."""
    if error is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return error


def _response(request: TxnOffsetCommitRequest, results: _Results, version: int) -> ResponseSteps:
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        topic_response = TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(topic_response)
        for each in topic.partitions:
            yield 1
            code = results[TopicPartition(topic.name, each.partition_index)]
            topic_response.partitions.append(_partition(each.partition_index, code, version))
    return response


def _partition(index: int, code: ErrorCode, version: int) -> TxnOffsetCommitResponsePartition:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        # Clients of versions before LOADING_SINCE treat COORDINATOR_LOAD_IN_PROGRESS as fatal.
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)


def error_response(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """Return a response with ``code`` for every partition, but with COORDINATOR_NOT_AVAILABLE
    instead of COORDINATOR_LOAD_IN_PROGRESS: the version is not known here, and for old clients that
    error is fatal."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[_partition(each.partition_index, code, 0) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


API = BrokerApi(
    ApiKey.TXN_OFFSET_COMMIT,
    handle,
    error_response,
    access=(
        on_transactional_id(AclOperation.WRITE),
        on_group(AclOperation.READ),
        on_topics(AclOperation.READ),
    ),
)
