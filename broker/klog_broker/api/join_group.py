"""JoinGroup: a member joins a consumer group, or rejoins it for a rebalance."""

from klog_broker.api.services import GroupServices
from klog_broker.coordinator.group.classic.member import Joiner
from klog_broker.dispatch.access import on_group
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.security.acls import AclOperation
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from pyspark_klog.protocol.keys import ApiKey

REQUIRES_MEMBER_ID_SINCE = 4
NULLABLE_PROTOCOL_SINCE = 7
SKIPS_ASSIGNMENT_SINCE = 9


def handle(services: GroupServices, request: JoinGroupRequest, context: RequestContext) -> None:
    """Answer a member that takes part in a rebalance when all members of the group have joined, or
    a time limit, such as the rebalance timeout, has passed. Answer any other join earlier, for
    example one that is refused. Later requests of the connection wait for the response. The reason
    for a join (version 8) is ignored."""
    joiner = Joiner(
        client_id=context.client_id,
        client_host=f"/{context.client_address}",
        requires_member_id=context.api_version >= REQUIRES_MEMBER_ID_SINCE,
        skips_assignment=context.api_version >= SKIPS_ASSIGNMENT_SINCE,
    )

    def send(response: JoinGroupResponse) -> None:
        # The response to a refused member has no protocol name: null, or an empty name in versions
        # before 7, which cannot carry null.
        has_null = context.api_version >= NULLABLE_PROTOCOL_SINCE
        response.protocol_name = response.protocol_name or (None if has_null else "")
        context.response_sink.send(response)

    services.groups.join(request, joiner, send)


API = BrokerApi(
    ApiKey.JOIN_GROUP,
    handle,
    top_level_error(ApiKey.JOIN_GROUP),
    access=(on_group(AclOperation.READ),),
)
