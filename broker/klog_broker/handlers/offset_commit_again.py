"""An OffsetCommit like the last one of its connection: only offsets and leader epochs differ."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from klog_broker.coordinator.group.coordinator import Commit, CommitRequest, MemberName
from klog_broker.handlers.context import BrokerServices, RequestContext
from klog_broker.handlers.prepared import ReplyBytes
from klog_broker.handlers.reply_slot import ReplySlot
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pyspark_klog.protocol.headers import encode_response

MOST_PARTITIONS = 32
"""A request with more is decoded each time, and answered in slices."""

# Before version 2 a commit can have a timestamp, from 8 on lengths are varints.
_VERSIONS = range(2, 8)
_LEADER_EPOCH_SINCE = 6
_INSTANCE_ID_SINCE = 7
_RETENTION_VERSIONS = range(2, 5)
_NO_LEADER_EPOCH = -1

_Places = tuple[tuple[TopicPartition, str], ...]
"""Each partition of the request, with the metadata of its commit."""


class _SamePartitions:
    """The same member of the same group, the same partitions, the same metadata."""

    __slots__ = (
        "_broker",
        "_done",
        "_fixed",
        "_generation_id",
        "_group_id",
        "_image",
        "_layout",
        "_name",
        "_places",
        "_stride",
        "_version",
    )

    def __init__(
        self,
        frame: bytes,
        layout: struct.Struct,
        places: _Places,
        request: OffsetCommitRequest,
        context: RequestContext,
    ) -> None:
        self._layout = layout
        self._version = context.api_version
        self._stride = 3 if self._version >= _LEADER_EPOCH_SINCE else 2
        key_and_version, _, *rest = layout.unpack(frame)
        self._fixed = (key_and_version, *rest[:: self._stride])
        self._places = places
        self._group_id = request.group_id
        self._name = MemberName(request.member_id, request.group_instance_id)
        self._generation_id = request.generation_id_or_member_epoch
        self._broker: BrokerServices = context.broker
        self._image: object = None
        codes = [ErrorCode.NONE] * len(places)
        self._done = ReplyBytes(_response(places, codes), self._version)

    def serve(self, frame: memoryview, slot: ReplySlot) -> bool:
        if len(frame) != self._layout.size:
            return False
        key_and_version, correlation_id, *rest = self._layout.unpack(frame)
        stride = self._stride
        if (key_and_version, *rest[::stride]) != self._fixed or not self._has_partitions():
            return False
        offsets = rest[1::stride]
        epochs = rest[2::3] if stride == 3 else [_NO_LEADER_EPOCH] * len(offsets)
        commits = [
            Commit(partition, offset, epoch, metadata)
            for (partition, metadata), offset, epoch in zip(
                self._places, offsets, epochs, strict=True
            )
        ]

        def answer(codes: Sequence[ErrorCode]) -> None:
            if any(codes):
                (number,) = struct.unpack(">i", correlation_id)
                response = _response(self._places, codes)
                slot.complete([encode_response(number, response, self._version)])
            else:
                slot.complete([self._done.to(correlation_id)])

        self._broker.groups.commit(
            CommitRequest(self._group_id, self._name, self._generation_id, commits, answer)
        )
        return True

    def _has_partitions(self) -> bool:
        """Whether all partitions are known: looked at once an image."""
        image = self._broker.metadata.image
        if image is not self._image:
            if any(image.partition(*partition) is None for partition, _ in self._places):
                return False
            self._image = image
        return True


def prepare(
    frame: bytes, request: OffsetCommitRequest, context: RequestContext
) -> _SamePartitions | None:
    """None for what is rarely sent: an expiry of its own, a partition or a topic named twice, a
    topic without partitions."""
    if context.api_version not in _VERSIONS or request.retention_time_ms >= 0:
        return None
    topics = {topic.name for topic in request.topics if topic.partitions}
    if len(topics) < len(request.topics):
        return None
    places = tuple(
        (TopicPartition(topic.name, each.partition_index), each.committed_metadata or "")
        for topic in request.topics
        for each in topic.partitions
    )
    if not 0 < len(places) <= MOST_PARTITIONS or len(dict(places)) < len(places):
        return None
    layout = _layout(len(frame), request, context)
    return None if layout is None else _SamePartitions(frame, layout, places, request, context)


def _layout(
    frame_bytes: int, request: OffsetCommitRequest, context: RequestContext
) -> struct.Struct | None:
    """The request's frame: key and version; the correlation id; then in turns what stays the same,
    and a partition's offset and leader epoch. None if it ends otherwise than its request does."""
    version = context.api_version
    has_epoch = version >= _LEADER_EPOCH_SINCE
    # Behind the correlation id: client id, group, generation, member, ..., number of topics.
    fixed = _size(context.header.client_id) + _size(request.group_id) + 4
    fixed += _size(request.member_id) + 4
    if version >= _INSTANCE_ID_SINCE:
        fixed += _size(request.group_instance_id)
    if version in _RETENTION_VERSIONS:
        fixed += 8
    form = ">4s4s"
    for topic in request.topics:
        fixed += _size(topic.name) + 4
        for each in topic.partitions:
            form += f"{fixed + 4}s" + ("qi" if has_epoch else "q")
            fixed = _size(each.committed_metadata)
    layout = struct.Struct(f"{form}{fixed}s")
    return layout if layout.size == frame_bytes else None


def _size(text: str | None) -> int:
    """Of a string with its length."""
    return 2 if text is None else 2 + len(text.encode())


def _response(places: _Places, codes: Sequence[ErrorCode]) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    for ((topic, number), _), code in zip(places, codes, strict=True):
        if not response.topics or response.topics[-1].name != topic:
            response.topics.append(OffsetCommitResponseTopic(name=topic))
        told = OffsetCommitResponsePartition(partition_index=number, error_code=code)
        response.topics[-1].partitions.append(told)
    return response
