"""ListPartitionReassignments: list the reassignments in progress."""

from pyspark_klog.protocol.fields import array, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class ListPartitionReassignmentsTopics(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class ListPartitionReassignmentsRequest(
    Request, api=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible_since=0
):
    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable_since=0, default=None
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


class OngoingTopicReassignment(Struct):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(
    Response, api=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible_since=0
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
