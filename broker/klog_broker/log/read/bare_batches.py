"""Finds batches that a Fetch request before version 4 cannot receive: control batches, and batches
without records. The message formats 0 and 1 have neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from klog_broker.log.segment.batch_positions import has_records
from klog_broker.runtime.disk.files import ReadRegion
from pyspark_klog.records.layout import (
    ATTRIBUTES_AT,
    BATCH_HEADER_BYTES,
    CONTROL_BIT,
    MAGIC_AT,
    MAGIC_V2,
)

if TYPE_CHECKING:
    from klog_broker.log.segment.segment import Segment


class BareBatches(NamedTuple):
    """The control batches and the batches without records at the beginning of a region (a byte
    range of a .log file)."""

    next_offset: int | None
    """The offset after the last of the control batches and batches without records with which the
    region begins; None if it does not begin with such a batch."""
    headers: int
    """The number of batches that were checked in the search."""


def bare_batches(
    segment: Segment, region: ReadRegion, max_headers: int, *, may_block: bool
) -> BareBatches:
    """Find the control batches and the batches without records at the beginning of a region, a byte
    range of the segment's .log file that must begin with a batch. Checks at most ``max_headers``
    batches. Raises DamagedLog at bytes that are no batch. With ``may_block=False`` raises ColdRead
    if a header is not in the page cache."""
    next_offset: int | None = None
    headers = 0
    stop = region.position + region.size
    for place in segment.batch_positions(region.position, stop, may_block=may_block):
        if headers == max_headers:
            break
        headers += 1
        size_bytes = min(BATCH_HEADER_BYTES, place.size_bytes)
        if not _is_bare(segment.read_bytes(place.position, size_bytes, may_block=may_block)):
            break
        next_offset = place.last_offset + 1
    return BareBatches(next_offset, headers)


def _is_bare(header: bytes) -> bool:
    if len(header) < BATCH_HEADER_BYTES or header[MAGIC_AT] != MAGIC_V2:
        return False
    return bool(header[ATTRIBUTES_AT + 1] & CONTROL_BIT) or not has_records(header)
