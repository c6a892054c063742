"""DescribeTopicPartitions: topics' partitions, page by page (KIP-966)."""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import (
    UNKNOWN_OPERATIONS,
    array,
    boolean,
    int16,
    int32,
    string,
    struct,
    uuid,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class TopicRequest(Struct):
    name: str = string()


class Cursor(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(
    Request, api=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible_since=0
):
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable_since=0, default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = array(int32, nullable_since=0, default=None)
    last_known_elr: list[int] | None = array(int32, nullable_since=0, default=None)
    offline_replicas: list[int] = array(int32, ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable_since=0)
    topic_id: UUID = uuid(ignorable=True)
    is_internal: bool = boolean(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=UNKNOWN_OPERATIONS)


class DescribeTopicPartitionsResponse(
    Response, api=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible_since=0
):
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable_since=0, default=None)
