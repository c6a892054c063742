"""OffsetForLeaderEpoch: get the end offset of a leader epoch, for truncation (KIP-101, KIP-320)."""

from pyspark_klog.protocol.fields import array, int16, int32, int64, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class OffsetForLeaderPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(since=2, default=-1, ignorable=True)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(
    Request, api=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(0, 4), flexible_since=4
):
    replica_id: int = int32(since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(since=1, default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(
    Response, api=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(0, 4), flexible_since=4
):
    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
