"""DescribeAcls: list the access rules that match a filter."""

from pyspark_klog.protocol.fields import array, int8, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class DescribeAclsRequest(Request, api=ApiKey.DESCRIBE_ACLS, versions=(0, 3), flexible_since=2):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable_since=0)
    pattern_type_filter: int = int8(since=1, default=3)
    principal_filter: str | None = string(nullable_since=0)
    host_filter: str | None = string(nullable_since=0)
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(since=1, default=3)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Response, api=ApiKey.DESCRIBE_ACLS, versions=(0, 3), flexible_since=2):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
