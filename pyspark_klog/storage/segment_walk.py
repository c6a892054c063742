"""Read the batch headers of a segment's file. From them, indexes and producer snapshots, find the
last stable offset of a log, its aborted transactions, the offsets of timestamps and its valid end.

A table of batches is a numpy array with one row for each batch. records/kernels/scan.py defines its
columns; positions are byte positions in the file.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.kernels import scan
from pyspark_klog.records.kernels.status import FULL, INCOMPLETE, OK, error_for
from pyspark_klog.records.record_sets import EntryHead, entry_at, read_entry_head
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.names import Suffix
from pyspark_klog.storage.partition_files import (
    IndexSearch,
    Listing,
    PartitionFiles,
    ReadOnlyFile,
    TimeIndexSearch,
)
from pyspark_klog.storage.producer_snapshot import decode_producer_snapshot
from pyspark_klog.storage.transaction_index import (
    ENTRY,
    AbortedEntry,
    decode_transaction_index,
)

Table: TypeAlias = npt.NDArray[np.int64]

# The size of one read from a segment's file, without and with a check of the CRCs. If a v2 batch is
# larger, the rest of it is not read, unless its CRC is checked.
_WINDOW_BYTES = 1 << 16
_CRC_WINDOW_BYTES = 1 << 20
_TABLE_ROWS = 4096
_MOST_STEPS = 64


def walk(
    file: ReadOnlyFile, position: int, *, check_crc: bool = False, is_closed: bool = False
) -> Iterator[Table]:
    """Yield tables of the batches in the file, from the batch that starts at ``position`` on.

    The walk ends at preallocated zeros, at a batch that is cut off, or at the end of the file.

    :raises CorruptRecords: if a batch is malformed, or its CRC does not match (with ``check_crc``),
        or it is cut off in a segment that ``is_closed``; all batches before the faulty one have
        been yielded by then
    """
    window = bytearray(_CRC_WINDOW_BYTES if check_crc else _WINDOW_BYTES)
    table = np.empty(_TABLE_ROWS * scan.TABLE_COLUMNS, np.int64)
    state = np.zeros(scan.STATE_FIELDS, np.int64)
    while True:
        with memoryview(window) as view:
            filled = file.read_into(view, position)
        data = np.frombuffer(window, np.uint8)
        start, status = 0, FULL
        while status == FULL:
            status = scan.scan_batches(
                data, start, filled, int(check_crc), len(window), table, state
            )
            found = int(state[scan.STATE_BATCHES])
            start = int(state[scan.STATE_POSITION])
            if found:
                rows = table[: found * scan.TABLE_COLUMNS].reshape(found, -1).copy()
                rows[:, scan.POSITION] += position
                yield rows
        left = filled - start
        del data
        if status not in (OK, INCOMPLETE):
            if not any(window[start : start + at.LOG_OVERHEAD_BYTES]):
                return
            raise error_for(status, f"{file.path}, batch at byte {position + start}")
        position += start
        if start:
            continue
        head = _head(window, left)
        if head is None or head.size_bytes > file.size() - position:
            if is_closed and left:
                raise error_for(INCOMPLETE, f"{file.path}, batch at byte {position}")
            return
        if check_crc or head.magic != at.MAGIC_V2:
            window = bytearray(head.size_bytes)
        else:
            yield _row_of_header(window, position)
            position += head.size_bytes


def _head(window: bytearray, filled: int) -> EntryHead | None:
    """Return the first fields of the batch or message at the start of ``window``, of which only
    ``filled`` bytes were read from the file.

    The result is None if these are fewer bytes than a batch header.
    """
    return read_entry_head(window) if filled >= at.BATCH_HEADER_BYTES else None


def _row_of_header(window: bytearray, position: int) -> Table:
    """Return a table of one row, which describes the batch at ``position`` in the file; ``window``
    begins with the batch's header, but does not hold the whole batch."""
    field = dict(
        zip(
            (name for name, _ in at.BATCH_FIELDS),
            at.BATCH_HEADER.unpack_from(window, 0),
            strict=True,
        )
    )
    row = np.zeros((1, scan.TABLE_COLUMNS), np.int64)
    row[0, scan.POSITION] = position
    row[0, scan.SIZE_BYTES] = at.LOG_OVERHEAD_BYTES + field["batch_length"]
    row[0, scan.MAGIC] = at.MAGIC_V2
    row[0, scan.ATTRIBUTES] = field["attributes"]
    row[0, scan.BASE_OFFSET] = field["base_offset"]
    row[0, scan.LAST_OFFSET] = field["base_offset"] + field["last_offset_delta"]
    row[0, scan.BASE_TIMESTAMP_MS] = field["base_timestamp_ms"]
    row[0, scan.MAX_TIMESTAMP_MS] = field["max_timestamp_ms"]
    row[0, scan.RECORD_COUNT] = field["record_count"]
    row[0, scan.LEADER_EPOCH] = field["partition_leader_epoch"]
    row[0, scan.PRODUCER_ID] = field["producer_id"]
    row[0, scan.PRODUCER_EPOCH] = field["producer_epoch"]
    row[0, scan.BASE_SEQUENCE] = field["base_sequence"]
    return row


