"""ListGroups: the groups that a broker coordinates, by state and type."""

from pyspark_klog.protocol.fields import array, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class ListGroupsRequest(Request, api=ApiKey.LIST_GROUPS, versions=(0, 5), flexible_since=3):
    states_filter: list[str] = array(string, since=4)
    types_filter: list[str] = array(string, since=5)


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, ignorable=True)
    group_type: str = string(since=5, ignorable=True)


class ListGroupsResponse(Response, api=ApiKey.LIST_GROUPS, versions=(0, 5), flexible_since=3):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
