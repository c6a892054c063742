"""LeaveGroup: members leave a group, so that others take their partitions over without a
timeout."""

from klog_broker.api.services import GroupServices
from klog_broker.coordinator.group.coordinator import MemberName
from klog_broker.dispatch.access import on_group
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from pyspark_klog.protocol.keys import ApiKey

SEVERAL_MEMBERS_SINCE = 3
_MEMBERS_AT_ONCE = 50


def handle(
    services: GroupServices, request: LeaveGroupRequest, context: RequestContext
) -> ResponseSteps:
    """Remove members from the group: from version 3 on several in one request, each with its own
    error. The reason for leaving (version 5) is ignored.

    Members are removed in slices, over several event-loop turns. If this broker stops serving the
    group after the first slice, the error is the result of each later member, because a top-level
    error would hide that the earlier members have left."""
    groups = services.groups
    if context.api_version < SEVERAL_MEMBERS_SINCE:
        error, results = groups.leave(request.group_id, [MemberName(request.member_id)])
        return LeaveGroupResponse(error_code=error if error is not ErrorCode.NONE else results[0])
    names = [MemberName(each.member_id, each.group_instance_id) for each in request.members]
    response = LeaveGroupResponse()
    for start in range(0, max(len(names), 1), _MEMBERS_AT_ONCE):
        some = names[start : start + _MEMBERS_AT_ONCE]
        yield 2 * len(some)
        error, results = groups.leave(request.group_id, some)
        if error is not ErrorCode.NONE:
            if not response.members:
                return LeaveGroupResponse(error_code=error)
            results = [error] * len(some)
        response.members += [
            MemberResponse(
                member_id=name.member_id, group_instance_id=name.instance_id, error_code=result
            )
            for name, result in zip(some, results, strict=True)
        ]
    return response


API = BrokerApi(
    ApiKey.LEAVE_GROUP,
    handle,
    top_level_error(ApiKey.LEAVE_GROUP),
    access=(on_group(AclOperation.READ),),
)