# --- the byte range of a segment's file that contains a range of offsets --------------------------
def place_of(
    files: PartitionFiles, file: ReadOnlyFile, base: int, start: int, end: int
) -> tuple[int, int | None]:
    """Return a byte range of a segment with the offsets from ``start`` to ``end`` (exclusive).

    The first position is the start of a batch, at or before the first batch of the range. The
    second position is behind the last batch of the range, or None if the index names no such
    position. If the offset index is missing or wrong, the result is (0, None), the whole file.
    """
    index_file = files.open_if_there(base, Suffix.OFFSET_INDEX)
    if index_file is None:
        return 0, None
    with index_file:
        search = IndexSearch(index_file, base)
        row = search.lookup(start)
        behind = search.position_behind(end - 1)
    if row.position and not _is_batch_of(file, row.position, base, row.offset):
        return 0, None  # a crash may leave an index with wrong rows
    return _step(file, row.position, start), behind


def _is_batch_of(file: ReadOnlyFile, position: int, base: int, last_offset: int) -> bool:
    """Return whether a batch starts at ``position`` with an offset from ``base`` to
    ``last_offset``."""
    data = file.read_at(position, at.UP_TO_MAGIC_BYTES)
    with suppress(CorruptRecords):
        return base <= read_entry_head(data).offset <= last_offset
    return False


def _step(file: ReadOnlyFile, position: int, offset: int) -> int:
    """Return the position after the batches from ``position`` on that end before ``offset``.

    The caller starts to read at the result, so it need not read the skipped batches completely. At
    most _MOST_STEPS batches are skipped. Bytes that are not a complete batch are never skipped, so
    that the caller reads them and reports the fault.
    """
    size = file.size()
    for _ in range(_MOST_STEPS):
        data = file.read_at(position, at.BATCH_HEADER_BYTES)
        if len(data) < at.BATCH_HEADER_BYTES or not any(data[: at.LOG_OVERHEAD_BYTES]):
            return position
        try:
            head = read_entry_head(data)
        except CorruptRecords:
            return position
        if head.size_bytes > size - position:
            return position
        last = head.offset
        if head.magic == at.MAGIC_V2:
            last += at.INT32.unpack_from(data, at.LAST_OFFSET_DELTA_AT)[0]
        if last >= offset:
            return position
        position += head.size_bytes
    return position


# --- open and aborted transactions ----------------------------------------------------------------
def last_stable_offset(
    files: PartitionFiles,
    listing: Listing,
    start: int,
    high_watermark: int,
    *,
    enough: int | None = None,
) -> int:
    """Return the last stable offset of a log that begins at ``start``.

    The last stable offset is the first offset of the oldest transaction that is open at the high
    watermark, or the high watermark if no transaction is open. The newest producer snapshot at or
    below the high watermark lists the transactions that were open at the snapshot's offset; the
    batch headers from that offset on show later changes. If the snapshot alone shows that the last
    stable offset is at least ``enough``, the result is ``enough``, and no header is read.

    :raises FileNotFoundError: if a segment was deleted after ``listing`` was made
    """
    began, position = _open_at_snapshot(files, listing, start, high_watermark)
    if enough is not None and enough <= min([*began.values(), position]):
        return enough
    for base in listing.bases:
        following = listing.after(base)
        if base >= high_watermark or (following is not None and following <= position):
            continue
        with files.open(base) as file:
            at_byte, _ = place_of(files, file, base, max(position, base), high_watermark)
            for rows in walk(file, at_byte):
                _follow(rows, began, position, high_watermark)
                if rows[-1, scan.LAST_OFFSET] >= high_watermark - 1:
                    break
    return max(min([*began.values(), high_watermark]), start)


