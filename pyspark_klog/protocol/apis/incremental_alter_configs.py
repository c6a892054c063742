"""IncrementalAlterConfigs: set, delete, append to and subtract from single settings."""

from pyspark_klog.protocol.fields import array, boolean, int8, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class AlterableConfig(Struct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable_since=0)


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(
    Request, api=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible_since=1
):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(
    Response, api=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible_since=1
):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
