"""LeaveGroup: a member goes of its own accord, and its partitions need not wait for a time-out."""

from klog_broker.handlers.context import RequestContext
from klog_broker.handlers.dispatcher import ApiHandler, top_level_error
from pyspark_klog.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from pyspark_klog.protocol.keys import ApiKey


def handle(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    error = context.broker.groups.leave(request.group_id, request.member_id)
    return LeaveGroupResponse(error_code=error)


HANDLER = ApiHandler(
    ApiKey.LEAVE_GROUP,
    handle,
    top_level_error(ApiKey.LEAVE_GROUP),
    max_version=2,  # 3 brings several members at once, by static id
)
