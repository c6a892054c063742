"""SyncGroup: the group's leader sends the assignment, and each member gets its part."""

from klog_broker.api.services import GroupServices
from klog_broker.dispatch.access import on_group
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest
from pyspark_klog.protocol.keys import ApiKey

NAMES_PROTOCOL_SINCE = 5


def handle(services: GroupServices, request: SyncGroupRequest, context: RequestContext) -> None:
    """Answer when the assignment from the group's leader is committed to __consumer_offsets, or at
    an error, such as a new rebalance. From version 5 on a member must name its protocol
    (KIP-559)."""
    protocol = (request.protocol_type, request.protocol_name)
    if context.api_version >= NAMES_PROTOCOL_SINCE and None in protocol:
        raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    services.groups.sync(request, context.response_sink.send)


API = BrokerApi(
    ApiKey.SYNC_GROUP,
    handle,
    top_level_error(ApiKey.SYNC_GROUP),
    access=(on_group(AclOperation.READ),),
)
