"""AlterConfigs: replace all of a resource's settings at once."""

from pyspark_klog.protocol.fields import array, boolean, int8, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class AlterableConfig(Struct):
    name: str = string()
    value: str | None = string(nullable_since=0)


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Request, api=ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible_since=2):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Response, api=ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
