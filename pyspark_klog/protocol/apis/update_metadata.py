"""UpdateMetadata: the controller sends a broker the metadata that the broker serves to clients.

Kafka sends version 8, the only one here, at an inter.broker.protocol.version of 3.4 or newer.
"""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import array, boolean, int8, int16, int32, int64, string, uuid
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class UpdateMetadataPartitionState(Struct):
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    zk_version: int = int32()
    replicas: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, ignorable=True)


class UpdateMetadataTopicState(Struct):
    topic_name: str = string()
    topic_id: UUID = uuid(ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState)


class UpdateMetadataEndpoint(Struct):
    port: int = int32()
    host: str = string()
    listener: str = string(ignorable=True)
    security_protocol: int = int16()


class UpdateMetadataBroker(Struct):
    id: int = int32()
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, ignorable=True)
    rack: str | None = string(nullable_since=0, ignorable=True)


class UpdateMetadataRequest(Request, api=ApiKey.UPDATE_METADATA, versions=(8, 8), flexible_since=6):
    controller_id: int = int32()
    is_kraft_controller: bool = boolean()
    type: int = int8(tag=0)
    controller_epoch: int = int32()
    broker_epoch: int = int64(default=-1, ignorable=True)
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState)
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)


class UpdateMetadataResponse(
    Response, api=ApiKey.UPDATE_METADATA, versions=(8, 8), flexible_since=6
):
    error_code: int = int16()
