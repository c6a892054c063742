"""Reads the entries of a .log file (batches, or v0 and v1 messages) one by one, and continues after
damage.

This module reads in Python, batch by batch, for printing. `segment_scan.py` scans whole logs in
compiled kernels.
"""

from collections.abc import Iterator
from typing import NamedTuple

from klog_broker.inspection.next_batch import next_good_batch
from pyspark_klog.records import layout as at
from pyspark_klog.records.checksums import crc32, crc32c
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.record_sets import Entry, EntryHead, entry_at, read_entry_head
from pyspark_klog.storage.partition_files import ReadOnlyFile

MAX_ENTRY_BYTES = 64 << 20
"""The largest batch that is read into memory. Larger batches are described by their headers only,
so that a damaged length field cannot make the program allocate much memory."""
_CHUNK_BYTES = 1 << 20
_MOST_BAD_PLACES = 100


class StoredEntry(NamedTuple):
    """A batch, or a v0 or v1 message, at a position in a .log file."""

    position: int
    head: EntryHead
    header: bytes
    """The entry's first 61 bytes, or the whole entry if it is shorter."""
    entry: Entry | None
    """A view of the batch or message; None if it is larger than MAX_ENTRY_BYTES, or if the key and
    value of a v0 or v1 message do not fill the message exactly."""
    is_valid: bool
    """Whether the entry's CRC matches its bytes."""
    error: str | None
    """Why ``entry`` is None."""


class BadBytes(NamedTuple):
    """Bytes that are not an entry (a batch or message), up to the next good entry or the file's
    end."""

    position: int
    size_bytes: int
    text: str
    is_tail: bool
    """Whether no readable batch was found after these bytes."""
    is_zeros: bool


def stored_entries(file: ReadOnlyFile, base_offset: int) -> Iterator[StoredEntry | BadBytes]:
    """Yield the entries of a segment's .log file (batches, or messages of formats v0 and v1) in
    order. An entry with a wrong CRC is yielded, too, if its length is plausible. Unreadable bytes
    are yielded as BadBytes: they end at the next v2 batch with a right CRC, or at the end of the
    file. The last of at most _MOST_BAD_PLACES such places extends to the end of the file."""
    end = file.size()
    position = bad_places = 0
    while position < end:
        found = _entry(file, position, end)
        if isinstance(found, StoredEntry):
            yield found
            position += found.head.size_bytes
            continue
        bad_places += 1
        behind = None
        if bad_places < _MOST_BAD_PLACES:
            behind = next_good_batch(file, position + 1, end, base_offset)
        stop = end if behind is None else behind
        yield BadBytes(
            position, stop - position, found, behind is None, is_all_zeros(file, position, stop)
        )
        position = stop


def _entry(file: ReadOnlyFile, position: int, end: int) -> StoredEntry | str:
    """Return the entry (a batch or message) at ``position`` in the file, or the reason why there is
    none."""
    header = file.read_at(position, min(at.BATCH_HEADER_BYTES, end - position))
    try:
        head = read_entry_head(header)
    except CorruptRecords as error:
        return _without_place(error)
    if head.size_bytes > end - position:
        return f"the batch is cut off: {end - position} of its {head.size_bytes} bytes are left"
    header = header[: head.size_bytes]
    if head.size_bytes > MAX_ENTRY_BYTES:
        text = f"not decoded: the batch has {head.size_bytes} bytes, the limit is {MAX_ENTRY_BYTES}"
        is_valid = has_right_crc(file, position, head, header)
        return StoredEntry(position, head, header, None, is_valid, text)
    data = file.read_at(position, head.size_bytes)
    if len(data) < head.size_bytes:
        return "the batch is cut off: the file has become shorter"
    try:
        entry = entry_at(data)
    except CorruptRecords as error:
        is_valid = has_right_crc(file, position, head, header)
        return StoredEntry(position, head, header, None, is_valid, _without_place(error))
    return StoredEntry(position, head, header, entry, entry.is_crc_valid(), None)


def _without_place(error: CorruptRecords) -> str:
    """Return the error's text without "at byte 0": that is the position in a buffer that begins
    with the entry, not the position in the file."""
    return str(error).replace(" at byte 0", "", 1)


def has_right_crc(file: ReadOnlyFile, position: int, head: EntryHead, header: bytes) -> bool:
    """Return whether an entry, a batch or message of any size, has the right CRC; reads the entry
    piece by piece."""
    is_v2 = head.magic == at.MAGIC_V2
    covered = at.CRC_START_AT if is_v2 else at.LEGACY_CRC_START_AT
    stored = at.UINT32.unpack_from(header, at.CRC_AT if is_v2 else at.LEGACY_CRC_AT)[0]
    place, stop, computed = position + covered, position + head.size_bytes, 0
    while place < stop:
        piece = file.read_at(place, min(_CHUNK_BYTES, stop - place))
        if not piece:
            return False
        computed = (crc32c if is_v2 else crc32)(piece, computed)
        place += len(piece)
    return bool(computed == stored)


def is_all_zeros(file: ReadOnlyFile, start: int, end: int) -> bool:
    """Return whether all bytes from ``start`` to ``end`` (exclusive) are zeros: preallocated space,
    or pages that were never written to disk."""
    place = start
    while place < end:
        piece = file.read_at(place, min(_CHUNK_BYTES, end - place))
        if not piece or any(piece.lstrip(b"\0")):
            return not piece
        place += len(piece)
    return True
