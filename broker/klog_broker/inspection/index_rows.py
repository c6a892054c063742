"""The lines of the files beside a segment: indexes, aborted transactions, producer snapshots."""

from collections.abc import Iterator
from pathlib import Path

from klog_broker.inspection.lines import Finding, Level, Row
from klog_broker.inspection.log_rows import optional_long
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import add_to_sequence
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.sets import look
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.indexes import (
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    OffsetIndexEntry,
    TimeIndexEntry,
)
from pyspark_klog.storage.names import Suffix, segment_file_name
from pyspark_klog.storage.partition_files import IndexSearch, ReadCounter, ReadOnlyFile
from pyspark_klog.storage.producer_snapshot import (
    ENTRY as SNAPSHOT_ENTRY,
)
from pyspark_klog.storage.producer_snapshot import (
    HEADER as SNAPSHOT_HEADER,
)
from pyspark_klog.storage.producer_snapshot import decode_producer_snapshot
from pyspark_klog.storage.transaction_index import (
    ENTRY as ABORTED_ENTRY,
)
from pyspark_klog.storage.transaction_index import VERSION, decode_transaction_index

_ROWS_AT_ONCE = 4_096
MAX_SNAPSHOT_BYTES = 64 << 20
"""More than a million producers: a larger file is none."""
_MOST_STEPS = 100_000


def offset_index_rows(file: ReadOnlyFile, base: int) -> Iterator[Row | Finding]:
    """Each row, and what is wrong with it: rows rise, and each gives a batch's start and end."""
    log = _open_beside(file.path, base, Suffix.LOG)
    last = OffsetIndexEntry(base, 0)  # type: ignore[arg-type]
    try:
        for number, (relative, position) in enumerate(_rows(file, OFFSET_INDEX_ENTRY.size)):
            entry = OffsetIndexEntry(base + relative, position)  # type: ignore[arg-type]
            yield Row(
                "index",
                {"offset": entry.offset, "position": position},
                f"offset: {entry.offset} position: {position}",
            )
            wrong = None
            if entry.offset <= last.offset or position <= last.position:
                wrong = f"it does not rise: before it is offset {last.offset} at {last.position}"
            elif log is not None:
                wrong = _misfit(log, entry)
            if wrong is not None:
                text = f"row {number} says offset {entry.offset} at {position}: {wrong}"
                yield Finding(Level.ERROR, file.path, text, number * OFFSET_INDEX_ENTRY.size)
            last = entry
        if last.position == 0:
            yield Row("empty", {}, f"{file.path} is empty.")
    finally:
        if log is not None:
            log.close()
    yield from _odd_bytes(file, OFFSET_INDEX_ENTRY.size)


def _misfit(log: ReadOnlyFile, entry: OffsetIndexEntry) -> str | None:
    """What is wrong with an index row, by the batch that it points to."""
    head = _last_offset(log, entry.position)
    if head is None:
        return "no batch begins there"
    last_offset, base_offset, _ = head
    if last_offset == entry.offset:
        return None
    if base_offset <= entry.offset and _ends_a_later_batch(log, entry):
        return None  # several batches were appended at once: by a follower, or by the cleaner
    return f"the batch there ends with offset {last_offset}"


def _ends_a_later_batch(log: ReadOnlyFile, entry: OffsetIndexEntry) -> bool:
    position = entry.position
    for _ in range(_MOST_STEPS):
        found = _last_offset(log, position)
        if found is None or found[0] >= entry.offset:
            return found is not None and found[0] == entry.offset
        position += found[2]
    return False


def _last_offset(log: ReadOnlyFile, position: int) -> tuple[int, int, int] | None:
    """Last and first offset and size of the batch that begins there; None if none does."""
    if not 0 <= position < log.size():
        return None
    header = log.read_at(position, at.LAST_OFFSET_DELTA_AT + 4)
    try:
        head = look(header)
    except CorruptRecords:
        return None
    if head.magic != at.MAGIC_V2:
        return head.offset, head.offset, head.size_bytes
    if len(header) < at.LAST_OFFSET_DELTA_AT + 4:
        return None
    delta = at.INT32.unpack_from(header, at.LAST_OFFSET_DELTA_AT)[0]
    return head.offset + delta, head.offset, head.size_bytes


def time_index_rows(file: ReadOnlyFile, base: int) -> Iterator[Row | Finding]:
    """Each row, and what is wrong with it: timestamps rise, and each is that of its batch."""
    log = _open_beside(file.path, base, Suffix.LOG)
    index = _open_beside(file.path, base, Suffix.OFFSET_INDEX)
    last = TimeIndexEntry(-1, base)  # type: ignore[arg-type]
    try:
        for number, (timestamp_ms, relative) in enumerate(_rows(file, TIME_INDEX_ENTRY.size)):
            offset = base + relative
            yield Row(
                "timeindex",
                {"timestamp": timestamp_ms, "offset": offset},
                f"timestamp: {timestamp_ms} offset: {offset}",
            )
            wrong = None
            if timestamp_ms <= last.timestamp_ms or offset < last.offset:
                wrong = f"it does not rise: before it is {last.timestamp_ms} at {last.offset}"
            elif log is not None:
                wrong = _time_misfit(log, index, base, timestamp_ms, offset)
            if wrong is not None:
                text = f"row {number} says timestamp {timestamp_ms} at offset {offset}: {wrong}"
                yield Finding(Level.ERROR, file.path, text, number * TIME_INDEX_ENTRY.size)
            last = TimeIndexEntry(timestamp_ms, offset)  # type: ignore[arg-type]
    finally:
        for each in (log, index):
            if each is not None:
                each.close()
    yield from _odd_bytes(file, TIME_INDEX_ENTRY.size)


