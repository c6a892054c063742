"""GetTelemetrySubscriptions: the metrics that a broker asks a client for (KIP-714)."""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import array, boolean, int8, int16, int32, string, uuid
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response


class GetTelemetrySubscriptionsRequest(
    Request, api=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible_since=0
):
    client_instance_id: UUID = uuid()


class GetTelemetrySubscriptionsResponse(
    Response, api=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible_since=0
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)
