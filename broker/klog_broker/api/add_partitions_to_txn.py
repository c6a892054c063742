"""AddPartitionsToTxn: adds partitions to a transaction.

Producers send versions up to 3, for one transaction. Brokers send version 4 and later to each
other, for several transactions: to add partitions for clients of transaction.version 2, or only to
verify that the partitions are in the transaction (KIP-890).
"""

from collections.abc import Callable, Mapping
from functools import partial

from klog_broker.api.services import TransactionServices
from klog_broker.api.transaction_errors import absent_partitions, as_known_by
from klog_broker.coordinator.transaction.coordinator import partitions_of
from klog_broker.coordinator.transaction.transaction_machine import TransactionResult
from klog_broker.coordinator.transaction.transaction_metadata import (
    VERSION_PLAIN,
    ProducerIdAndEpoch,
)
from klog_broker.dispatch.access import Access, on_topics
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.metadata.image import INTERNAL_TOPICS
from klog_broker.resources.requested_topics import may_use_topic
from klog_broker.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from pyspark_klog.protocol.keys import ApiKey

BATCHED_SINCE = 4

# Cost of one partition in units of about 5 us of the event loop's time
# (runtime/event_loop/slices.py): the partition is looked up, checked, and written into a record and
# the response.
_PARTITION = 2

_Errors = Mapping[TopicPartition, ErrorCode]


def handle(
    services: TransactionServices, request: AddPartitionsToTxnRequest, context: RequestContext
) -> ResponseSteps:
    transactions = _transactions(request, context.api_version)
    answers: dict[int, AddPartitionsToTxnResult] = {}
    if not transactions:
        return AddPartitionsToTxnResponse()

    def on_result(number: int, errors: _Errors) -> None:
        answers[number] = _result(transactions[number], errors, context.api_version)
        if len(answers) == len(transactions):
            results = [answers[each] for each in range(len(answers))]
            context.response_sink.send(_response(results, context.api_version))

    for number, transaction in enumerate(transactions):
        partitions = partitions_of((each.name, each.partitions) for each in transaction.topics)
        yield 1 + _PARTITION * len(partitions)
        refused = _partition_errors(services, context, partitions)
        if refused:
            on_result(number, refused)
        else:
            _add_or_verify_partitions(
                services, context, transaction, partitions, partial(on_result, number)
            )
    return None


def _transactions(
    request: AddPartitionsToTxnRequest, version: int
) -> list[AddPartitionsToTxnTransaction]:
    if version >= BATCHED_SINCE:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _partition_errors(
    services: TransactionServices, context: RequestContext, partitions: list[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return an error for each partition if at least one partition does not exist or, in a
    producer's request, may not be written to by the client: then no partition is added. Producers
    cannot add partitions of internal topics, as in Kafka. While this broker's list of the cluster's
    topics is incomplete, an absent partition may exist, so the error is the retriable
    COORDINATOR_LOAD_IN_PROGRESS."""
    absent = absent_partitions(services, partitions)
    if absent and not services.known_topics.is_complete:
        return dict.fromkeys(partitions, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    errors = dict.fromkeys(absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if context.api_version < BATCHED_SINCE:
        errors.update(
            (each, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            for each in partitions
            if each.topic in INTERNAL_TOPICS
            or not may_use_topic(services, context, AclOperation.WRITE, each.topic)
        )
    if not errors:
        return {}
    return {each: errors.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}


def _add_or_verify_partitions(
    services: TransactionServices,
    context: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    partitions: list[TopicPartition],
    on_result: Callable[[_Errors], None],
) -> None:
    transactions = services.transactions
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if context.api_version >= BATCHED_SINCE:
        transactions.verify(
            transaction.transactional_id,
            *producer,
            partitions,
            adds=not transaction.verify_only,
            done=on_result,
        )
        return

    def answer(response: TransactionResult) -> None:
        on_result(dict.fromkeys(partitions, response.error_code))

    transactions.add_partitions(
        transaction.transactional_id, producer, partitions, VERSION_PLAIN, answer
    )


def _result(
    transaction: AddPartitionsToTxnTransaction, errors: _Errors, version: int
) -> AddPartitionsToTxnResult:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, partition), code in errors.items():
        topics.setdefault(topic, []).append(
            AddPartitionsToTxnPartitionResult(
                partition_index=partition, partition_error_code=as_known_by(code, version)
            )
        )
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(name=name, results_by_partition=results)
            for name, results in topics.items()
        ],
    )


def _response(results: list[AddPartitionsToTxnResult], version: int) -> AddPartitionsToTxnResponse:
    if version >= BATCHED_SINCE:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def error_response(
    request: AddPartitionsToTxnRequest, code: ErrorCode
) -> AddPartitionsToTxnResponse:
    """Return a response with ``code`` for every partition, because responses up to version 3 have
    no other error field. If the request lists transactions (version 4 and later), the top-level
    error is ``code``, too."""

    def errors(transaction: AddPartitionsToTxnTransaction) -> _Errors:
        topics = ((each.name, each.partitions) for each in transaction.topics)
        return dict.fromkeys(partitions_of(topics), code)

    if request.transactions:
        return AddPartitionsToTxnResponse(
            error_code=code,
            results_by_transaction=[
                _result(each, errors(each), BATCHED_SINCE) for each in request.transactions
            ],
        )
    (only,) = _transactions(request, 0)
    return _response([_result(only, errors(only), 0)], 0)


def _transactional_id(request: AddPartitionsToTxnRequest) -> str | None:
    """Return the one transactional id of a producer's request; None for a broker's request, which
    lists transactions."""
    return None if request.transactions else request.v3_and_below_transactional_id


def _cluster_name(request: AddPartitionsToTxnRequest) -> str | None:
    """Return the cluster's resource name for a broker's request; None for a producer's request."""
    return CLUSTER_NAME if request.transactions else None


API = BrokerApi(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    handle,
    error_response,
    access=(
        Access(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, _transactional_id),
        on_topics(AclOperation.WRITE),
        Access(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, _cluster_name),
    ),
)
