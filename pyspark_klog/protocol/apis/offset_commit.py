"""OffsetCommit: store committed offsets of a group at its coordinator."""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import array, int16, int32, int64, string, uuid
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1, ignorable=True)
    commit_timestamp: int = int64(since=1, until=1, default=-1)
    committed_metadata: str | None = string(nullable_since=0)


class OffsetCommitRequestTopic(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: UUID = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Request, api=ApiKey.OFFSET_COMMIT, versions=(0, 10), flexible_since=8):
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(since=1, default=-1, ignorable=True)
    member_id: str = string(since=1, ignorable=True)
    group_instance_id: str | None = string(since=7, nullable_since=7, default=None)
    retention_time_ms: int = int64(since=2, until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: UUID = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Response, api=ApiKey.OFFSET_COMMIT, versions=(0, 10), flexible_since=8):
    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
