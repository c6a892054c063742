"""OffsetFetch: get the committed offsets of a group; since version 8 of several groups."""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import array, boolean, int16, int32, int64, string, uuid
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class OffsetFetchRequestTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class OffsetFetchRequestTopics(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: UUID = uuid(since=10, ignorable=True)
    partition_indexes: list[int] = array(int32)


class OffsetFetchRequestGroup(Struct):
    group_id: str = string()
    member_id: str | None = string(since=9, nullable_since=9, default=None, ignorable=True)
    member_epoch: int = int32(since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, nullable_since=0
    )


class OffsetFetchRequest(Request, api=ApiKey.OFFSET_FETCH, versions=(0, 10), flexible_since=6):
    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, until=7, nullable_since=2
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=5, default=-1, ignorable=True)
    metadata: str | None = string(nullable_since=0)
    error_code: int = int16()


class OffsetFetchResponseTopic(Struct):
    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1, ignorable=True)
    metadata: str | None = string(nullable_since=0)
    error_code: int = int16()


class OffsetFetchResponseTopics(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: UUID = uuid(since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(Struct):
    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


class OffsetFetchResponse(Response, api=ApiKey.OFFSET_FETCH, versions=(0, 10), flexible_since=6):
    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
