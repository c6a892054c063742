"""Records of formats v0 and v1 as Arrow columns, one record after the other, without kernels."""

from collections.abc import Sequence

import pyarrow as pa

from pyspark_klog.records.arrow_columns import COLUMN_TYPES
from pyspark_klog.records.record import Record


class LegacyRows:
    """Rows on their way to a RecordBatch of at most ``max_rows`` rows and ``target_bytes`` of keys
    and values; one larger record is a RecordBatch by itself."""

    def __init__(self, columns: Sequence[str], max_rows: int, target_bytes: int) -> None:
        self.records: list[Record] = []
        self._columns = columns
        self._max_rows = max_rows
        self._target_bytes = target_bytes
        self._bytes = 0

    def has_room_for(self, record: Record) -> bool:
        """Whether ``record`` goes into the same RecordBatch as those before it."""
        if not self.records:
            return True
        new_bytes = self._bytes + _data_bytes(record)
        return len(self.records) < self._max_rows and new_bytes <= self._target_bytes

    def add(self, record: Record) -> None:
        """Put a record behind the others; its timestamp must fit microseconds if it is wanted."""
        self.records.append(record)
        self._bytes += _data_bytes(record)

    def finish(self) -> dict[str, pa.Array]:
        """The records that were added since the last time, as columns; topic and partition, which
        are the same in all rows, are left out."""
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
