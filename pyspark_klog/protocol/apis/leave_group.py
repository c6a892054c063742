"""LeaveGroup: remove a member from a group; since version 3 several members at once."""

from pyspark_klog.protocol.fields import array, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class MemberIdentity(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable_since=0, default=None)
    reason: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)


class LeaveGroupRequest(Request, api=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible_since=4):
    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


class MemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable_since=0)
    error_code: int = int16()


class LeaveGroupResponse(Response, api=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible_since=4):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
