"""Heartbeat: a member is alive, and learns whether it has to rejoin."""

from klog_broker.coordinator.group.coordinator import MemberName
from klog_broker.handlers.context import RequestContext
from klog_broker.handlers.dispatcher import ApiHandler, top_level_error
from pyspark_klog.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from pyspark_klog.protocol.keys import ApiKey


def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    name = MemberName(request.member_id, request.group_instance_id)
    error = context.broker.groups.heartbeat(request.group_id, name, request.generation_id)
    return HeartbeatResponse(error_code=error)


HANDLER = ApiHandler(ApiKey.HEARTBEAT, handle, top_level_error(ApiKey.HEARTBEAT), max_version=3)
