"""Converts records of formats v0 and v1 to Arrow columns, in Python without compiled kernels."""

from collections.abc import Sequence

import pyarrow as pa

from pyspark_klog.records.arrow_columns import COLUMN_TYPES
from pyspark_klog.records.record import Record


class LegacyRows:
    """Collects rows for a RecordBatch of at most ``max_rows`` rows.

    The keys and values of a RecordBatch together have at most ``target_bytes`` bytes. A single
    record with more bytes becomes a RecordBatch by itself.
    """

    def __init__(self, columns: Sequence[str], max_rows: int, target_bytes: int) -> None:
        self.records: list[Record] = []
        self._columns = columns
        self._max_rows = max_rows
        self._target_bytes = target_bytes
        self._bytes = 0

    def has_room_for(self, record: Record) -> bool:
        """Whether ``record`` fits into the same RecordBatch as the records added so far."""
        if not self.records:
            return True
        new_bytes = self._bytes + _data_bytes(record)
        return len(self.records) < self._max_rows and new_bytes <= self._target_bytes

    def add(self, record: Record) -> None:
        """Append a record.

        If the timestamp column is requested, the caller must have checked that the timestamp in
        microseconds fits 64 bits.
        """
        self.records.append(record)
        self._bytes += _data_bytes(record)

    def finish(self) -> dict[str, pa.Array]:
        """Return the records added since the last call as columns by name, and forget them.

        The columns topic and partition, which are the same in all rows, are left out.
        """
        records, self.records, self._bytes = self.records, [], 0
        fields: dict[str, list[object]] = {
            "key": [record.key for record in records],
            "value": [record.value for record in records],
            "offset": [record.offset for record in records],
            "timestamp": [record.timestamp_ms * 1000 for record in records],
            "timestampType": [int(record.timestamp_type) for record in records],
            "headers": [None for _ in records],
        }
        return {
            name: pa.array(fields[name], COLUMN_TYPES[name])
            for name in self._columns
            if name in fields
        }


def _data_bytes(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")
