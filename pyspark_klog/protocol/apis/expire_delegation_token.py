"""ExpireDelegationToken: set the expiry time of a token, counted from now, or delete the token."""

from pyspark_klog.protocol.fields import binary, int16, int32, int64
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response


class ExpireDelegationTokenRequest(
    Request, api=ApiKey.EXPIRE_DELEGATION_TOKEN, versions=(0, 2), flexible_since=2
):
    hmac: bytes = binary(secret=True)
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(
    Response, api=ApiKey.EXPIRE_DELEGATION_TOKEN, versions=(0, 2), flexible_since=2
):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
