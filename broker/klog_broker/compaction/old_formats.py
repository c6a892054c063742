"""Filters log entries of formats v0 and v1 record by record in plain Python, because few logs still
have them.

An entry is a record by itself, or a compressed wrapper around several records.
"""

from collections.abc import Callable
from typing import NamedTuple

from pyspark_klog.records import layout as at
from pyspark_klog.records.builder import write_header
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.legacy import LegacyView
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.record import Record, TimestampType


class FilteredEntry(NamedTuple):
    """The filtered bytes of a v0 or v1 message, or of a wrapper around several messages, and how
    many records it has before and after the filter."""

    data: Buffer
    records_read: int
    records_kept: int


def filter_entry(
    entry: LegacyView, is_kept: Callable[[Record], bool], max_decompressed_bytes: int
) -> FilteredEntry:
    """Return ``entry``, a message of format v0 or v1 or a wrapper around several compressed
    messages, with the kept records only; no bytes if no record is kept.

    An entry whose records are all kept stays unchanged. If only some records of a wrapper are kept,
    a new wrapper is built around them. The records keep their offsets and timestamps, and the
    wrapper its format, codec and timestamp type. The wrapper's own offset and timestamp come from
    the kept records; with LogAppendTime, the timestamp stays.
    """
    records = list(entry.records(max_decompressed_bytes))
    kept = [record for record in records if is_kept(record)]
    if len(kept) == len(records):
        return FilteredEntry(entry.to_bytes(), len(records), len(kept))
    if not kept:
        return FilteredEntry(b"", len(records), 0)
    is_append_time = entry.timestamp_type is TimestampType.LOG_APPEND_TIME
    builder = LegacyBuilder(
        entry.magic,
        kept[0].offset,
        entry.codec,
        TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME,
        log_append_time_ms=entry.timestamp_ms if is_append_time else None,
    )
    for record in kept:
        builder.append(record.key, record.value, record.timestamp_ms, record.offset)
    return FilteredEntry(builder.build(), len(records), len(kept))


def empty_batch(entry: LegacyView) -> bytes:
    """Return a v2 batch without records, which keeps the last offset and the timestamp of ``entry``
    (a v0 or v1 message, or a wrapper around several) in the log. The older formats have no batch
    without records."""
    batch = bytearray(at.BATCH_HEADER_BYTES)
    is_append_time = entry.timestamp_type is TimestampType.LOG_APPEND_TIME
    write_header(
        batch,
        base_offset=entry.last_offset,
        leader_epoch=at.NO_LEADER_EPOCH,
        attributes=Codec.NONE | (at.TIMESTAMP_TYPE_BIT if is_append_time else 0),
        last_offset_delta=0,
        timestamps_ms=(at.NO_TIMESTAMP_MS, entry.timestamp_ms),
        producer=(at.NO_PRODUCER_ID, at.NO_PRODUCER_EPOCH, at.NO_SEQUENCE),
        record_count=0,
    )
    return bytes(batch)
