"""ControlledShutdown: a broker that will shut down asks the controller to move its leaders.

Kafka sends version 3, the only one here, at an inter.broker.protocol.version of 2.4 or newer.
"""

from pyspark_klog.protocol.fields import array, int16, int32, int64, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class ControlledShutdownRequest(
    Request, api=ApiKey.CONTROLLED_SHUTDOWN, versions=(3, 3), flexible_since=3
):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1, ignorable=True)


class RemainingPartition(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class ControlledShutdownResponse(
    Response, api=ApiKey.CONTROLLED_SHUTDOWN, versions=(3, 3), flexible_since=3
):
    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