def _open_at_snapshot(
    files: PartitionFiles, listing: Listing, start: int, high_watermark: int
) -> tuple[dict[int, int], int]:
    """Read the newest readable producer snapshot whose offset is from ``start`` to
    ``high_watermark``, and return the transactions that were open at that offset.

    The result is the first offset of each such transaction, by producer id, and the offset of the
    snapshot. Without such a snapshot the result is ({}, ``start``).
    """
    for offset in reversed(listing.snapshots):
        if not start <= offset <= high_watermark:
            continue
        with suppress(FileNotFoundError, StorageFormatError):
            with files.open(offset, Suffix.PRODUCER_SNAPSHOT) as file:
                entries = decode_producer_snapshot(file.read_at(0, file.size()))
            began = {
                int(entry.producer_id): int(entry.current_transaction_first_offset)
                for entry in entries
                if entry.current_transaction_first_offset >= 0
            }
            return began, offset
    return {}, start


def _follow(rows: Table, began: dict[int, int], start: int, end: int) -> None:
    """Update ``began``, the first offset of each open transaction by producer id, from the
    transactional batches in ``rows`` (one row for each batch) with offsets in ``start`` to ``end``
    (exclusive).

    Batches without records are skipped: the log cleaner emptied them after their transaction had
    ended. The marker may have been removed, too, so the transaction would look open forever.

    A batch that begins before ``start``, but ends at or after ``start``, is included: DeleteRecords
    may have raised the log start offset into the middle of a batch.
    """
    is_transactional = rows[:, scan.ATTRIBUTES] & at.TRANSACTIONAL_BIT != 0
    transactional = rows[is_transactional & (rows[:, scan.RECORD_COUNT] > 0)]
    columns = [scan.PRODUCER_ID, scan.BASE_OFFSET, scan.LAST_OFFSET, scan.ATTRIBUTES]
    for producer_id, base_offset, last_offset, attributes in transactional[:, columns].tolist():
        if last_offset < start or base_offset >= end:
            continue
        if attributes & at.CONTROL_BIT:
            began.pop(producer_id, None)  # only a marker is both transactional and a control batch
        else:
            began.setdefault(producer_id, base_offset)


