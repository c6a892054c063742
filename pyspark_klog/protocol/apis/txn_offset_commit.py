"""TxnOffsetCommit: commit offsets of a group as a part of a transaction."""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import array, int16, int32, int64, string, uuid
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable_since=0)


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string(until=5, ignorable=True)
    topic_id: UUID = uuid(since=6, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(
    Request, api=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 6), flexible_since=3
):
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id_or_member_epoch: int = int32(since=3, default=-1)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string(until=5, ignorable=True)
    topic_id: UUID = uuid(since=6, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(
    Response, api=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 6), flexible_since=3
):
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
