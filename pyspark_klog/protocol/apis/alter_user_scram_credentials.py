"""AlterUserScramCredentials: set and delete users' SCRAM credentials."""

from pyspark_klog.protocol.fields import array, binary, int8, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class ScramCredentialDeletion(Struct):
    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = binary(secret=True)
    salted_password: bytes = binary(secret=True)


class AlterUserScramCredentialsRequest(
    Request, api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible_since=0
):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


class AlterUserScramCredentialsResponse(
    Response, api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible_since=0
):
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
