"""LeaderAndIsr: the controller sends a broker the leaders and ISRs of its partitions.

Kafka sends version 7, the only one here, at an inter.broker.protocol.version of 3.4 or newer.
"""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import array, boolean, int8, int16, int32, int64, string, uuid
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class LeaderAndIsrPartitionState(Struct):
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    partition_epoch: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32, ignorable=True)
    removing_replicas: list[int] = array(int32, ignorable=True)
    is_new: bool = boolean(ignorable=True)
    leader_recovery_state: int = int8()


class LeaderAndIsrTopicState(Struct):
    topic_name: str = string()
    topic_id: UUID = uuid(ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState)


class LeaderAndIsrLiveLeader(Struct):
    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


class LeaderAndIsrRequest(Request, api=ApiKey.LEADER_AND_ISR, versions=(7, 7), flexible_since=4):
    controller_id: int = int32()
    is_kraft_controller: bool = boolean()
    controller_epoch: int = int32()
    broker_epoch: int = int64(default=-1, ignorable=True)
    type: int = int8()
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState)
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)


class LeaderAndIsrPartitionError(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class LeaderAndIsrTopicError(Struct):
    topic_id: UUID = uuid()
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError)


class LeaderAndIsrResponse(Response, api=ApiKey.LEADER_AND_ISR, versions=(7, 7), flexible_since=4):
    error_code: int = int16()
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError)
