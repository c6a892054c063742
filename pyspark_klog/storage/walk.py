"""A walk over the batches of a segment's file, by the records' scan kernel; what they say of a log.

Tables have the columns of records/kernels/scan.py, one row a batch, with positions in the file.
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
from pyspark_klog.records.sets import EntryHead, entry_at, look
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

# Larger batches are stepped over by their headers, unless their CRC is wanted.
_WINDOW_BYTES = 1 << 16
_CRC_WINDOW_BYTES = 1 << 20
_TABLE_ROWS = 4096
_MOST_STEPS = 64


def walk(
    file: ReadOnlyFile, position: int, *, check_crc: bool = False, is_closed: bool = False
) -> Iterator[Table]:
    """The batches from the one that starts at ``position`` on, in tables; up to zeros (room that is
    kept), to a batch that is cut off, or to the file's end.

    :raises CorruptRecords: at what is no batch, or not what its CRC says, after those before it;
        of a segment that ``is_closed`` also at a batch that is cut off
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
    """The head of the entry that the window begins with, if that much of it is there."""
    return look(window) if filled >= at.BATCH_HEADER_BYTES else None


def _row_of_header(window: bytearray, position: int) -> Table:
    """The row of a batch of which the window has the header only."""
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


# --- where to begin and to end --------------------------------------------------------------------
def place_of(
    files: PartitionFiles, file: ReadOnlyFile, base: int, start: int, end: int
) -> tuple[int, int | None]:
    """Where in a segment the batches of the offsets from ``start`` up to ``end`` (exclusive) lie.

    The first position is that of a batch, at or before the wanted ones; the second is behind them,
    as near as the index knows (None: it does not). Without a usable index: all of the file.
    """
    index_file = files.open_if_there(base, Suffix.OFFSET_INDEX)
    if index_file is None:
        return 0, None
    with index_file:
        search = IndexSearch(index_file, base)
        row = search.lookup(start)
        behind = search.position_behind(end - 1)
    if row.position and not _is_batch_of(file, row.position, base, row.offset):
        return 0, None  # nonsense, as a crash may leave it
    return _step(file, row.position, start), behind


def _is_batch_of(file: ReadOnlyFile, position: int, base: int, last_offset: int) -> bool:
    """Whether a batch with offsets from ``base`` to ``last_offset`` can start there."""
    data = file.read_at(position, at.UP_TO_MAGIC_BYTES)
    with suppress(CorruptRecords):
        return base <= look(data).offset <= last_offset
    return False


def _step(file: ReadOnlyFile, position: int, offset: int) -> int:
    """Step over batches that end before ``offset``, some at most: they are not worth reading. Not
    over what is no whole batch: whoever reads from there says so."""
    size = file.size()
    for _ in range(_MOST_STEPS):
        data = file.read_at(position, at.BATCH_HEADER_BYTES)
        if len(data) < at.BATCH_HEADER_BYTES or not any(data[: at.LOG_OVERHEAD_BYTES]):
            return position
        try:
            head = look(data)
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


# --- transactions ---------------------------------------------------------------------------------
def last_stable_offset(
    files: PartitionFiles,
    listing: Listing,
    start: int,
    high_watermark: int,
    *,
    enough: int | None = None,
) -> int:
    """The first offset of the oldest transaction that is open at the high watermark, else that.

    The newest producer snapshot at or before the high watermark has those that were open then; from
    there on headers are followed. ``start`` is where the log begins. If the snapshot alone tells
    that all is stable before ``enough``, that is the answer and no header is read.

    :raises FileNotFoundError: if a segment has gone meanwhile: list again
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
    """First offsets of open transactions by producer, and the offset before which that holds."""
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
    """Let the transactional batches of a table change what is open. Those that compaction emptied
    are of transactions that have ended; their markers may be gone. The batch that a log starts in
    counts whole: DeleteRecords may have raised the start into it."""
    is_transactional = rows[:, scan.ATTRIBUTES] & at.TRANSACTIONAL_BIT != 0
    transactional = rows[is_transactional & (rows[:, scan.RECORD_COUNT] > 0)]
    columns = [scan.PRODUCER_ID, scan.BASE_OFFSET, scan.LAST_OFFSET, scan.ATTRIBUTES]
    for producer_id, base_offset, last_offset, attributes in transactional[:, columns].tolist():
        if last_offset < start or base_offset >= end:
            continue
        if attributes & at.CONTROL_BIT:
            began.pop(producer_id, None)  # a marker: nothing else is both
        else:
            began.setdefault(producer_id, base_offset)


def aborted_transactions(
    files: PartitionFiles, listing: Listing, start: int, end: int
) -> list[AbortedEntry]:
    """The aborted transactions with batches from ``start`` up to ``end`` (exclusive, at most the
    last stable offset), by their ends.

    :raises FileNotFoundError: if a segment has gone meanwhile: list again
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


# --- by time, and by what is whole ----------------------------------------------------------------
def offset_at_time(
    files: PartitionFiles, listing: Listing, timestamp_ms: int, start: int, end: int
) -> int | None:
    """The first record from ``start`` up to ``end`` (exclusive) that is not before the timestamp.

    :raises FileNotFoundError: if a segment has gone meanwhile: list again
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
    """The timestamp of the first record from offset ``start`` up to ``end`` (exclusive), in ms.

    :raises FileNotFoundError: if a segment has gone meanwhile: list again
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
    """The offset behind the last whole batch of a log that nobody writes to.

    Checked is from the recovery point's segment on, before which all is whole (None: the last one
    only): the log ends with the first batch that is cut off, has another CRC than it says, or an
    offset that does not rise; what follows it, later segments too, a broker would drop.
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
