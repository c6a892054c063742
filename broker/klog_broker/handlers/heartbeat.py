"""Heartbeat: a member is alive, and learns whether it has to rejoin."""

from klog_broker.coordinator.group.coordinator import GroupCoordinator, MemberName
from klog_broker.handlers.context import RequestContext
from klog_broker.handlers.dispatcher import ApiHandler, top_level_error
from klog_broker.handlers.prepared import CORRELATION_ID, ReplyBytes
from klog_broker.handlers.reply_slot import ReplySlot
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from pyspark_klog.protocol.keys import ApiKey


def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    name = MemberName(request.member_id, request.group_instance_id)
    error = context.broker.groups.heartbeat(request.group_id, name, request.generation_id)
    return HeartbeatResponse(error_code=error)


class _SameMember:
    """The next heartbeat of a member in the same generation: only its correlation id differs."""

    __slots__ = (
        "_behind",
        "_generation_id",
        "_group_id",
        "_groups",
        "_head",
        "_name",
        "_replies",
        "_version",
    )

    def __init__(
        self, frame: bytes, request: HeartbeatRequest, version: int, groups: GroupCoordinator
    ) -> None:
        self._head, self._behind = frame[: CORRELATION_ID.start], frame[CORRELATION_ID.stop :]
        self._version = version
        self._group_id = request.group_id
        self._name = MemberName(request.member_id, request.group_instance_id)
        self._generation_id = request.generation_id
        self._groups = groups
        self._replies: dict[ErrorCode, ReplyBytes] = {}

    def serve(self, frame: memoryview, slot: ReplySlot) -> bool:
        if frame[CORRELATION_ID.stop :] != self._behind or frame[:4] != self._head:
            return False
        error = self._groups.heartbeat(self._group_id, self._name, self._generation_id)
        reply = self._replies.get(error)
        if reply is None:
            response = HeartbeatResponse(error_code=error)
            reply = self._replies[error] = ReplyBytes(response, self._version)
        slot.complete([reply.to(frame[CORRELATION_ID])])
        return True


def prepare(frame: bytes, request: HeartbeatRequest, context: RequestContext) -> _SameMember:
    return _SameMember(frame, request, context.api_version, context.broker.groups)


HANDLER = ApiHandler(
    ApiKey.HEARTBEAT, handle, top_level_error(ApiKey.HEARTBEAT), max_version=3, prepare=prepare
)
