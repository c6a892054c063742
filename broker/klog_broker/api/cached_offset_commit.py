"""Serves an OffsetCommit that differs from an earlier one of the connection only in the correlation
id, the committed offsets and their leader epochs."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from klog_broker.api.offset_commit_versions import (
    LEADER_EPOCH_SINCE,
    TOPIC_IDS_SINCE,
    frame_layout,
    missing_group_error,
)
from klog_broker.api.services import GroupServices
from klog_broker.coordinator.group.commits import is_too_long
from klog_broker.coordinator.group.coordinator import MemberName
from klog_broker.coordinator.group.offset_cleanup import GroupShard
from klog_broker.coordinator.group.offsets import NEVER_MS, OffsetAndMetadata, OffsetKey
from klog_broker.coordinator.group.shard_state import GroupShardState
from klog_broker.coordinator.shard import ShardStatus
from klog_broker.dispatch.cached_requests import EncodedFrame
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.dispatch.response_slot import ResponseSlot
from klog_broker.resources.requested_topics import requested_topic
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import ErrorCode, InvariantViolation
from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pyspark_klog.protocol.headers import encode_response
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.state_records.offset_record import OffsetRecord

MOST_PARTITIONS = 32
"""The most partitions of an OffsetCommit that is served without decoding: its bytes are compared
with those of an earlier OffsetCommit of the connection. A request with more partitions is decoded,
and the handler of OffsetCommit can answer it over several event-loop turns."""

# OffsetCommit version 1 is always decoded, because it has a timestamp for each partition; version 0
# is decoded, too.
_FIRST_VERSION = 2
_NO_LEADER_EPOCH = -1

_NONE, _SERVING = ErrorCode.NONE, ShardStatus.SERVING
_CORRELATION_ID = struct.Struct(">i")
# Calling tuple.__new__ directly is three times as fast as the named tuple's constructor.
_new_tuple = tuple.__new__

_Partitions = Sequence[tuple[TopicPartition, str]]
"""Each partition of the request, with the metadata of its commit."""
_TopicIds = Mapping[str, UUID]
"""Ids of topics in the request, by the topic's name."""
_NO_ID = UUID(int=0)


class _CommitPlace:
    """One partition of the cached OffsetCommit, with the fields of its commit that stay the same in
    all later requests that repeat this OffsetCommit."""

    __slots__ = ("metadata", "partition", "place", "record")

    def __init__(
        self, group_id: str, partition: TopicPartition, metadata: str, topic_id: UUID
    ) -> None:
        self.partition = partition
        self.metadata = metadata
        self.place = OffsetKey(group_id, *partition)
        self.record = OffsetRecord(group_id, *partition, metadata, topic_id)


class _CachedOffsetCommit:
    """Serves the later OffsetCommits of a connection that repeat an earlier one, except for the
    correlation id, the offsets and the leader epochs: the same group, member, generation,
    partitions and metadata.

    This object also implements PackableCommits (coordinator/group/commits.py) for the request in
    progress: it encodes the request's records and stores its offsets. One object is enough, because
    a connection has one OffsetCommit in progress at a time.
    """

    __slots__ = (
        "_correlation_id",
        "_done",
        "_epochs",
        "_fixed",
        "_frame_bytes",
        "_head",
        "_image",
        "_now_ms",
        "_offsets",
        "_places",
        "_services",
        "_shard",
        "_slot",
        "_stride",
        "_topic_ids",
        "_unpack",
        "_version",
        "generation_id",
        "group_id",
        "missing_group",
        "name",
    )

    def __init__(
        self,
        frame: bytes,
        layout: struct.Struct,
        partitions: _Partitions,
        topic_ids: _TopicIds,
        request: OffsetCommitRequest,
        context: RequestContext,
        services: GroupServices,
    ) -> None:
        self.group_id = request.group_id
        self.name = MemberName(request.member_id, request.group_instance_id)
        self.generation_id = request.generation_id_or_member_epoch
        self.missing_group = missing_group_error(context.api_version)
        self._version = context.api_version
        self._topic_ids = topic_ids if self._version >= TOPIC_IDS_SINCE else {}
        self._frame_bytes = len(frame)
        self._unpack = layout.unpack
        self._stride = 3 if self._version >= LEADER_EPOCH_SINCE else 2
        found = layout.unpack(frame)
        self._head, self._fixed = found[0], found[2 :: self._stride]
        self._places = [
            _CommitPlace(request.group_id, partition, metadata, topic_ids[partition.topic])
            for partition, metadata in partitions
        ]
        self._services = services
        self._image: object = None
        self._shard: GroupShard | None = None
        codes = [ErrorCode.NONE] * len(partitions)
        self._done = EncodedFrame(_response(partitions, self._topic_ids, codes), self._version)
        # The OffsetCommit that is being served: where its response goes (None: no request is being
        # served), and the fields that differ from the cached earlier request.
        self._slot: ResponseSlot | None = None
        self._correlation_id = b""
        self._offsets: Sequence[int] = ()
        self._epochs: Sequence[int] = (_NO_LEADER_EPOCH,) * len(partitions)
        self._now_ms = 0

    def serve(self, frame: memoryview, slot: ResponseSlot) -> bool:
        if len(frame) != self._frame_bytes:
            return False
        found = self._unpack(frame)
        stride = self._stride
        if (
            found[2::stride] != self._fixed
            or found[0] != self._head
            # The last request is not answered yet, and this object can serve only one at a time.
            # Normally the network layer delays the next request until then.
            or self._slot is not None
        ):
            return False
        shard = self._shard
        if (
            shard is None
            or shard.status is not _SERVING
            or self._services.metadata.image is not self._image
        ):
            shard = self._find_shard()
            if shard is None:
                return False
        self._correlation_id = found[1]
        self._offsets = found[3::stride]
        if stride == 3:
            self._epochs = found[4::3]
        self._slot = slot
        self._services.groups.commits.add(shard, self)
        return True

    def _find_shard(self) -> GroupShard | None:
        """Return the group's coordinator shard (the groups of one partition of __consumer_offsets).
        Return None if this broker does not serve the group now, or if a partition or topic id of
        the cached request is not in the metadata image: then the handler of OffsetCommit serves the
        request, and answers with the error. A shard that was found is used until the metadata image
        changes or the shard stops serving."""
        image = self._services.metadata.image
        known = all(
            image.partition(*each.partition) is not None
            # The topic may have been deleted and created again since this _CachedOffsetCommit was
            # made: same name, other id.
            and image.topic_by_id(each.record.topic_id) is not None
            for each in self._places
        )
        self._shard = self._services.groups.shard_of(self.group_id) if known else None
        self._image = image
        return self._shard

    def pack(self, batch: bytearray, first_delta: int, now_ms: int) -> int:
        self._now_ms = now_ms
        offsets, epochs = self._offsets, self._epochs
        number = 0
        for each in self._places:
            each.record.append_to(
                batch, first_delta + number, offsets[number], epochs[number], now_ms
            )
            number += 1
        return number

    def apply(self, state: GroupShardState, offset: int) -> int:
        now_ms, offsets, epochs = self._now_ms, self._offsets, self._epochs
        number = 0
        for each in self._places:
            fields = (
                offsets[number],
                epochs[number],
                each.metadata,
                now_ms,
                NEVER_MS,
                offset + number,
                each.record.topic_id,
            )
            state.store_offset(each.place, _new_tuple(OffsetAndMetadata, fields))
            number += 1
        return offset + number

    def answer_commits(self, error: ErrorCode) -> None:
        slot, self._slot = self._slot, None
        if slot is None:
            raise InvariantViolation("a commit was answered twice")
        if error is _NONE:
            slot.complete([self._done.to(self._correlation_id)])
        else:
            for _ in self._places:
                self._services.requests.count_error(ApiKey.OFFSET_COMMIT, error)
            (number,) = _CORRELATION_ID.unpack(self._correlation_id)
            partitions = [(each.partition, each.metadata) for each in self._places]
            response = _response(partitions, self._topic_ids, [error] * len(partitions))
            slot.complete([encode_response(number, response, self._version)])


