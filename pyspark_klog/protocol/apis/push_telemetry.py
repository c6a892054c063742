"""PushTelemetry: a client sends its metrics in OTLP (KIP-714)."""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import binary, boolean, int8, int16, int32, uuid
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response


class PushTelemetryRequest(Request, api=ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible_since=0):
    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = binary()


class PushTelemetryResponse(Response, api=ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
