"""AddOffsetsToTxn: add the offsets of a group to a transaction."""

from pyspark_klog.protocol.fields import int16, int32, int64, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response


class AddOffsetsToTxnRequest(
    Request, api=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible_since=3
):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(
    Response, api=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible_since=3
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
