"""A hash of a task's rows, which shows whether a repeated task has the same rows. Pure.

Importing this module loads numba and the compiled function of row_hash_kernel.py, or compiles it,
which ``python -m pyspark_klog.warm`` does beforehand. Without numba the function is plain Python.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_klog.records.arrow_inputs import (
    NO_BYTES,
    bytes_column,
    header_column,
    partition_column,
    validity,
)
from pyspark_klog.records.errors import InvalidRecords
from pyspark_klog.spark.sink.exactly_once import row_hash_kernel as kernel

_FORMER_COLUMN = "timestamp"
"""Before option timestampColumn existed, a column of this name and of Spark's type timestamp gave
the records' timestamps and was a part of each row's hash."""


class RowHash:
    """The sum mod 2**128 of the 128-bit hashes of rows, which row_hash_kernel.py defines.

    The hash covers the columns value, key, headers, topic, partition and the one that option
    timestampColumn names, and no others; a missing column counts as a column of nulls, and a null
    is not an empty string. The sum does not depend on the order of the rows, since a shuffle does
    not keep it, nor on batches, on the layout of their buffers, or on the process. The sink stores
    the sum on brokers in progress rows, and compares it after restarts and updates of klog: a
    release with another hash needs another version number in the text of progress rows.
    """

    def __init__(self, timestamp_column: str | None = None) -> None:
        self._timestamp_column = timestamp_column
        self._value = 0
        self.row_count = 0
        self.byte_count = 0
        """The size in bytes of all values, keys and headers of the rows that were added."""

    @property
    def value(self) -> int:
        """The sum of the hashes, from 0 to 2**128 - 1; 0 without rows."""
        return self._value

    def add_repeated(self, batches: Iterable[pa.RecordBatch]) -> int | None:
        """Add the rows of a repeated task. Returns the sum that releases of klog without option
        timestampColumn computed for these rows, since such a release may have committed them; None
        if the rows have no column `timestamp` of Spark's type timestamp, so that the sum is the
        same, if timestampColumn is given, or if some rows were added before."""
        may_differ = self._timestamp_column is None and self.row_count == 0
        former = RowHash(_FORMER_COLUMN)
        for batch in batches:
            self.add(batch)
            if may_differ and _has_former_column(batch):
                former.add(batch)
        return former.value if 0 < former.row_count == self.row_count else None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch, which must be fewer than 2**31.

        :raises InvalidRecords: for a column of a type that the sink does not accept
        """
        if batch.num_rows == 0:
            return
        values = bytes_column("value", _column(batch, "value"))
        keys = bytes_column("key", _column(batch, "key"))
        topics = bytes_column("topic", _column(batch, "topic"))
        headers = header_column(_column(batch, "headers"))
        times, times_valid, times_from = _timestamps_us(_column(batch, self._timestamp_column))
        numbers, numbers_valid, numbers_from = partition_column(_column(batch, "partition"))
        settings = np.zeros(kernel.SETTING_FIELDS, np.int64)
        settings[kernel.VALUES_VALID_FROM] = values.valid_from
        settings[kernel.KEYS_VALID_FROM] = keys.valid_from
        settings[kernel.TOPICS_VALID_FROM] = topics.valid_from
        settings[kernel.LISTS_VALID_FROM] = headers.valid_from
        settings[kernel.HEADER_KEYS_VALID_FROM] = headers.keys.valid_from
        settings[kernel.HEADER_VALUES_VALID_FROM] = headers.values.valid_from
        settings[kernel.TIMESTAMPS_VALID_FROM] = times_from
        settings[kernel.PARTITIONS_VALID_FROM] = numbers_from
        sums = np.zeros(kernel.SUM_FIELDS, np.int64)
        self.row_count += kernel.add_row_hashes(
            *(batch.num_rows, settings),
            *(*values[:3], *keys[:3], *topics[:3], *headers[:2]),
            *(*headers.keys[:3], *headers.values[:3]),
            *(times, times_valid, numbers, numbers_valid, sums),
        )
        *quarters, byte_count = sums.tolist()
        added = sum(quarter << 32 * place for place, quarter in enumerate(quarters))
        self._value = (self._value + added) % 2**128
        self.byte_count += byte_count


def _has_former_column(batch: pa.RecordBatch) -> bool:
    column = _column(batch, _FORMER_COLUMN)
    return column is not None and pa.types.is_timestamp(column.type) and column.type.tz is not None


def _column(batch: pa.RecordBatch, name: str | None) -> pa.Array | None:
    return batch.column(name) if name in batch.schema.names else None


def _timestamps_us(
    column: pa.Array | None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], int]:
    """The timestamps in microseconds (Spark's unit), their validity bitmap, and the position of the
    first row's bit in the bitmap."""
    if column is None or pa.types.is_null(column.type):
        return np.empty(0, np.int64), NO_BYTES, 0
    if not pa.types.is_timestamp(column.type):
        raise InvalidRecords(
            f"the records' timestamps are of type {column.type}, expected timestamp"
        )
    column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    valid, data = column.buffers()
    numbers = np.frombuffer(data, np.int64)[column.offset : column.offset + len(column)]
    return numbers, *validity(column, valid)
