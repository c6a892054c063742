"""DeleteGroups: delete empty groups with their offsets."""

from pyspark_klog.protocol.fields import array, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class DeleteGroupsRequest(Request, api=ApiKey.DELETE_GROUPS, versions=(0, 3), flexible_since=2):
    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string(since=3, nullable_since=3, default=None, ignorable=True)


class DeleteGroupsResponse(Response, api=ApiKey.DELETE_GROUPS, versions=(0, 3), flexible_since=2):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
