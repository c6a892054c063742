"""SaslAuthenticate: one step of a SASL exchange."""

from pyspark_klog.protocol.fields import binary, int16, int64, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response


class SaslAuthenticateRequest(
    Request, api=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible_since=2
):
    auth_bytes: bytes = binary(secret=True)


class SaslAuthenticateResponse(
    Response, api=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible_since=2
):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    auth_bytes: bytes = binary(secret=True)
    session_lifetime_ms: int = int64(since=1, ignorable=True)
