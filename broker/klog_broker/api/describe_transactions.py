"""DescribeTransactions: returns the state and the partitions of transactional ids."""

from klog_broker.api.services import TransactionServices
from klog_broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from klog_broker.dispatch.access import on_topics, on_transactional_ids
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.resources.authorizer import is_allowed
from klog_broker.resources.requested_topics import may_use_topic
from klog_broker.security.acls import AclOperation, AclResourceType
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from pyspark_klog.protocol.keys import ApiKey


def handle(
    services: TransactionServices, request: DescribeTransactionsRequest, context: RequestContext
) -> ResponseSteps:
    """Describe each transactional id once even if the request names the id several times, since a
    transaction can have many partitions."""
    states = []
    for transactional_id in dict.fromkeys(request.transactional_ids):
        error, known = _transaction(services, context, transactional_id)
        yield 1 + (0 if known is None else len(known.partitions))
        states.append(
            TransactionState(transactional_id=transactional_id, error_code=error)
            if known is None
            else _described(services, context, transactional_id, known)
        )
    return DescribeTransactionsResponse(transaction_states=states)


def _transaction(
    services: TransactionServices, context: RequestContext, transactional_id: str
) -> tuple[ErrorCode, TransactionMetadata | None]:
    """Return the transaction, or the error if it does not exist, this broker does not serve the
    transactional id now, or the client may not describe it."""
    if not is_allowed(
        services,
        context,
        AclOperation.DESCRIBE,
        AclResourceType.TRANSACTIONAL_ID,
        transactional_id,
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None
    return services.transactions.describe(transactional_id)


def _described(
    services: TransactionServices,
    context: RequestContext,
    transactional_id: str,
    known: TransactionMetadata,
) -> TransactionState:
    """Describe a transaction without the topics that the client may not describe, as in Kafka."""
    topics: dict[str, list[int]] = {}
    for topic, partition in known.partitions:
        if not may_use_topic(services, context, AclOperation.DESCRIBE, topic):
            continue
        topics.setdefault(topic, []).append(partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=known.state.kafkas_name,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.start_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[TopicData(topic=name, partitions=numbers) for name, numbers in topics.items()],
    )


def _error(request: DescribeTransactionsRequest, code: ErrorCode) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=each, error_code=code)
            for each in request.transactional_ids
        ]
    )


API = BrokerApi(
    ApiKey.DESCRIBE_TRANSACTIONS,
    handle,
    _error,
    access=(
        on_transactional_ids(AclOperation.DESCRIBE),
        on_topics(AclOperation.DESCRIBE),
    ),
)
