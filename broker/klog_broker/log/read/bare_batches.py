"""How far a reader of old formats finds nothing: Fetch before version 4 knows no batch without
records, and no control batch."""

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


class Bare(NamedTuple):
    """What a region begins with that an old reader gets nothing of."""

    next_offset: int | None
    """Behind its last batch; None if there is none."""
    headers: int
    """How many headers were read to find out."""


def bare_batches(
    segment: Segment, region: ReadRegion, max_headers: int, *, may_block: bool
) -> Bare:
    """The control batches, and those that the log cleaner has emptied, at the beginning of a
    region that begins with a batch; at most ``max_headers`` are read. ColdRead as ``Segment.look``,
    DamagedLog as ``Segment.places``."""
    next_offset: int | None = None
    headers = 0
    stop = region.position + region.size
    for place in segment.places(region.position, stop, may_block=may_block):
        if headers == max_headers:
            break
        headers += 1
        size_bytes = min(BATCH_HEADER_BYTES, place.size_bytes)
        if not _is_bare(segment.look(place.position, size_bytes, may_block=may_block)):
            break
        next_offset = place.last_offset + 1
    return Bare(next_offset, headers)


def _is_bare(header: bytes) -> bool:
    if len(header) < BATCH_HEADER_BYTES or header[MAGIC_AT] != MAGIC_V2:
        return False
    return bool(header[ATTRIBUTES_AT + 1] & CONTROL_BIT) or not has_records(header)
