"""ListGroups: returns the groups that this broker coordinates, filtered by state and type."""

from klog_broker.api.services import GroupServices
from klog_broker.dispatch.access import on_groups, sometimes_on_cluster
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.resources.authorizer import is_allowed
from klog_broker.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from pyspark_klog.protocol.apis.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from pyspark_klog.protocol.keys import ApiKey

CLASSIC = "classic"
"""The type of all groups, since klog coordinates no other type."""


def handle(
    services: GroupServices, request: ListGroupsRequest, context: RequestContext
) -> ResponseSteps:
    """Return the groups. State and type filters ignore case, as in Kafka since 3.8 (KIP-518,
    KIP-848)."""
    error, groups = services.groups.groups()
    states = {state.strip().lower() for state in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    if types and CLASSIC not in types:
        groups = []
    response = ListGroupsResponse(error_code=error)
    describe = AclOperation.DESCRIBE
    sees_all = is_allowed(services, context, describe, AclResourceType.CLUSTER, CLUSTER_NAME)
    for group in groups:
        yield 1
        if not sees_all and not is_allowed(
            services, context, describe, AclResourceType.GROUP, group.group_id
        ):
            continue
        if not states or group.state.value.lower() in states:
            response.groups.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=CLASSIC,
                )
            )
    return response


API = BrokerApi(
    ApiKey.LIST_GROUPS,
    handle,
    top_level_error(ApiKey.LIST_GROUPS),
    access=(
        sometimes_on_cluster(AclOperation.DESCRIBE),
        on_groups(AclOperation.DESCRIBE),
    ),
)
