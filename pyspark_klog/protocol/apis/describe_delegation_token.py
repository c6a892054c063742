"""DescribeDelegationToken: list delegation tokens by owner (KIP-48)."""

from pyspark_klog.protocol.fields import array, binary, int16, int32, int64, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = string()
    principal_name: str = string()


class DescribeDelegationTokenRequest(
    Request, api=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=(0, 3), flexible_since=2
):
    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, nullable_since=0
    )


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = string()
    principal_name: str = string()


class DescribedDelegationToken(Struct):
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = binary(secret=True)
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


class DescribeDelegationTokenResponse(
    Response, api=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=(0, 3), flexible_since=2
):
    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
