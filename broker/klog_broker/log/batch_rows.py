"""BatchRow: the header fields of one stored batch, as scans of a log return them."""

from typing import NamedTuple

from pyspark_klog.records import layout as at
from pyspark_klog.records.layout import Buffer

UNKNOWN_COUNT = -1
"""``record_count`` of a compressed message of format 0 or 1: the header does not have the count."""


class BatchRow(NamedTuple):
    """The header fields of one batch, and its position and size in bytes.

    ``base_offset`` of a v0 or v1 message is the offset in the message's header.
    """

    position: int
    size_bytes: int
    magic: int
    attributes: int
    base_offset: int
    last_offset: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    record_count: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


def header_row(buffer: Buffer, position: int) -> BatchRow:
    """Return the row of the v2 batch whose header is at ``position``, without any check."""
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        _,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = at.BATCH_HEADER.unpack_from(buffer, position)
    return BatchRow(
        position,
        at.LOG_OVERHEAD_BYTES + length,
        magic,
        attributes,
        base_offset,
        base_offset + last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        record_count,
        leader_epoch,
        producer_id,
        producer_epoch,
        base_sequence,
    )
