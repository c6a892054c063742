"""AddOffsetsToTxn: adds the ``__consumer_offsets`` partition of a group to a transaction.

Clients with transaction.version 2 do not send this request: TxnOffsetCommit adds the partition.
"""

from klog_broker.api.services import TransactionServices
from klog_broker.api.transaction_errors import as_known_by
from klog_broker.coordinator.transaction.transaction_machine import TransactionResult
from klog_broker.coordinator.transaction.transaction_metadata import (
    VERSION_PLAIN,
    ProducerIdAndEpoch,
)
from klog_broker.dispatch.access import on_group, on_transactional_id
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from pyspark_klog.protocol.keys import ApiKey


def handle(
    services: TransactionServices, request: AddOffsetsToTxnRequest, context: RequestContext
) -> None:
    if not request.group_id:
        raise BrokerError(ErrorCode.INVALID_GROUP_ID)
    partition = services.groups.partition_for(request.group_id)
    if partition is None:
        # The topic __consumer_offsets does not exist yet. A transactional client may send this
        # request before it looks for the group's coordinator, so let the coordinator finder, which
        # answers FindCoordinator, create the topic.
        services.group_finder.find(request.group_id, context)
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def answer(response: TransactionResult) -> None:
        error = as_known_by(response.error_code, context.api_version)
        context.response_sink.send(AddOffsetsToTxnResponse(error_code=error))

    services.transactions.add_partitions(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        [partition],
        VERSION_PLAIN,
        answer,
    )


API = BrokerApi(
    ApiKey.ADD_OFFSETS_TO_TXN,
    handle,
    top_level_error(ApiKey.ADD_OFFSETS_TO_TXN),
    access=(
        on_transactional_id(AclOperation.WRITE),
        on_group(AclOperation.READ),
    ),
)
