"""Heartbeat: keeps a group member's session alive, and answers whether the member has to rejoin."""

import struct

from klog_broker.api.services import GroupServices
from klog_broker.coordinator.group.coordinator import MemberName
from klog_broker.dispatch.access import on_group
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.cached_requests import CORRELATION_ID, EncodedFrame
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.dispatch.response_slot import ResponseSlot
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from pyspark_klog.protocol.keys import ApiKey

_NONE = ErrorCode.NONE


def handle(
    services: GroupServices, request: HeartbeatRequest, _: RequestContext
) -> HeartbeatResponse:
    name = MemberName(request.member_id, request.group_instance_id)
    error = services.groups.heartbeat(request.group_id, name, request.generation_id)
    return HeartbeatResponse(error_code=error)


class _CachedHeartbeat:
    """Serves the next heartbeats of one member in one generation without decoding them, if
    their bytes are those of an earlier heartbeat, except for the correlation id."""

    __slots__ = (
        "_alive",
        "_behind",
        "_generation_id",
        "_group_id",
        "_groups",
        "_head",
        "_name",
        "_services",
        "_size",
        "_unpack",
        "_version",
    )

    def __init__(
        self, frame: bytes, request: HeartbeatRequest, version: int, services: GroupServices
    ) -> None:
        self._size = len(frame)
        # The fields of the frame: API key and version; correlation id; all other bytes.
        self._unpack = struct.Struct(f"4s4s{len(frame) - CORRELATION_ID.stop}s").unpack
        self._head, _, self._behind = self._unpack(frame)
        self._version = version
        self._group_id = request.group_id
        self._name = MemberName(request.member_id, request.group_instance_id)
        self._generation_id = request.generation_id
        self._services = services
        self._groups = services.groups
        self._alive = EncodedFrame(HeartbeatResponse(), version)

    def serve(self, frame: memoryview, slot: ResponseSlot) -> bool:
        if len(frame) != self._size:
            return False
        head, correlation_id, behind = self._unpack(frame)
        if behind != self._behind or head != self._head:
            return False
        error = self._groups.heartbeat(self._group_id, self._name, self._generation_id)
        if error is _NONE:
            response = self._alive
        else:
            self._services.requests.count_error(ApiKey.HEARTBEAT, error)
            response = EncodedFrame(HeartbeatResponse(error_code=error), self._version)
        slot.complete([response.to(correlation_id)])
        return True


def cache_request(
    services: GroupServices, frame: bytes, request: HeartbeatRequest, context: RequestContext
) -> _CachedHeartbeat:
    return _CachedHeartbeat(frame, request, context.api_version, services)


API = BrokerApi(
    ApiKey.HEARTBEAT,
    handle,
    top_level_error(ApiKey.HEARTBEAT),
    cache_request=cache_request,
    access=(on_group(AclOperation.READ),),
)
