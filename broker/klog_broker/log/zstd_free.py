"""How far a reader that does not know zstd can read: Fetch before version 10 (KIP-110)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog_broker.runtime.files import ReadRegion
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    INT32,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MAGIC_V2,
    SIZE_AT,
)

if TYPE_CHECKING:
    from klog_broker.log.segment import Segment

_HEAD_BYTES = ATTRIBUTES_AT + 2


def zstd_free_bytes(
    segment: Segment, region: ReadRegion, max_headers: int, *, may_block: bool
) -> tuple[int, int]:
    """How many bytes of a region, which begins with a batch, lie before the first batch of zstd;
    and how many headers were read to find out. At most ``max_headers`` are read; if that is not
    enough the answer ends with the last batch read.

    No header is read where the segment is known to have no batch of zstd: what one reader finds is
    kept for the next. Bytes that are not a batch go to the reader as they are, for readers check
    everything. ColdRead as ``Segment.look``.
    """
    position, end = region.position, region.position + region.size
    at = start = max(position, segment.zstd_free_end)
    headers = 0
    while at < end and headers < max_headers:
        head = segment.look(at, _HEAD_BYTES, may_block=may_block)
        size = INT32.unpack_from(head, SIZE_AT)[0] if len(head) == _HEAD_BYTES else 0
        if size <= 0:
            return region.size, headers
        headers += 1
        if head[MAGIC_AT] == MAGIC_V2 and head[ATTRIBUTES_AT + 1] & CODEC_MASK == Codec.ZSTD:
            break
        at += LOG_OVERHEAD_BYTES + size
    if start == segment.zstd_free_end:
        segment.zstd_free_end = min(at, segment.size_bytes)
    return min(at - position, region.size), headers
