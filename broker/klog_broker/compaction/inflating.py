"""A scanned chunk as arrays for the kernels, and its compressed batches inflated."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyspark_klog.records.compression import codec_of, decompress
from pyspark_klog.records.errors import RecordsError
from pyspark_klog.records.kernels.scan import (
    ATTRIBUTES,
    LAST_OFFSET,
    POSITION,
    SIZE_BYTES,
    TABLE_COLUMNS,
)
from pyspark_klog.records.kernels.status import error_for
from pyspark_klog.records.layout import BATCH_HEADER_BYTES, CODEC_MASK, Buffer

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


class Chunk(NamedTuple):
    """Bytes with the first rows of a scan's table of them."""

    data: Bytes
    table: Numbers  # a row of TABLE_COLUMNS for each batch

    def field(self, row: int, column: int) -> int:
        return int(self.table[row * TABLE_COLUMNS + column])

    def column(self, column: int) -> Numbers:
        return self.table[column::TABLE_COLUMNS]

    def end_position(self, row: int) -> int:
        return self.field(row, POSITION) + self.field(row, SIZE_BYTES)

    def entry(self, row: int) -> memoryview:
        """The bytes of one row."""
        return self.data.data[self.field(row, POSITION) : self.end_position(row)]


def as_chunk(data: Buffer | Bytes, table: Numbers, row_count: int) -> Chunk:
    """The first ``row_count`` rows of a flat table, with their bytes."""
    view: Any = np.frombuffer(data, np.uint8).view()
    view.flags.writeable = False
    return Chunk(view, table[: row_count * TABLE_COLUMNS])


def inflate(chunk: Chunk, row: int, max_bytes: int) -> Chunk:
    """One compressed v2 batch as a chunk of its own, not compressed. Its header is as it was; its
    row fits what it is now. Raises as ``decompress`` does."""
    entry = chunk.entry(row)
    own = chunk.table[row * TABLE_COLUMNS : (row + 1) * TABLE_COLUMNS].copy()
    section = decompress(
        codec_of(chunk.field(row, ATTRIBUTES)), entry[BATCH_HEADER_BYTES:], max_bytes=max_bytes
    )
    data = b"".join((entry[:BATCH_HEADER_BYTES], section))
    own[POSITION] = 0
    own[SIZE_BYTES] = len(data)
    own[ATTRIBUTES] &= ~CODEC_MASK
    return as_chunk(data, own, 1)


def records_error(status: int, chunk: Chunk, row: int, record: int) -> RecordsError:
    """The exception for what a kernel found wrong with a record of a row."""
    last_offset = chunk.field(row, LAST_OFFSET)
    return error_for(status, f"record {record} of the batch that ends at offset {last_offset}")
