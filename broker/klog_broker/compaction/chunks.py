"""Reads a segment in chunks of whole batches, for the log cleaner. Each batch is checked, its CRC
too. A chunk has a table with the header fields of its batches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from klog_broker.log.errors import DamagedLog
from klog_broker.runtime.disk.files import File
from pyspark_klog.records.kernels import scan, status
from pyspark_klog.records.layout import LOG_OVERHEAD_BYTES, Buffer

# While a log is cleaned, chunks of four times this size double the latency of clients' small
# requests. Chunks of a quarter of this size do not shorten the latency, and slow the cleaning down.
CHUNK_BYTES = 1 << 20
_TABLE_ROWS = 16_384


class SegmentChunk(NamedTuple):
    """Bytes of a segment, and a table with a row for each batch in them.

    A row has the batch's header fields as ``scan.TABLE_COLUMNS`` numbers. Positions in the table
    are positions in ``data``. ``data`` may have bytes before the first batch of the table (batches
    of the chunk before) and after the last one.
    """

    data: Buffer
    table: Any
    end_position: int
    """The position in the segment where the chunk's last batch ends."""

    @property
    def size_bytes(self) -> int:
        rows = self.table
        return int(rows[-1, scan.POSITION] + rows[-1, scan.SIZE_BYTES] - rows[0, scan.POSITION])


def chunks_of(file: File, size_bytes: int, path: Path) -> Iterator[SegmentChunk]:
    """Yield the batches of a log file of ``size_bytes`` in chunks. Blocks; raises OSError.

    Raises DamagedLog at bytes that are not a valid batch.
    """
    position = 0
    wanted = CHUNK_BYTES
    while position < size_bytes:
        data = file.pread(min(wanted, size_bytes - position), position)
        done = 0
        found = status.OK
        while done < len(data):
            table, end, found = _scan(data, done)
            if not len(table):
                break
            yield SegmentChunk(data, table, position + end)
            done = end
            if found != status.FULL:
                break
        if done:
            position += done
            wanted = CHUNK_BYTES
        elif found == status.INCOMPLETE and len(data) >= LOG_OVERHEAD_BYTES:
            wanted = LOG_OVERHEAD_BYTES + int.from_bytes(data[8:12], "big", signed=True)
            if not len(data) < wanted <= size_bytes - position:
                raise _damage(path, position, found)
        else:
            raise _damage(path, position, found)


def _scan(data: bytes, start: int) -> tuple[Any, int, int]:
    table = np.empty(_TABLE_ROWS * scan.TABLE_COLUMNS, np.int64)
    state = np.empty(scan.STATE_FIELDS, np.int64)
    view = np.frombuffer(data, np.uint8)
    found = scan.scan_batches(view, start, len(data), 1, len(data) + 1, table, state)
    rows = int(state[scan.STATE_BATCHES])
    return (
        table.reshape(-1, scan.TABLE_COLUMNS)[:rows],
        int(state[scan.STATE_POSITION]),
        found,
    )


def _damage(path: Path, position: int, found: int) -> DamagedLog:
    if found in (status.OK, status.INCOMPLETE):
        return DamagedLog(f"{path}: the batch at byte {position} is cut off")
    return DamagedLog(f"{path}: {status.error_for(found, f'byte {position}')}")