def aborted_transactions(
    files: PartitionFiles, listing: Listing, start: int, end: int
) -> list[AbortedEntry]:
    """Return the aborted transactions whose offsets, from the first batch to the abort marker,
    overlap the offsets from ``start`` to ``end``.

    ``end`` is exclusive and at most the last stable offset. The result is sorted by last offset.

    :raises FileNotFoundError: if a segment was deleted after ``listing`` was made
    """
    found = []
    first = listing.segment_of(start)
    for base in listing.bases:
        if first is not None and base < first:
            continue
        file = files.open_if_there(base, Suffix.TRANSACTION_INDEX)
        if file is None:
            continue
        with file:
            entries = decode_transaction_index(
                file.read_at(0, file.size() // ENTRY.size * ENTRY.size)
            )
        found += [e for e in entries if e.last_offset >= start and e.first_offset < end]
        if entries and entries[-1].last_stable_offset >= end:
            break
    return sorted(found, key=lambda entry: entry.last_offset)


# --- look-ups by timestamp, and the end offset of a log's valid batches ---------------------------
def offset_at_time(
    files: PartitionFiles, listing: Listing, timestamp_ms: int, start: int, end: int
) -> int | None:
    """Return the offset of the first record whose timestamp is at least ``timestamp_ms``.

    Only records with offsets from ``start`` to ``end`` (exclusive) are considered. The result is
    None if none of them has such a timestamp.

    :raises FileNotFoundError: if a segment was deleted after ``listing`` was made
    """
    for base in listing.bases:
        following = listing.after(base)
        if base >= end or (following is not None and following <= start):
            continue
        from_offset = start
        time_file = files.open_if_there(base, Suffix.TIME_INDEX)
        if time_file is not None:
            with time_file:
                search = TimeIndexSearch(time_file, base)
                largest_ms = search.largest_timestamp_ms()
                if following is not None and largest_ms is not None and largest_ms < timestamp_ms:
                    continue
                from_offset = max(start, search.lookup(timestamp_ms).offset)
        with files.open(base) as file:
            is_closed = following is not None
            found = _first_from(
                files, file, base, timestamp_ms, from_offset, start, end, is_closed=is_closed
            )
        if found is not None:
            return found if found < end else None
    return None


def first_time_from(files: PartitionFiles, listing: Listing, start: int, end: int) -> int | None:
    """Return the timestamp in ms of the first record with an offset from ``start`` to ``end``.

    ``end`` is exclusive. The result is None if the log has no record in that range.

    :raises FileNotFoundError: if a segment was deleted after ``listing`` was made
    """
    for base in listing.bases:
        following = listing.after(base)
        if base >= end or (following is not None and following <= start):
            continue
        with files.open(base) as file:
            position, _ = place_of(files, file, base, start, end)
            for rows in walk(file, position, is_closed=following is not None):
                later = rows[rows[:, scan.LAST_OFFSET] >= start]
                for at_byte, size in later[:, [scan.POSITION, scan.SIZE_BYTES]].tolist():
                    for record in entry_at(file.read_at(at_byte, size)).records():
                        if record.offset >= start:
                            return record.timestamp_ms if record.offset < end else None
    return None


def _first_from(
    files: PartitionFiles,
    file: ReadOnlyFile,
    base: int,
    timestamp_ms: int,
    from_offset: int,
    start: int,
    end: int,
    *,
    is_closed: bool,
) -> int | None:
    position, _ = place_of(files, file, base, from_offset, end)
    for rows in walk(file, position, is_closed=is_closed):
        young = rows[:, scan.MAX_TIMESTAMP_MS] >= timestamp_ms
        young &= rows[:, scan.LAST_OFFSET] >= start
        for at_byte, size in rows[young][:, [scan.POSITION, scan.SIZE_BYTES]].tolist():
            entry = entry_at(file.read_at(at_byte, size))
            if isinstance(entry, BatchView) and entry.base_offset >= end:
                return None
            for record in entry.records():
                if record.timestamp_ms >= timestamp_ms and record.offset >= start:
                    return record.offset
        if rows[-1, scan.LAST_OFFSET] >= end - 1:
            return None
    return None


def whole_end(files: PartitionFiles, listing: Listing, recovery_point: int | None) -> int:
    """Return the end offset of the valid batches of a log that no broker is writing to.

    Batches are checked from the segment that contains the recovery point on: older segments have
    been synced to disk. If the recovery point is None, only the last segment is checked. The log
    ends before the first batch that is cut off, is malformed, has a wrong CRC, or begins below the
    end of the batch before it. When a broker starts, it deletes the batches and segments after that
    end.
    """
    first = listing.bases[-1] if recovery_point is None else listing.segment_of(recovery_point)
    end = listing.bases[0]
    for base in listing.bases:
        if first is not None and base < first:
            continue
        if base < end:
            return end
        end = base
        position = 0
        with files.open(base) as file:
            try:
                for rows in walk(file, 0, check_crc=True):
                    past = rows[:, scan.LAST_OFFSET] + 1
                    falls = np.flatnonzero(rows[:, scan.BASE_OFFSET] < [end, *past[:-1]])
                    if len(falls):
                        return int(past[falls[0] - 1]) if falls[0] else end
                    end = int(past[-1])
                    position = int(rows[-1, scan.POSITION] + rows[-1, scan.SIZE_BYTES])
            except CorruptRecords:
                return end
            if position < file.size():
                return end
    return end
