"""AlterClientQuotas: set and remove quotas."""

from pyspark_klog.protocol.fields import array, boolean, float64, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable_since=0)


class OpData(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(
    Request, api=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible_since=1
):
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class ResponseEntryData(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(
    Response, api=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible_since=1
):
    throttle_time_ms: int = int32()
    entries: list[ResponseEntryData] = array(ResponseEntryData)
