"""AlterPartition: a leader asks the controller to change the ISR of a partition (KIP-497, KIP-903).

Kafka's brokers from 3.5 on use version 3, the only one here: leader and controller choose the
newest version that both have, at any inter.broker.protocol.version.
"""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import array, int8, int16, int32, int64, uuid
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class BrokerState(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class PartitionData(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr_with_epochs: list[BrokerState] = array(BrokerState)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class TopicData(Struct):
    topic_id: UUID = uuid(ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class AlterPartitionRequest(Request, api=ApiKey.ALTER_PARTITION, versions=(3, 3), flexible_since=0):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array(TopicData)


class PartitionResult(Struct):
    """The result for one partition; Kafka names this struct PartitionData, like the request's."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8(ignorable=True)
    partition_epoch: int = int32()


class TopicResult(Struct):
    """The results for one topic; Kafka names this struct TopicData, like the request's."""

    topic_id: UUID = uuid(ignorable=True)
    partitions: list[PartitionResult] = array(PartitionResult)


class AlterPartitionResponse(
    Response, api=ApiKey.ALTER_PARTITION, versions=(3, 3), flexible_since=0
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicResult] = array(TopicResult)
