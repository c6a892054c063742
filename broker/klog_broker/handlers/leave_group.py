"""LeaveGroup: members go of their own accord, and their partitions need not wait for a time-out."""

from klog_broker.coordinator.group.coordinator import MemberName
from klog_broker.handlers.context import RequestContext
from klog_broker.handlers.dispatcher import ApiHandler, top_level_error
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from pyspark_klog.protocol.keys import ApiKey

SEVERAL_MEMBERS_SINCE = 3


def handle(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """From version 3 on several at once, each with an error of its own."""
    groups = context.broker.groups
    if context.api_version < SEVERAL_MEMBERS_SINCE:
        error, results = groups.leave(request.group_id, [MemberName(request.member_id)])
        return LeaveGroupResponse(error_code=error if error is not ErrorCode.NONE else results[0])
    names = [MemberName(each.member_id, each.group_instance_id) for each in request.members]
    error, results = groups.leave(request.group_id, names)
    members = [
        MemberResponse(
            member_id=name.member_id, group_instance_id=name.instance_id, error_code=result
        )
        for name, result in zip(names, results, strict=False)
    ]
    return LeaveGroupResponse(error_code=error, members=members)


HANDLER = ApiHandler(ApiKey.LEAVE_GROUP, handle, top_level_error(ApiKey.LEAVE_GROUP), max_version=3)
