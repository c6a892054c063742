"""ListPartitionReassignments (key 46): answers that no reassignment is in progress."""

from klog_broker.dispatch.access import on_cluster
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.security.acls import AclOperation
from pyspark_klog.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from pyspark_klog.protocol.keys import ApiKey


def handle(
    _services: object, _: ListPartitionReassignmentsRequest, __: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Return no reassignments. Unknown topics are no error, as in Kafka."""
    return ListPartitionReassignmentsResponse(error_message=None)


API = BrokerApi(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    handle,
    top_level_error(ApiKey.LIST_PARTITION_REASSIGNMENTS),
    access=(on_cluster(AclOperation.DESCRIBE),),
)
