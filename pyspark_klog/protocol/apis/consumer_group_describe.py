"""ConsumerGroupDescribe: members and assignments of groups of KIP-848's consumer protocol."""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import (
    UNKNOWN_OPERATIONS,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    struct,
    uuid,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class ConsumerGroupDescribeRequest(
    Request, api=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), flexible_since=0
):
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    member_id: str = string()
    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable_since=0, default=None)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    member_type: int = int8(since=1, default=-1, ignorable=True)


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=UNKNOWN_OPERATIONS)


class ConsumerGroupDescribeResponse(
    Response, api=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), flexible_since=0
):
    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
