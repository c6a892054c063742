"""JoinGroup: enter a consumer group, or come back to it for a rebalance."""

from klog_broker.coordinator.group.classic.group_machine import Joiner
from klog_broker.handlers.context import RequestContext
from klog_broker.handlers.dispatcher import ApiHandler, top_level_error
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest
from pyspark_klog.protocol.keys import ApiKey

REQUIRES_MEMBER_ID_SINCE = 4


def handle(request: JoinGroupRequest, context: RequestContext) -> None:
    """Answered when all members have joined; later requests of the connection wait until then."""
    joiner = Joiner(
        client_id=context.client_id,
        client_host=f"/{context.client_address}",
        requires_member_id=context.api_version >= REQUIRES_MEMBER_ID_SINCE,
    )
    context.broker.groups.join(request, joiner, context.reply.send)


HANDLER = ApiHandler(ApiKey.JOIN_GROUP, handle, top_level_error(ApiKey.JOIN_GROUP), max_version=5)
