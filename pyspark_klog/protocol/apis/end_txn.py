"""EndTxn: commit or abort a transaction; since version 5 it raises the producer epoch (KIP-890)."""

from pyspark_klog.protocol.fields import boolean, int16, int32, int64, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response


class EndTxnRequest(Request, api=ApiKey.END_TXN, versions=(0, 5), flexible_since=3):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Response, api=ApiKey.END_TXN, versions=(0, 5), flexible_since=3):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(since=5, default=-1, ignorable=True)
    producer_epoch: int = int16(since=5, default=-1, ignorable=True)
