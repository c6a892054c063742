"""ConsumerGroupHeartbeat: join, stay in and leave a group of the consumer protocol (KIP-848)."""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import array, int16, int32, string, struct, uuid
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class TopicPartitions(Struct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupHeartbeatRequest(
    Request, api=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible_since=0
):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable_since=0, default=None)
    subscribed_topic_regex: str | None = string(since=1, nullable_since=1, default=None)
    server_assignor: str | None = string(nullable_since=0, default=None)
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions, nullable_since=0, default=None
    )


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(
    Response, api=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible_since=0
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    member_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable_since=0, default=None)
