"""DescribeGroups: returns the members of groups, with their assignments."""

from collections.abc import Generator

from klog_broker.api.services import GroupServices
from klog_broker.coordinator.group.classic.group import ClassicGroup
from klog_broker.coordinator.group.classic.states import GroupState
from klog_broker.dispatch.access import on_groups
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.resources.authorizer import is_allowed
from klog_broker.resources.operations import group_operations
from klog_broker.security.acls import AclOperation, AclResourceType
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from pyspark_klog.protocol.fields import UNKNOWN_OPERATIONS
from pyspark_klog.protocol.keys import ApiKey

NOT_FOUND_SINCE = 6


def handle(
    services: GroupServices, request: DescribeGroupsRequest, context: RequestContext
) -> ResponseSteps:
    """Describe each group once even if the request names the group several times, since a
    description can be much longer than a name. A group that does not exist is Dead; from version 6
    on it also has an error (KIP-1043)."""
    groups = []
    for group_id in dict.fromkeys(request.groups):
        yield 1
        operations = UNKNOWN_OPERATIONS
        if request.include_authorized_operations:
            operations = group_operations(services, context, group_id)
        error, group = services.groups.describe(group_id)
        if not is_allowed(
            services, context, AclOperation.DESCRIBE, AclResourceType.GROUP, group_id
        ):
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if error is not ErrorCode.NONE:
            groups.append(DescribedGroup(group_id=group_id, error_code=error))
        elif group is None:
            groups.append(_missing(group_id, context.api_version, operations))
        else:
            described = yield from _described(group)
            described.authorized_operations = operations
            groups.append(described)
    return DescribeGroupsResponse(groups=groups)


def _missing(group_id: str, version: int, operations: int) -> DescribedGroup:
    missing = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= NOT_FOUND_SINCE:
        missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        # The message does not name the group, because a group id can be longer than an error text
        # may be.
        missing.error_message = ErrorCode.GROUP_ID_NOT_FOUND.message
    else:
        missing.authorized_operations = operations
    return missing


def _described(group: ClassicGroup) -> Generator[int, None, DescribedGroup]:
    """Describe a group. Subscriptions and assignments belong to a generation, so they are shown
    only while the group is stable."""
    protocol = group.protocol_name if group.state is GroupState.STABLE else None
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
    )
    for member in list(group.members.values()):
        yield 1
        described.members.append(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else member.metadata_for(protocol),
                member_assignment=b"" if protocol is None else member.assignment,
            )
        )
    return described


def _error(request: DescribeGroupsRequest, code: ErrorCode) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=g, error_code=code) for g in request.groups]
    )


API = BrokerApi(ApiKey.DESCRIBE_GROUPS, handle, _error, access=(on_groups(AclOperation.DESCRIBE),))
