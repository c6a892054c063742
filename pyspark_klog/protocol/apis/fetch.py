"""Fetch: read record sets from given offsets, with long polling and sessions (KIP-227)."""

import struct as layouts
from typing import Any

from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import UUID
from pyspark_klog.protocol.codec import MessageCodec, register_handwritten_codec
from pyspark_klog.protocol.decoders import Decoder
from pyspark_klog.protocol.encoders import Encoder
from pyspark_klog.protocol.fields import (
    INT32_MAX,
    INT64_MAX,
    NO_UUID,
    FileRegion,
    array,
    int8,
    int16,
    int32,
    int64,
    record_set,
    string,
    struct,
    uuid,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import NO_TAGS, Request, Response, Struct
from pyspark_klog.protocol.wire import Buffer, uuid_of


class ReplicaState(Struct):
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: UUID = uuid(since=17, tag=0, ignorable=True)
    high_watermark: int = int64(since=18, default=INT64_MAX, tag=1, ignorable=True)


class FetchTopic(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: UUID = uuid(since=13, ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: UUID = uuid(since=13, ignorable=True)
    partitions: list[int] = array(int32)


class FetchRequest(Request, api=ApiKey.FETCH, versions=(0, 18), flexible_since=12):
    cluster_id: str | None = string(
        since=12, nullable_since=12, default=None, tag=0, ignorable=True
    )
    replica_id: int = int32(until=14, default=-1)
    replica_state: ReplicaState = struct(ReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(since=3, default=INT32_MAX, ignorable=True)
    isolation_level: int = int8(since=4, ignorable=True)
    session_id: int = int32(since=7, ignorable=True)
    session_epoch: int = int32(since=7, default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11, ignorable=True)


class EpochEndOffset(Struct):
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(since=4, default=-1, ignorable=True)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, since=4, nullable_since=4, ignorable=True
    )
    preferred_read_replica: int = int32(since=11, default=-1)
    records: memoryview | bytes | FileRegion | None = record_set()

    def records_view(self) -> memoryview:
        """Return a view of the record set of a decoded response; an empty view for null.

        :raises InvariantViolation: if the record set is a `FileRegion`, a part of a file to send
        """
        if isinstance(self.records, FileRegion):
            raise InvariantViolation(
                "the record set is a part of a file to be sent; only a record set in memory has a "
                "view"
            )
        return memoryview(self.records or b"")


class FetchableTopicResponse(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: UUID = uuid(since=13, ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)


class FetchResponse(Response, api=ApiKey.FETCH, versions=(0, 18), flexible_since=12):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(since=7, ignorable=True)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0)


# The hand-written decoder of Fetch requests reads the usual shape as fast as possible: at least one
# topic, each with a partition, no forgotten topics, no tagged fields, and in flexible versions
# counts and lengths below 127. All other requests, including damaged ones, and versions below 9 go
# to the decoder ``rows``, which codec.py generates from the fields. Responses need no hand-written
# codec, because the generated codec does not copy large record sets either: decoding makes views of
# them, and encoding into a `SegmentedBuffer` leaves them to the code that sends the response.
#
# A hand-written encoder is faster for one kind of request only: the request of a follower that
# fetches from a single partition. A producer with acks=all waits for this request, because it tells
# the leader that the follower has appended the producer's records.

_HEAD_V9 = layouts.Struct(">iiiibiii").unpack_from
_HEAD_V12 = layouts.Struct(">iiibiiB").unpack_from
_LENGTH = layouts.Struct(">h").unpack_from
_COUNT_PARTITION_V9 = layouts.Struct(">iiiqqi").unpack_from
_PARTITION_V9 = layouts.Struct(">iiqqi").unpack_from
_COUNT_PARTITION_V12 = layouts.Struct(">BiiqiqiB").unpack_from
_PARTITION_V12 = layouts.Struct(">iiqiqiB").unpack_from
_INT32 = layouts.Struct(">i").unpack_from
assert layouts.calcsize(">iiiibiii") == 29
assert layouts.calcsize(">iiibiiB") == 22
assert layouts.calcsize(">iiiqqi") == 4 + layouts.calcsize(">iiqqi") == 32
assert layouts.calcsize(">BiiqiqiB") == 1 + layouts.calcsize(">iiqiqiB") == 34
_UNUSUAL = (IndexError, ValueError, layouts.error)
_new = object.__new__


def _plain_decoder(version: int, rows: Decoder) -> Decoder:
    """Return a decoder of Fetch requests of versions 9 to 11. Requests of an unusual shape, and
    damaged ones, are passed on to ``rows``, the generated decoder."""

    def decode(buffer: Buffer, begin: int) -> tuple[FetchRequest, int]:
        try:
            end = len(buffer)
            request = _new(FetchRequest)
            request.cluster_id = None
            request._replica_state = None  # type: ignore[attr-defined]
            request.unknown_tagged_fields = NO_TAGS
            (
                request.replica_id,
                request.max_wait_ms,
                request.min_bytes,
                request.max_bytes,
                request.isolation_level,
                request.session_id,
                request.session_epoch,
                topics_left,
            ) = _HEAD_V9(buffer, begin)
            if topics_left < 1:
                return rows(buffer, begin)
            position = begin + 29
            request.topics = topics = []
            while topics_left:
                start = position + 2
                stop = start + _LENGTH(buffer, position)[0]
                if not start <= stop <= end:
                    return rows(buffer, begin)
                topic = _new(FetchTopic)
                topic.topic = str(buffer[start:stop], "utf-8")
                topic.topic_id = NO_UUID
                topic.unknown_tagged_fields = NO_TAGS
                topic.partitions = partitions = []
                one = _new(FetchPartition)
                (
                    left,
                    one.partition,
                    one.current_leader_epoch,
                    one.fetch_offset,
                    one.log_start_offset,
                    one.partition_max_bytes,
                ) = _COUNT_PARTITION_V9(buffer, stop)
                position = stop + 32
                if left < 1:
                    return rows(buffer, begin)
                while True:
                    one.last_fetched_epoch = -1
                    one.replica_directory_id = NO_UUID
                    one.high_watermark = INT64_MAX
                    one.unknown_tagged_fields = NO_TAGS
                    partitions.append(one)
                    left -= 1
                    if not left:
                        break
                    one = _new(FetchPartition)
                    (
                        one.partition,
                        one.current_leader_epoch,
                        one.fetch_offset,
                        one.log_start_offset,
                        one.partition_max_bytes,
                    ) = _PARTITION_V9(buffer, position)
                    position += 28
                topics.append(topic)
                topics_left -= 1
            if _INT32(buffer, position)[0]:
                return rows(buffer, begin)
            position += 4
            request.forgotten_topics_data = []
            request.rack_id = ""
            if version == 11:
                start = position + 2
                position = start + _LENGTH(buffer, position)[0]
                if not start <= position <= end:
                    return rows(buffer, begin)
                request.rack_id = str(buffer[start:position], "utf-8")
        except _UNUSUAL:
            return rows(buffer, begin)
        return request, position

    return decode


def _flexible_decoder(version: int, rows: Decoder) -> Decoder:
    """Return a decoder of Fetch requests of version 12 and later, with compact counts and lengths.

    A compact number is one more than the count or length, and 0 is null. Requests of an unusual
    shape, and damaged ones, are passed on to ``rows``, the generated decoder.
    """
    has_names = version < 13
    has_replica_id = version < 15

    def decode(buffer: Buffer, begin: int) -> tuple[FetchRequest, int]:
        try:
            end = len(buffer)
            request = _new(FetchRequest)
            request.cluster_id = None
            request._replica_state = None  # type: ignore[attr-defined]
            request.unknown_tagged_fields = NO_TAGS
            if has_replica_id:
                (request.replica_id,) = _INT32(buffer, begin)
                position = begin + 4
            else:
                request.replica_id = -1
                position = begin
            (
                request.max_wait_ms,
                request.min_bytes,
                request.max_bytes,
                request.isolation_level,
                request.session_id,
                request.session_epoch,
                topics_left,
            ) = _HEAD_V12(buffer, position)
            position += 22
            if not 1 < topics_left < 128:
                return rows(buffer, begin)
            request.topics = topics = []
            while topics_left > 1:
                topic = _new(FetchTopic)
                topic.unknown_tagged_fields = NO_TAGS
                topic.partitions = partitions = []
                if has_names:
                    length = buffer[position]
                    stop = position + length
                    if not 0 < length < 128 or stop > end:
                        return rows(buffer, begin)
                    topic.topic = str(buffer[position + 1 : stop], "utf-8")
                    topic.topic_id = NO_UUID
                else:
                    stop = position + 16
                    topic.topic = ""
                    topic.topic_id = uuid_of(bytes(buffer[position:stop]))
                one = _new(FetchPartition)
                (
                    left,
                    one.partition,
                    one.current_leader_epoch,
                    one.fetch_offset,
                    one.last_fetched_epoch,
                    one.log_start_offset,
                    one.partition_max_bytes,
                    tag_count,
                ) = _COUNT_PARTITION_V12(buffer, stop)
                position = stop + 34
                if not 1 < left < 128:
                    return rows(buffer, begin)
                while True:
                    if tag_count:
                        return rows(buffer, begin)
                    one.replica_directory_id = NO_UUID
                    one.high_watermark = INT64_MAX
                    one.unknown_tagged_fields = NO_TAGS
                    partitions.append(one)
                    left -= 1
                    if left == 1:
                        break
                    one = _new(FetchPartition)
                    (
                        one.partition,
                        one.current_leader_epoch,
                        one.fetch_offset,
                        one.last_fetched_epoch,
                        one.log_start_offset,
                        one.partition_max_bytes,
                        tag_count,
                    ) = _PARTITION_V12(buffer, position)
                    position += 33
                if buffer[position]:
                    return rows(buffer, begin)
                position += 1
                topics.append(topic)
                topics_left -= 1
            forgotten, length = buffer[position], buffer[position + 1]
            stop = position + 1 + length
            if forgotten != 1 or not 0 < length < 128 or buffer[stop]:
                return rows(buffer, begin)
            request.forgotten_topics_data = []
            request.rack_id = str(buffer[position + 2 : stop], "utf-8")
        except _UNUSUAL:
            return rows(buffer, begin)
        return request, stop + 1

    return decode


# The layout of a follower's Fetch request for one partition. Its fields, in this order: max_wait_ms
# to the count of topics; the topic's id and its count of partitions; the partition and its count of
# tags; the topic's count of tags; no forgotten topics; no rack; the request's count of tags, which
# is 1; tag and size of the replica state; the replica state and its count of tags.
_ONE_V15 = layouts.Struct(">iiibiiB16sBiiqiqiBBBBBBBiqB").pack
_ONE = 2
_NO_TAGS = 0
_NONE = 1
_REPLICA_STATE_TAG = 1
_REPLICA_STATE_BYTES = layouts.calcsize(">iqB")
_VERSIONS_OF_FOLLOWERS = (15, 16, 17)


def _follower_encoder(rows: Encoder) -> Encoder:
    """Return an encoder of Fetch requests of versions 15 to 17, which is fast for a follower's
    request for a single partition."""

    def encode(request: Any, out: bytearray) -> None:
        try:
            (topic,) = request.topics
            (each,) = topic.partitions
            state = request.replica_state
            if (
                state.replica_id < 0
                or len(request.forgotten_topics_data)
                or request.rack_id != ""
                or request.cluster_id is not None
                or request.replica_id != -1
                or each.replica_directory_id != NO_UUID
                or each.unknown_tagged_fields
                or topic.unknown_tagged_fields
                or state.unknown_tagged_fields
                or request.unknown_tagged_fields
            ):
                data = None
            else:
                data = _ONE_V15(
                    request.max_wait_ms,
                    request.min_bytes,
                    request.max_bytes,
                    request.isolation_level,
                    request.session_id,
                    request.session_epoch,
                    _ONE,
                    topic.topic_id.bytes,
                    _ONE,
                    each.partition,
                    each.current_leader_epoch,
                    each.fetch_offset,
                    each.last_fetched_epoch,
                    each.log_start_offset,
                    each.partition_max_bytes,
                    _NO_TAGS,
                    _NO_TAGS,
                    _NONE,
                    _NONE,
                    1,
                    _REPLICA_STATE_TAG,
                    _REPLICA_STATE_BYTES,
                    state.replica_id,
                    state.replica_epoch,
                    _NO_TAGS,
                )
        except (ValueError, TypeError, AttributeError, layouts.error):
            data = None
        if data is None:
            rows(request, out)
        else:
            out += data

    return encode


def _request_codec(version: int, rows: MessageCodec) -> MessageCodec:
    make = _plain_decoder if version < 12 else _flexible_decoder
    decode = rows.decode if version < 9 else make(version, rows.decode)
    is_of_followers = version in _VERSIONS_OF_FOLLOWERS
    return MessageCodec(decode, _follower_encoder(rows.encode) if is_of_followers else rows.encode)


register_handwritten_codec(FetchRequest, _request_codec)
