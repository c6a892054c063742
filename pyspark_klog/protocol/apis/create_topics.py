"""CreateTopics: create topics by partition count and replication factor, or by assignment."""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import array, boolean, int8, int16, int32, string, uuid
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = string(nullable_since=0)


class CreatableTopic(Struct):
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Request, api=ApiKey.CREATE_TOPICS, versions=(0, 7), flexible_since=5):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(since=1)


class CreatableTopicConfigs(Struct):
    name: str = string()
    value: str | None = string(nullable_since=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1, ignorable=True)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    name: str = string()
    topic_id: UUID = uuid(since=7, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=1, nullable_since=0, ignorable=True)
    topic_config_error_code: int = int16(since=5, tag=0, ignorable=True)
    num_partitions: int = int32(since=5, default=-1, ignorable=True)
    replication_factor: int = int16(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, since=5, nullable_since=5, ignorable=True
    )


class CreateTopicsResponse(Response, api=ApiKey.CREATE_TOPICS, versions=(0, 7), flexible_since=5):
    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
