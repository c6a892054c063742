"""Produce: append record sets to partitions."""

import struct as layouts

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.codec import MessageCodec, register_handwritten_codec
from pyspark_klog.protocol.decoders import Decoder
from pyspark_klog.protocol.errors import MalformedRequest
from pyspark_klog.protocol.fields import (
    NO_UUID,
    array,
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
from pyspark_klog.protocol.wire import Buffer, long_uvarint, uuid_of


class PartitionProduceData(Struct):
    index: int = int32()
    records: memoryview | bytes | None = record_set()


class TopicProduceData(Struct):
    name: str = string(until=12, ignorable=True)
    topic_id: UUID = uuid(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request, api=ApiKey.PRODUCE, versions=(0, 13), flexible_since=9):
    transactional_id: str | None = string(since=3, nullable_since=3, default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable_since=0, default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(since=2, default=-1, ignorable=True)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, since=8, ignorable=True
    )
    error_message: str | None = string(since=8, nullable_since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, since=10, tag=0)


class TopicProduceResponse(Struct):
    name: str = string(until=12, ignorable=True)
    topic_id: UUID = uuid(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)


class ProduceResponse(Response, api=ApiKey.PRODUCE, versions=(0, 13), flexible_since=9):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)


# The hand-written decoder of Produce requests reads the usual shape as fast as possible: no
# transactional id, at least one topic, each with a partition, no null, no tagged fields, and in
# flexible versions counts and lengths of topic names below 127. All other requests, including
# damaged ones, go to the decoder ``rows``, which codec.py generates from the fields. The encoder is
# generated, too, because a hand-written encoder was not faster.

_HEAD_V0 = layouts.Struct(">hii").unpack_from
_HEAD_V3 = layouts.Struct(">hhii").unpack_from
_HEAD_V9 = layouts.Struct(">BhiB").unpack_from
_LENGTH = layouts.Struct(">h").unpack_from
_COUNT_INDEX_SIZE = layouts.Struct(">iii").unpack_from
_INDEX_SIZE = layouts.Struct(">ii").unpack_from
_COUNT_INDEX = layouts.Struct(">Bi").unpack_from
_INDEX = layouts.Struct(">i").unpack_from
assert layouts.calcsize(">hhii") == 2 + layouts.calcsize(">hii") == 12
assert layouts.calcsize(">BhiB") == layouts.calcsize(">ii") == 8
assert layouts.calcsize(">iii") == 12
assert layouts.calcsize(">Bi") == 5
_UNUSUAL = (IndexError, ValueError, layouts.error, MalformedRequest)
_new = object.__new__


def _plain_decoder(version: int, rows: Decoder) -> Decoder:
    """Return a decoder of Produce requests of versions 0 to 8. Requests of an unusual shape, and
    damaged ones, are passed on to ``rows``, the generated decoder."""

    def decode(buffer: Buffer, begin: int) -> tuple[ProduceRequest, int]:
        try:
            view, end = memoryview(buffer), len(buffer)
            request = _new(ProduceRequest)
            request.transactional_id = None
            request.unknown_tagged_fields = NO_TAGS
            if version < 3:
                request.acks, request.timeout_ms, topics_left = _HEAD_V0(buffer, begin)
                position = begin + 10
            else:
                id_length, request.acks, request.timeout_ms, topics_left = _HEAD_V3(buffer, begin)
                position = begin + 12
                if id_length >= 0:
                    return rows(buffer, begin)
            if topics_left < 1:
                return rows(buffer, begin)
            request.topic_data = topics = []
            while topics_left:
                start = position + 2
                stop = start + _LENGTH(buffer, position)[0]
                if not start <= stop <= end:
                    return rows(buffer, begin)
                topic = _new(TopicProduceData)
                topic.name = str(buffer[start:stop], "utf-8")
                topic.topic_id = NO_UUID
                topic.unknown_tagged_fields = NO_TAGS
                topic.partition_data = partitions = []
                left, index, size = _COUNT_INDEX_SIZE(buffer, stop)
                position = stop + 12
                if left < 1:
                    return rows(buffer, begin)
                while True:
                    stop = position + size
                    if not position <= stop <= end:
                        return rows(buffer, begin)
                    data = _new(PartitionProduceData)
                    data.index = index
                    data.records = view[position:stop]
                    data.unknown_tagged_fields = NO_TAGS
                    partitions.append(data)
                    position = stop
                    left -= 1
                    if not left:
                        break
                    index, size = _INDEX_SIZE(buffer, position)
                    position += 8
                topics.append(topic)
                topics_left -= 1
        except _UNUSUAL:
            return rows(buffer, begin)
        return request, position

    return decode


def _flexible_decoder(version: int, rows: Decoder) -> Decoder:
    """Return a decoder of Produce requests of version 9 and later, with compact counts and lengths.

    A compact number is one more than the count or length, and 0 is null. Requests of an unusual
    shape, and damaged ones, are passed on to ``rows``, the generated decoder.
    """
    has_names = version < 13

    def decode(buffer: Buffer, begin: int) -> tuple[ProduceRequest, int]:
        try:
            view, end = memoryview(buffer), len(buffer)
            request = _new(ProduceRequest)
            request.transactional_id = None
            request.unknown_tagged_fields = NO_TAGS
            has_id, request.acks, request.timeout_ms, topics_left = _HEAD_V9(buffer, begin)
            if has_id or not 1 < topics_left < 128:
                return rows(buffer, begin)
            position = begin + 8
            request.topic_data = topics = []
            while topics_left > 1:
                topic = _new(TopicProduceData)
                topic.unknown_tagged_fields = NO_TAGS
                topic.partition_data = partitions = []
                if has_names:
                    length = buffer[position]
                    stop = position + length
                    if not 0 < length < 128 or stop > end:
                        return rows(buffer, begin)
                    topic.name = str(buffer[position + 1 : stop], "utf-8")
                    topic.topic_id = NO_UUID
                else:
                    stop = position + 16
                    topic.name = ""
                    topic.topic_id = uuid_of(bytes(buffer[position:stop]))
                left, index = _COUNT_INDEX(buffer, stop)
                position = stop + 5
                if not 1 < left < 128:
                    return rows(buffer, begin)
                while True:
                    size = buffer[position]
                    position += 1
                    if size > 127:
                        size, position = long_uvarint(buffer, position, size)
                    stop = position + size - 1
                    if not position <= stop < end or buffer[stop]:
                        return rows(buffer, begin)
                    data = _new(PartitionProduceData)
                    data.index = index
                    data.records = view[position:stop]
                    data.unknown_tagged_fields = NO_TAGS
                    partitions.append(data)
                    position = stop + 1
                    left -= 1
                    if left == 1:
                        break
                    (index,) = _INDEX(buffer, position)
                    position += 4
                if buffer[position]:
                    return rows(buffer, begin)
                position += 1
                topics.append(topic)
                topics_left -= 1
            if buffer[position]:
                return rows(buffer, begin)
        except _UNUSUAL:
            return rows(buffer, begin)
        return request, position + 1

    return decode


def _request_codec(version: int, rows: MessageCodec) -> MessageCodec:
    make = _plain_decoder if version < 9 else _flexible_decoder
    return MessageCodec(make(version, rows.decode), rows.encode)


register_handwritten_codec(ProduceRequest, _request_codec)
