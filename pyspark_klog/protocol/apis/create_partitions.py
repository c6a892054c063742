"""CreatePartitions: add partitions to existing topics."""

from pyspark_klog.protocol.fields import array, boolean, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable_since=0
    )


class CreatePartitionsRequest(
    Request, api=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible_since=2
):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


class CreatePartitionsResponse(
    Response, api=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible_since=2
):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
