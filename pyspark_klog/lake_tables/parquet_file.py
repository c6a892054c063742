"""Writes one Parquet file of a lake table from Arrow batches."""

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.lake_tables.table import LakeTable, WrittenFile

if TYPE_CHECKING:
    from types import TracebackType

ROW_GROUP_BYTES = 32 << 20
"""The size in memory of the rows that become a row group. Readers take whole row groups, one for
each of their threads."""
_REPEATED = ["topic", "partition", "timestampType"]
"""The columns that have one or a few different values in a file, which a dictionary makes small."""


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec of Parquet, with its level; None for the codec's own."""

    codec: str = "zstd"
    level: int | None = 1


class ParquetFile:
    """A new data file of a table. Used as a context manager, it is closed at the end of the block,
    and deleted if the block fails; the table does not know the file until it is committed."""

    def __init__(self, table: LakeTable, file_name: str, compression: Compression) -> None:
        self._table = table
        self._path, self._stream = table.new_file(file_name)
        self._writer = pq.ParquetWriter(
            self._stream,
            table.schema,
            compression=compression.codec,
            compression_level=compression.level,
            use_dictionary=_REPEATED,
            store_schema=False,
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def __enter__(self) -> "ParquetFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: "TracebackType | None",
    ) -> None:
        if kind is None:
            self._stream.close()
            return
        # The error of the block counts, and not one of closing or deleting, on a full disk for
        # example.
        with suppress(Exception):
            self._stream.close()
        with suppress(Exception):
            self._table.delete(self._path)

    @property
    def size_bytes(self) -> int:
        """The size of the finished row groups."""
        return self._stream.tell()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, which are kept in memory until they fill a row group."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._end_row_group()

    def finish(self) -> WrittenFile:
        """Write the rest, wait until the file is durable, and return it."""
        if self._waiting:
            self._end_row_group()
        self._writer.close()
        size_bytes = self._stream.tell()
        self._stream.close()
        return WrittenFile(self._path, size_bytes, epoch_ms(), self._writer.writer.metadata)

    def _end_row_group(self) -> None:
        table = pa.Table.from_batches(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        self._writer.write_table(table, row_group_size=table.num_rows)
