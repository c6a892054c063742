"""DescribeCluster: the cluster's id, controller and brokers."""

from pyspark_klog.protocol.fields import (
    UNKNOWN_OPERATIONS,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class DescribeClusterRequest(
    Request, api=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible_since=0
):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1)
    include_fenced_brokers: bool = boolean(since=2)


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)
    is_fenced: bool = boolean(since=2)


class DescribeClusterResponse(
    Response, api=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible_since=0
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    endpoint_type: int = int8(since=1, default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=UNKNOWN_OPERATIONS)
