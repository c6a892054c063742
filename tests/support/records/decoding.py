"""Decodes whole record sets to Arrow in one call."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from pyspark_klog.records.arrow import ArrowDecoder
from pyspark_klog.records.layout import Buffer


class DecodedRecords(NamedTuple):
    """The decoded records, and the offset to fetch next."""

    batches: list[pa.RecordBatch]
    next_offset: int  # offset for the next Fetch of the partition
    cut_off_bytes: int  # size of the partial batch that ends the last decoded buffer, or 0


def decode_to_arrow(
    buffers: Buffer | Sequence[Buffer],
    *,
    aborted: Sequence[tuple[int, int]] = (),
    **options: Any,
) -> DecodedRecords:
    """Decode one buffer, or several consecutive ones, with an ArrowDecoder of these ``options``.

    ``aborted`` lists each buffer's aborted transactions, as (producer id, first offset). If a
    buffer ends with a partial batch, the next buffer must begin with the same batch again.
    """
    decoder = ArrowDecoder(**options)
    batches: list[pa.RecordBatch] = []
    for buffer in [buffers] if isinstance(buffers, Buffer) else buffers:
        batches.extend(decoder.decode(buffer, aborted))
    rest = decoder.flush()
    if rest is not None:
        batches.append(rest)
    return DecodedRecords(batches, decoder.next_offset, decoder.cut_off_bytes)
