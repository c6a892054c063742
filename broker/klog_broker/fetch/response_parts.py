"""Builds the response of a Fetch: packed directly, or as an object for the codec.

Packed bytes equal those that the codec of FetchResponse encodes. Nearly all responses can be
packed: those of version 4 or later with records in files, and without errors, diverging epochs and
aborted transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from struct import Struct

from klog_broker.fetch.partition_read import ReadPartition
from klog_broker.fetch.reader import FIRST_VERSION_WITH_TOPIC_IDS
from klog_broker.runtime.disk.files import ReadRegion
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.fetch import FetchableTopicResponse, FetchResponse
from pyspark_klog.protocol.wire import Buffer, uvarint

_FIRST_VERSION = 4
_FIRST_VERSION_WITH_LOG_START = 5
_FIRST_VERSION_WITH_SESSIONS = 7
_FIRST_VERSION_WITH_READ_REPLICAS = 11
_FIRST_FLEXIBLE_VERSION = 12
_NO_REPLICA = -1

# The first fields of a response: size, correlation id, throttle time; since version 7 error code
# and session id; then the topic count. Version 12 has empty tagged fields after the correlation id,
# and stores the topic count as a varint after these fields.
_HEAD_V4 = Struct(">iiii").pack
_HEAD_V7 = Struct(">iiihii").pack
_HEAD_V12 = Struct(">iibihi").pack
_SIZE = Struct(">i")
_COUNT = Struct(">i").pack
_LENGTH = Struct(">h").pack
# The fields of a partition: index, error code, high watermark, last stable offset; since version 5
# log start offset; count of aborted transactions; since version 11 the preferred read replica; last
# the size of the records, which version 12 stores as a varint after these fields.
_PARTITION_V4 = Struct(">ihqqii").pack
_PARTITION_V5 = Struct(">ihqqqii").pack
_PARTITION_V11 = Struct(">ihqqqiii").pack
_PARTITION_V12 = Struct(">ihqqqBi").pack
# A version 13 response with one partition, up to the size of the records: size to session id as in
# V12, topic count, topic id, partition count, and the partition's fields.
_ONE_V13 = Struct(">iibihiB16sBihqqqBi")
_ONE = 2
"""The count 1, which flexible versions store plus one."""
_ONES_END = b"\0\0\0"
"""The last bytes of a response with one partition: empty tagged fields of the partition, the topic
and the response."""

_MOST_COPIED_BYTES = 16 * 1024
"""The most bytes of records that are copied into a response: up to this size, a copy is cheaper
than a sendfile call plus a second send call."""
# The varints of the sizes of records are cached, because the records of most responses have the
# largest size that the consumer allows.
_uvarint_of_size = lru_cache(256)(uvarint)


def pack_response(
    correlation_id: int,
    version: int,
    session_id: int,
    error_code: ErrorCode,
    included: Sequence[ReadPartition],
) -> list[Buffer | ReadRegion] | None:
    """Return the whole frame of the response, beginning with its size, as parts that are sent in
    order: bytes, and regions of log files. Return None if the codec of FetchResponse has to encode
    the response: in a version before 4, with an error, a diverging epoch or aborted transactions,
    or with records that are not sent from a file."""
    if version < _FIRST_VERSION or error_code:
        return None
    if len(included) == 1 and version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return _pack_one(correlation_id, session_id, error_code, included[0])
    is_flexible = version >= _FIRST_FLEXIBLE_VERSION
    if len(included) == 1:
        topics: list[Sequence[ReadPartition]] = [included]
    else:
        topics = [list(each) for _, each in groupby(included, key=_topic_of)]
    chunk = bytearray(_head(correlation_id, version, session_id, error_code, len(topics)))
    parts: list[Buffer | ReadRegion] = []
    sent_bytes = 0
    may_copy_bytes = _MOST_COPIED_BYTES
    for partitions in topics:
        chunk += _topic_head(partitions[0], version)
        chunk += uvarint(len(partitions) + 1) if is_flexible else _COUNT(len(partitions))
        for each in partitions:
            if not _is_plain(each):
                return None
            region = each.region
            chunk += _partition(each, version, 0 if region is None else region.size)
            copy = b"" if region is None else _copied(region, may_copy_bytes)
            if copy is not None:
                chunk += copy
                may_copy_bytes -= len(copy)
            elif region is not None:
                sent_bytes += len(chunk) + region.size
                parts.append(chunk)
                parts.append(region)
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


def _pack_one(
    correlation_id: int, session_id: int, error_code: ErrorCode, each: ReadPartition
) -> list[Buffer | ReadRegion] | None:
    """Return the frame of a response with one partition, for Fetch 13 or later; None if the
    partition's result has an error, for example, and so cannot be packed."""
    if not _is_plain(each):
        return None
    region = each.region
    size_bytes = 0 if region is None else region.size
    length = _uvarint_of_size(size_bytes + 1)
    head = _ONE_V13.pack(
        _ONE_V13.size + len(length) + size_bytes + len(_ONES_END) - _SIZE.size,
        correlation_id,
        0,
        0,
        error_code,
        session_id,
        _ONE,
        each.topic_id.bytes,
        _ONE,
        each.request.partition,
        each.error_code,
        each.high_watermark,
        each.last_stable_offset,
        each.log_start_offset,
        0 if each.aborted_transactions is None else 1,
        _NO_REPLICA,
    )
    if region is None:
        return [head + length + _ONES_END]
    copy = _copied(region, _MOST_COPIED_BYTES)
    if copy is not None:
        return [b"".join((head, length, copy, _ONES_END))]
    return [head + length, region, _ONES_END]


def _copied(region: ReadRegion, most_bytes: int) -> bytes | None:
    """Return a copy of a small region's records, because a copy is cheaper than a separate sendfile
    call for the region. Return None for a larger region, or if the records cannot be read without
    blocking: they are then read, and an error is handled, when the region is sent."""
    if region.size > most_bytes:
        return None
    try:
        records = region.file.pread_now(region.size, region.position)
    except OSError:
        return None
    return records if records is not None and len(records) == region.size else None


def _is_plain(each: ReadPartition) -> bool:
    """Return whether the partition has no error, converted records, diverging epoch or aborted
    transactions."""
    return not (
        each.error_code
        or each.records
        or each.diverging_epoch is not None
        or each.aborted_transactions
    )


def _head(
    correlation_id: int, version: int, session_id: int, error_code: ErrorCode, topics: int
) -> bytes:
    """Return the first bytes of a Fetch response's frame, with zeros in place of the size."""
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
    """Return all fields of a partition that come before its records."""
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


def make_response(
    session_id: int, error_code: ErrorCode, included: Sequence[ReadPartition]
) -> FetchResponse:
    """Return the response as an object, which the codec of FetchResponse encodes."""
    response = FetchResponse(error_code=error_code, session_id=session_id)
    topics = response.responses
    for each in included:
        if not topics or topics[-1].topic != each.topic or topics[-1].topic_id != each.topic_id:
            topics.append(FetchableTopicResponse(topic=each.topic, topic_id=each.topic_id))
        topics[-1].partitions.append(each.response_part())
    return response
