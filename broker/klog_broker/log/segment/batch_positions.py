"""Finds the positions of batches in a .log file from the headers of the batches."""

from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from klog_broker.log.errors import DamagedLog
from pyspark_klog.ids import Offset
from pyspark_klog.records.layout import (
    LEGACY_TIMESTAMP_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MAGIC_V2,
    MAX_TIMESTAMP_AT,
    RECORD_COUNT_AT,
    UP_TO_MAGIC_BYTES,
)

# The start of a v2 batch, up to the last offset delta: base offset, length, leader epoch, magic,
# CRC, attributes, last offset delta.
_BATCH_START = Struct(">qiibIhi")
BATCH_START_BYTES = _BATCH_START.size
HEADER_SEARCH_BYTES = 8192
"""The size of one read while searching for batch headers."""


class BatchPosition(NamedTuple):
    """The position, size and offsets of a stored batch, or of a message of format 0 or 1."""

    position: int
    size_bytes: int
    base_offset: Offset  # For a compressed message of format 0 or 1, the offset of its last record.
    last_offset: Offset


class AppendedBatch(NamedTuple):
    """The fields of a written batch that Segment.commit needs to update size and indexes."""

    size_bytes: int
    first_offset: Offset
    end_offset: Offset
    max_timestamp_ms: int


def max_timestamp_of(header: bytes) -> int:
    """Return the largest timestamp in a batch's header, in ms; -1 if the format has none."""
    magic = header[MAGIC_AT]
    if magic == 0:
        return -1
    at = MAX_TIMESTAMP_AT if magic == MAGIC_V2 else LEGACY_TIMESTAMP_AT
    return int.from_bytes(header[at : at + 8], "big", signed=True)


def has_records(header: bytes) -> bool:
    """Whether the batch with this header has records; compaction can remove all records."""
    if header[MAGIC_AT] != MAGIC_V2:
        return True
    return any(header[RECORD_COUNT_AT : RECORD_COUNT_AT + 4])


def parse_batch_position(
    window: bytes, at: int, position: int, end: int, path: Path
) -> BatchPosition:
    """Return the batch at ``position`` of a file that ends at ``end``. ``window[at:]`` has the
    bytes from ``position`` on. Raises DamagedLog if these bytes cannot be a batch."""
    seen = len(window) - at
    if seen < _BATCH_START.size and (seen < UP_TO_MAGIC_BYTES or window[at + MAGIC_AT] == MAGIC_V2):
        raise DamagedLog(f"{path}: no batch at byte {position}")
    magic = window[at + MAGIC_AT]
    if magic == MAGIC_V2:
        base_offset, length, _, _, _, _, delta = _BATCH_START.unpack_from(window, at)
    else:
        base_offset = int.from_bytes(window[at : at + 8], "big", signed=True)
        length = int.from_bytes(window[at + 8 : at + 12], "big", signed=True)
        delta = 0
    size_bytes = LOG_OVERHEAD_BYTES + length
    if not LOG_OVERHEAD_BYTES < size_bytes <= end - position or magic > MAGIC_V2:
        raise DamagedLog(
            f"{path}: the batch at byte {position} has {size_bytes} bytes and magic {magic}, "
            f"{end - position} bytes are left in the file; run `klog verify` to find the damage"
        )
    return BatchPosition(position, size_bytes, base_offset, base_offset + delta)


def iterate_batches(
    look: Callable[[int, int], bytes], position: int, stop: int, end: int, path: Path
) -> Iterator[BatchPosition]:
    """Iterate over the batches of a file that start in ``[position, stop)``. A batch must start at
    ``position``; the file ends at ``end``. Raises DamagedLog at bytes that cannot be a batch.

    ``look(position, size)`` must return the bytes of the file at ``position``, fewer than ``size``
    at the file's end. Errors of ``look`` are passed on.
    """
    window_at, window = position, b""
    while position < stop:
        at = position - window_at
        if at + _BATCH_START.size > len(window):
            window = look(position, HEADER_SEARCH_BYTES)
            window_at, at = position, 0
        place = parse_batch_position(window, at, position, end, path)
        yield place
        position += place.size_bytes
