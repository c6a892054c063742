"""InitProducerId: get a producer id and epoch for idempotence or transactions."""

from pyspark_klog.protocol.fields import int16, int32, int64, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response


class InitProducerIdRequest(
    Request, api=ApiKey.INIT_PRODUCER_ID, versions=(0, 5), flexible_since=2
):
    transactional_id: str | None = string(nullable_since=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)


class InitProducerIdResponse(
    Response, api=ApiKey.INIT_PRODUCER_ID, versions=(0, 5), flexible_since=2
):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
