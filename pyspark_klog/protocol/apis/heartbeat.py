"""Heartbeat: a member of a classic group keeps its session; the response reports a rebalance."""

from pyspark_klog.protocol.fields import int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response


class HeartbeatRequest(Request, api=ApiKey.HEARTBEAT, versions=(0, 4), flexible_since=4):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)


class HeartbeatResponse(Response, api=ApiKey.HEARTBEAT, versions=(0, 4), flexible_since=4):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
