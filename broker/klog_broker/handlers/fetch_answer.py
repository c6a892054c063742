"""The answer to a Fetch as bytes, packed at once.

Byte for byte as the codec of FetchResponse would encode it, for what nearly every answer is: from
version 4 on, with records in files, without diverging epochs and aborted transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from struct import Struct

from klog_broker.handlers.fetch_read import FIRST_VERSION_WITH_TOPIC_IDS
from klog_broker.handlers.read_partition import ReadPartition
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.fields import FileRegion
from pyspark_klog.protocol.wire import Buffer, uvarint

_FIRST_VERSION = 4
_FIRST_VERSION_WITH_LOG_START = 5
_FIRST_VERSION_WITH_SESSIONS = 7
_FIRST_VERSION_WITH_READ_REPLICAS = 11
_FIRST_FLEXIBLE_VERSION = 12
_NO_REPLICA = -1

# Size, correlation id, throttle time; since 7 error code and session id; then how many topics.
_HEAD_V4 = Struct(">iiii").pack
_HEAD_V7 = Struct(">iiihii").pack
_HEAD_V12 = Struct(">iibihi").pack
_SIZE = Struct(">i")
_COUNT = Struct(">i").pack
_LENGTH = Struct(">h").pack
# Partition, error code, high watermark, last stable offset; since 5 the log's start; how many
# aborted transactions; since 11 the preferred replica.
_PARTITION_V4 = Struct(">ihqqii").pack
_PARTITION_V5 = Struct(">ihqqqii").pack
_PARTITION_V11 = Struct(">ihqqqiii").pack
_PARTITION_V12 = Struct(">ihqqqBi").pack


def pack_answer(
    correlation_id: int,
    version: int,
    session_id: int,
    error_code: ErrorCode,
    told: Sequence[ReadPartition],
) -> list[Buffer | FileRegion] | None:
    """The whole frame in parts, as ``encode_response_parts`` gives it; None if it cannot."""
    if version < _FIRST_VERSION:
        return None
    is_flexible = version >= _FIRST_FLEXIBLE_VERSION
    if len(told) == 1:
        topics: list[Sequence[ReadPartition]] = [told]
    else:
        topics = [list(each) for _, each in groupby(told, key=_topic_of)]
    chunk = bytearray(_head(correlation_id, version, session_id, error_code, len(topics)))
    parts: list[Buffer | FileRegion] = []
    sent_bytes = 0
    for partitions in topics:
        chunk += _topic_head(partitions[0], version)
        chunk += uvarint(len(partitions) + 1) if is_flexible else _COUNT(len(partitions))
        for each in partitions:
            if each.diverging_epoch is not None or each.aborted_transactions:
                return None
            records = each.records
            size_bytes = len(records)
            if size_bytes and type(records) is not FileRegion:
                return None
            chunk += _partition(each, version, size_bytes)
            if size_bytes:
                sent_bytes += len(chunk) + size_bytes
                parts.append(chunk)
                parts.append(records)
                chunk = bytearray()
            if is_flexible:
                chunk += b"\0"
        if is_flexible:
            chunk += b"\0"
    if is_flexible:
        chunk += b"\0"
    if chunk:
        parts.append(chunk)
        sent_bytes += len(chunk)
    first = parts[0]
    assert type(first) is bytearray
    _SIZE.pack_into(first, 0, sent_bytes - _SIZE.size)
    return parts


def _head(
    correlation_id: int, version: int, session_id: int, error_code: ErrorCode, topics: int
) -> bytes:
    """With room for the size."""
    if version >= _FIRST_FLEXIBLE_VERSION:
        return _HEAD_V12(0, correlation_id, 0, 0, error_code, session_id) + uvarint(topics + 1)
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        return _HEAD_V7(0, correlation_id, 0, error_code, session_id, topics)
    return _HEAD_V4(0, correlation_id, 0, topics)


def _topic_of(each: ReadPartition) -> tuple[str, int]:
    return each.topic, each.topic_id.int


def _topic_head(each: ReadPartition, version: int) -> bytes:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return each.topic_id.bytes
    name = each.topic.encode()
    if version >= _FIRST_FLEXIBLE_VERSION:
        return uvarint(len(name) + 1) + name
    return _LENGTH(len(name)) + name


def _partition(each: ReadPartition, version: int, size_bytes: int) -> bytes:
    """All that stands before the records."""
    watermark, stable = each.high_watermark, each.last_stable_offset
    index, code = each.request.partition, each.error_code
    is_null = each.aborted_transactions is None
    if version >= _FIRST_FLEXIBLE_VERSION:
        aborted = 0 if is_null else 1
        start = each.log_start_offset
        return _PARTITION_V12(
            index, code, watermark, stable, start, aborted, _NO_REPLICA
        ) + uvarint(size_bytes + 1)
    aborted = -1 if is_null else 0
    if version < _FIRST_VERSION_WITH_LOG_START:
        return _PARTITION_V4(index, code, watermark, stable, aborted, size_bytes)
    start = each.log_start_offset
    if version < _FIRST_VERSION_WITH_READ_REPLICAS:
        return _PARTITION_V5(index, code, watermark, stable, start, aborted, size_bytes)
    return _PARTITION_V11(index, code, watermark, stable, start, aborted, _NO_REPLICA, size_bytes)
