"""ListConfigResources: list resources that have settings; in version 0 client metrics only."""

from pyspark_klog.protocol.fields import array, int8, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class ListConfigResourcesRequest(
    Request, api=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible_since=0
):
    resource_types: list[int] = array(int8, since=1)


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8(since=1, default=16, ignorable=True)


class ListConfigResourcesResponse(
    Response, api=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible_since=0
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
