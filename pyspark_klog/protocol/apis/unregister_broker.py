"""UnregisterBroker: remove the registration of a broker that will not return."""

from pyspark_klog.protocol.fields import int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response


class UnregisterBrokerRequest(
    Request, api=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible_since=0
):
    broker_id: int = int32()


class UnregisterBrokerResponse(
    Response, api=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible_since=0
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
