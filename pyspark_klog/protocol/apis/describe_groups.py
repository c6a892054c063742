"""DescribeGroups: state, protocol and members of classic groups."""

from pyspark_klog.protocol.fields import (
    UNKNOWN_OPERATIONS,
    array,
    binary,
    boolean,
    int16,
    int32,
    string,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class DescribeGroupsRequest(Request, api=ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible_since=5):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(since=3)


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable_since=4, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(since=6, nullable_since=6, default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=UNKNOWN_OPERATIONS)


class DescribeGroupsResponse(
    Response, api=ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible_since=5
):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
