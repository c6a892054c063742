"""AllocateProducerIds: a broker asks the controller for a block of producer ids (KIP-730)."""

from pyspark_klog.protocol.fields import int16, int32, int64
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response


class AllocateProducerIdsRequest(
    Request, api=ApiKey.ALLOCATE_PRODUCER_IDS, versions=(0, 0), flexible_since=0
):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AllocateProducerIdsResponse(
    Response, api=ApiKey.ALLOCATE_PRODUCER_IDS, versions=(0, 0), flexible_since=0
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
