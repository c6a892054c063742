"""ElectLeaders: start preferred (type 0) or unclean (type 1) leader elections."""

from pyspark_klog.protocol.fields import array, int8, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class TopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ElectLeadersRequest(Request, api=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible_since=2):
    election_type: int = int8(since=1)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable_since=0)
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Response, api=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
