"""DescribeUserScramCredentials: mechanisms and iterations by user, never secrets."""

from pyspark_klog.protocol.fields import array, int8, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class UserName(Struct):
    name: str = string()


class DescribeUserScramCredentialsRequest(
    Request, api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible_since=0
):
    users: list[UserName] | None = array(UserName, nullable_since=0)


class CredentialInfo(Struct):
    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(
    Response, api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible_since=0
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
