"""AlterPartitionReassignments: start or cancel reassignments of partitions."""

from pyspark_klog.protocol.fields import array, boolean, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class ReassignablePartition(Struct):
    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable_since=0, default=None)


class ReassignableTopic(Struct):
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(
    Request, api=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), flexible_since=0
):
    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


class ReassignableTopicResponse(Struct):
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(
    Response, api=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), flexible_since=0
):
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(since=1, default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
