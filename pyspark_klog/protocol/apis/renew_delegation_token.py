"""RenewDelegationToken: set the expiry time of a token that is still valid, counted from now."""

from pyspark_klog.protocol.fields import binary, int16, int32, int64
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response


class RenewDelegationTokenRequest(
    Request, api=ApiKey.RENEW_DELEGATION_TOKEN, versions=(0, 2), flexible_since=2
):
    hmac: bytes = binary(secret=True)
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(
    Response, api=ApiKey.RENEW_DELEGATION_TOKEN, versions=(0, 2), flexible_since=2
):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