def cache_request(
    services: GroupServices, frame: bytes, request: OffsetCommitRequest, context: RequestContext
) -> _CachedOffsetCommit | None:
    """Return an object that serves the connection's next OffsetCommits without decoding them, if
    they repeat this request except for the correlation id, the offsets and the leader epochs.

    Return None for versions 0 and 1, and for rare requests: with tagged fields, a retention time, a
    repeated partition or topic, a topic without partitions, a topic that is unknown or that the
    client may not read, no partitions, more than MOST_PARTITIONS partitions, or metadata longer
    than offset.metadata.max.bytes.
    """
    if context.api_version < _FIRST_VERSION or request.retention_time_ms >= 0:
        return None
    names, topic_ids = _names(services, request, context)
    if not all(name in topic_ids for name in names):
        return None
    topics = {name for name, topic in zip(names, request.topics, strict=True) if topic.partitions}
    if len(topics) < len(request.topics):
        return None
    partitions = [
        (TopicPartition(name, each.partition_index), each.committed_metadata or "")
        for name, topic in zip(names, request.topics, strict=True)
        for each in topic.partitions
    ]
    if not 0 < len(partitions) <= MOST_PARTITIONS or len(dict(partitions)) < len(partitions):
        return None
    longest = services.config["offset.metadata.max.bytes"]
    if any(is_too_long(metadata, longest) for _, metadata in partitions):
        return None
    layout = frame_layout(len(frame), request, context.header)
    if layout is None:
        return None
    return _CachedOffsetCommit(frame, layout, partitions, topic_ids, request, context, services)


def _names(
    services: GroupServices, request: OffsetCommitRequest, context: RequestContext
) -> tuple[list[str], _TopicIds]:
    """Return the topics' names, and the ids of the topics that exist and that the client may read.
    The name is empty if no topic has the id in the request."""
    by_id = context.api_version >= TOPIC_IDS_SINCE
    found = [
        requested_topic(
            services, context, AclOperation.READ, topic.name, topic.topic_id if by_id else None
        )
        for topic in request.topics
    ]
    topics = [each.topic for each in found if each.topic is not None]
    return [each.name for each in found], {topic.name: topic.topic_id for topic in topics}


def _response(
    partitions: _Partitions, topic_ids: _TopicIds, codes: Sequence[ErrorCode]
) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    for ((topic, number), _), code in zip(partitions, codes, strict=True):
        if not response.topics or response.topics[-1].name != topic:
            topic_id = topic_ids.get(topic, _NO_ID)
            response.topics.append(OffsetCommitResponseTopic(name=topic, topic_id=topic_id))
        partition = OffsetCommitResponsePartition(partition_index=number, error_code=code)
        response.topics[-1].partitions.append(partition)
    return response
