"""CreateDelegationToken: create a token that authenticates as its owner (KIP-48)."""

from pyspark_klog.protocol.fields import array, binary, int16, int32, int64, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class CreatableRenewers(Struct):
    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(
    Request, api=ApiKey.CREATE_DELEGATION_TOKEN, versions=(0, 3), flexible_since=2
):
    owner_principal_type: str | None = string(since=3, nullable_since=3)
    owner_principal_name: str | None = string(since=3, nullable_since=3)
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(
    Response, api=ApiKey.CREATE_DELEGATION_TOKEN, versions=(0, 3), flexible_since=2
):
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = binary(secret=True)
    throttle_time_ms: int = int32()
