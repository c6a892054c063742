"""FindCoordinator: the broker that coordinates a group (type 0) or a transactional id (type 1)."""

from pyspark_klog.protocol.fields import array, int8, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class FindCoordinatorRequest(
    Request, api=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible_since=3
):
    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(string, since=4)


class Coordinator(Struct):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, ignorable=True)


class FindCoordinatorResponse(
    Response, api=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible_since=3
):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable_since=1, ignorable=True)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)