def _time_misfit(
    log: ReadOnlyFile, index: ReadOnlyFile | None, base: int, timestamp_ms: int, offset: int
) -> str | None:
    position = 0 if index is None else IndexSearch(index, base).lookup(offset).position
    if _last_offset(log, position) is None:
        position = 0
    for _ in range(_MOST_STEPS):
        found = _last_offset(log, position)
        if found is None:
            return "the log has no such offset"
        last_offset, base_offset, size_bytes = found
        if last_offset >= offset:
            largest_ms = _largest_timestamp(log, position)
            if base_offset > offset or largest_ms != timestamp_ms:
                return f"the batch up to offset {last_offset} has timestamp {largest_ms}"
            return None
        position += size_bytes
    return None


def _largest_timestamp(log: ReadOnlyFile, position: int) -> int:
    header = log.read_at(position, at.BATCH_HEADER_BYTES)
    magic = header[at.MAGIC_AT]
    if magic == at.MAGIC_V0:
        return at.NO_TIMESTAMP_MS
    where = at.MAX_TIMESTAMP_AT if magic == at.MAGIC_V2 else at.LEGACY_TIMESTAMP_AT
    return int(at.INT64.unpack_from(header.ljust(at.BATCH_HEADER_BYTES, b"\0"), where)[0])


def _rows(file: ReadOnlyFile, row_bytes: int) -> Iterator[tuple[int, int]]:
    """The rows up to the first of zeros: behind it is room that is kept."""
    form = OFFSET_INDEX_ENTRY if row_bytes == OFFSET_INDEX_ENTRY.size else TIME_INDEX_ENTRY
    position = 0
    while True:
        data = file.read_at(position, _ROWS_AT_ONCE * row_bytes)
        data = data[: len(data) - len(data) % row_bytes]
        if not data:
            return
        for first, second in form.iter_unpack(data):
            if not first and not second:
                return
            yield first, second
        position += len(data)


def _odd_bytes(file: ReadOnlyFile, row_bytes: int) -> Iterator[Finding]:
    left = file.size() % row_bytes
    if left:
        text = f"{left} bytes are left behind the last row of {row_bytes}"
        yield Finding(Level.ERROR, file.path, text, file.size() - left)


def _open_beside(path: Path, base: int, suffix: Suffix) -> ReadOnlyFile | None:
    try:
        return ReadOnlyFile(path.with_name(segment_file_name(base, suffix)), ReadCounter())
    except FileNotFoundError:
        return None


# --- aborted transactions, producers --------------------------------------------------------------
def transaction_index_rows(file: ReadOnlyFile) -> Iterator[Row | Finding]:
    """The aborted transactions that end in a segment."""
    position = 0
    while data := file.read_at(position, _ROWS_AT_ONCE * ABORTED_ENTRY.size):
        try:
            entries = decode_transaction_index(data)
        except StorageFormatError as error:
            yield Finding(Level.ERROR, file.path, str(error), position)
            return
        for entry in entries:
            yield Row(
                "txnindex",
                {
                    "version": VERSION,
                    "producerId": entry.producer_id,
                    "firstOffset": entry.first_offset,
                    "lastOffset": entry.last_offset,
                    "lastStableOffset": entry.last_stable_offset,
                },
                f"version: {VERSION} producerId: {entry.producer_id} firstOffset: "
                f"{entry.first_offset} lastOffset: {entry.last_offset} lastStableOffset: "
                f"{entry.last_stable_offset}",
            )
        position += len(data)
    yield from _odd_bytes(file, ABORTED_ENTRY.size)


def snapshot_rows(file: ReadOnlyFile) -> Iterator[Row | Finding]:
    """The producers of a snapshot. Of each the last batch, if it has one."""
    if file.size() > MAX_SNAPSHOT_BYTES:
        text = f"{file.size()} bytes are too many for a producer snapshot"
        yield Finding(Level.ERROR, file.path, text)
        return
    data = file.read_at(0, file.size())
    try:
        entries = decode_producer_snapshot(data)
    except StorageFormatError as error:
        yield Finding(Level.ERROR, file.path, str(error))
        return
    assert len(data) == SNAPSHOT_HEADER.size + len(entries) * SNAPSHOT_ENTRY.size
    for entry in entries:
        began = entry.current_transaction_first_offset
        fields: dict[str, object] = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": began if began >= 0 else None,
            "lastTimestamp": entry.timestamp_ms,
        }
        if entry.last_sequence >= 0:
            delta = entry.offset_delta
            fields |= {
                "firstSequence": add_to_sequence(entry.last_sequence, -delta),
                "lastSequence": entry.last_sequence,
                "lastOffset": entry.last_offset,
                "offsetDelta": delta,
                "timestamp": entry.timestamp_ms,
            }
        words = (
            f"{name}: {optional_long(value) if name == 'currentTxnFirstOffset' else value}"
            for name, value in fields.items()
        )
        yield Row("snapshot", fields, " ".join(words))
