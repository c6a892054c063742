"""SyncGroup: the group's leader sends the assignment; each member gets its own in the response."""

from pyspark_klog.protocol.fields import array, binary, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = binary()


class SyncGroupRequest(Request, api=ApiKey.SYNC_GROUP, versions=(0, 5), flexible_since=4):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    protocol_type: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response, api=ApiKey.SYNC_GROUP, versions=(0, 5), flexible_since=4):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    assignment: bytes = binary()
