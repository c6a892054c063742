"""Finds the next readable batch after damaged bytes of a log. If there is one, the damage is a hole
inside the log; if not, the log's last write may be incomplete."""

import numpy as np
import numpy.typing as npt

from pyspark_klog.records import layout as at
from pyspark_klog.records.checksums import crc32c
from pyspark_klog.storage.indexes import MAX_RELATIVE_OFFSET
from pyspark_klog.storage.partition_files import ReadOnlyFile

_CHUNK_BYTES = 1 << 20
# The most bytes for which CRCs are computed in one search: a file may be full of bytes that look
# like headers of large batches, but are not.
_MOST_CRC_BYTES = 64 << 20


def next_good_batch(file: ReadOnlyFile, position: int, end: int, base_offset: int) -> int | None:
    """Return the first position from ``position`` on, before ``end``, with a whole v2 batch whose
    CRC is right and whose base offset can be in the segment with ``base_offset``; None if there is
    no such batch. A batch that is larger than the rest of _MOST_CRC_BYTES is skipped."""
    left = _MOST_CRC_BYTES
    overlap = at.BATCH_HEADER_BYTES - 1
    while end - position >= at.BATCH_HEADER_BYTES:
        data = file.read_at(position, min(_CHUNK_BYTES + overlap, end - position))
        if len(data) < at.BATCH_HEADER_BYTES:
            return None
        for place, size in _candidates(data, end - position, base_offset):
            if size > left:
                continue
            left -= size
            if _is_good(file, position + place, size):
                return position + place
        position += len(data) - overlap
    return None


def _candidates(data: bytes, available: int, base_offset: int) -> list[tuple[int, int]]:
    """Return positions in ``data`` of plausible batch headers, with the batch sizes in them."""
    octets = np.frombuffer(data, np.uint8)
    places = np.flatnonzero(
        octets[at.MAGIC_AT : len(octets) - (at.BATCH_HEADER_BYTES - at.MAGIC_AT - 1)] == at.MAGIC_V2
    )
    sizes = _numbers(octets, places + at.SIZE_AT, 4) + at.LOG_OVERHEAD_BYTES
    offsets = _numbers(octets, places + at.OFFSET_AT, 8)
    fits = (sizes >= at.BATCH_HEADER_BYTES) & (sizes <= available - places)
    fits &= (offsets >= base_offset) & (offsets - base_offset <= MAX_RELATIVE_OFFSET)
    return list(zip(places[fits].tolist(), sizes[fits].tolist(), strict=True))


def _numbers(
    octets: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], size: int
) -> npt.NDArray[np.int64]:
    """Return the big-endian numbers of ``size`` bytes at these positions; 4-byte numbers are
    unsigned."""
    result = np.zeros(len(places), np.int64)
    for number in range(size):
        result = (result << 8) | octets[places + number]
    return result


def _is_good(file: ReadOnlyFile, position: int, size: int) -> bool:
    computed, place, end = 0, position + at.CRC_START_AT, position + size
    stored = at.UINT32.unpack(file.read_at(position + at.CRC_AT, 4))[0]
    while place < end:
        piece = file.read_at(place, min(_CHUNK_BYTES, end - place))
        if not piece:
            return False
        computed = crc32c(piece, computed)
        place += len(piece)
    return bool(computed == stored)
