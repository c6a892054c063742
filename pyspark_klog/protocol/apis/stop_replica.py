"""StopReplica: the controller tells a broker to stop replicas, and whether to delete their logs.

Kafka sends version 4, the only one here, at an inter.broker.protocol.version of 3.4 or newer.
"""

from pyspark_klog.protocol.fields import array, boolean, int16, int32, int64, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class StopReplicaPartitionState(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32(default=-1)
    delete_partition: bool = boolean()


class StopReplicaTopicState(Struct):
    topic_name: str = string()
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState)


class StopReplicaRequest(Request, api=ApiKey.STOP_REPLICA, versions=(4, 4), flexible_since=2):
    controller_id: int = int32()
    is_kraft_controller: bool = boolean()
    controller_epoch: int = int32()
    broker_epoch: int = int64(default=-1, ignorable=True)
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState)


class StopReplicaPartitionError(Struct):
    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


class StopReplicaResponse(Response, api=ApiKey.STOP_REPLICA, versions=(4, 4), flexible_since=2):
    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)
