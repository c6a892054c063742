"""Reads records out of record sets for tests, empties batches, and sets fields of batches."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import write_header
from pyspark_klog.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from pyspark_klog.records.control import EndTransactionMarker, encode_control_key
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.record import Record
from pyspark_klog.records.record_sets import entries

_END_TRANSACTION_VALUE = struct.Struct(">hi")
"""A marker's value: version 0 and the coordinator epoch."""


def iterate(
    buffer: Buffer,
    start: int = 0,
    end: int | None = None,
    *,
    allow_partial: bool = False,
    check_crc: bool = True,
    include_control: bool = False,
    max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Iterator[Record]:
    """All records of ``buffer[start:end]`` in order; control records only if asked for.

    ``check_crc`` checks each entry before its records are given out. ``max_bytes`` bounds what one
    entry may inflate to. Raises subclasses of RecordsError.
    """
    for entry in entries(buffer, start, end, allow_partial=allow_partial):
        if check_crc:
            entry.check_crc()
        if include_control or not entry.is_control:
            yield from entry.records(max_bytes)


def encode_end_transaction(marker: EndTransactionMarker) -> tuple[bytes, bytes]:
    """The key and the value of a transaction marker's record."""
    value = _END_TRANSACTION_VALUE.pack(0, marker.coordinator_epoch)
    return encode_control_key(marker.control_type), value


def set_leader_epoch(view: BatchView, leader_epoch: int) -> None:
    """Writes the leader epoch into a batch, whose CRC does not cover it."""
    at.INT32.pack_into(view._buffer, view.position + at.LEADER_EPOCH_AT, leader_epoch)


def empty_batch(source: BatchView) -> bytes:
    """Return the header of ``source`` as a batch without records.

    Compaction leaves such a batch in place of the last batch of a producer if that batch has lost
    all its records. Offsets, producer fields, leader epoch, max timestamp and attributes stay,
    except codec and delete horizon. The base timestamp becomes -1.
    """
    batch = bytearray(at.BATCH_HEADER_BYTES)
    write_header(
        batch,
        base_offset=source.base_offset,
        leader_epoch=source.partition_leader_epoch,
        attributes=source.attributes
        & (at.TIMESTAMP_TYPE_BIT | at.TRANSACTIONAL_BIT | at.CONTROL_BIT),
        last_offset_delta=source.last_offset_delta,
        timestamps_ms=(at.NO_TIMESTAMP_MS, source.max_timestamp_ms),
        producer=(source.producer_id, source.producer_epoch, source.base_sequence),
        record_count=0,
    )
    return bytes(batch)
