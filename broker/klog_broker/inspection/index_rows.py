"""The lines that `klog dump-log` prints of a segment's files other than the .log: indexes, aborted
transactions, producer snapshots."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from klog_broker.inspection.lines import Finding, Level, Row, printable
from klog_broker.inspection.log_rows import optional_long
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import add_to_sequence
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.record_sets import read_entry_head
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.indexes import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
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
"""The largest producer snapshot that is read; more than a million producers fit into it. A larger
file is reported as an error."""
_MOST_STEPS = 1_000_000


class _Batch(NamedTuple):
    """The offsets and the size of a batch in the log, from its header."""

    base_offset: int
    last_offset: int
    size_bytes: int


class _SegmentLog:
    """A reader of the segment's log, if it exists, for comparisons with the rows of an index. The
    searches for the rows' batches step from batch to batch at most ``steps_left`` times in all,
    because the rows of a damaged index could make every search long."""

    def __init__(self, path: Path, base: int) -> None:
        self._log = _open_segment_file(path, base, Suffix.LOG)
        self._index = _open_segment_file(path, base, Suffix.OFFSET_INDEX)
        self._base = base
        self._position = 0
        self.steps_left = _MOST_STEPS

    def close(self) -> None:
        for file in (self._log, self._index):
            if file is not None:
                file.close()

    def misfit(self, offset: int, position: int) -> str | None:
        """Return what is wrong with a row of the offset index, compared with the batch at the row's
        position; None if nothing is known to be wrong."""
        if self._log is None:
            return None
        batch = _batch_at(self._log, position)
        if batch is None:
            return "no batch begins there"
        if batch.last_offset == offset or self._ends_a_later_batch(batch, offset, position):
            return None
        return f"the batch there ends with offset {batch.last_offset}"

    def _ends_a_later_batch(self, batch: _Batch, offset: int, position: int) -> bool:
        """Return whether ``offset`` is the last offset of a later batch, or may be, because the
        search has no steps left. The row is then right: for several batches that a Kafka follower
        or Kafka's cleaner appended at once, the index has one row, with the last offset of the last
        batch."""
        assert self._log is not None
        found: _Batch | None = batch
        if offset < batch.base_offset:
            return False
        while found is not None and found.last_offset < offset and self.steps_left:
            self.steps_left -= 1
            position += found.size_bytes
            found = _batch_at(self._log, position)
        return found is not None and (found.last_offset == offset or not self.steps_left)

    def time_misfit(self, timestamp_ms: int, offset: int) -> str | None:
        """Return what is wrong with a row of the time index, compared with the batch that has the
        row's offset; None if nothing is known to be wrong."""
        if self._log is None:
            return None
        if self._index is not None:
            indexed = IndexSearch(self._index, self._base).lookup(offset).position
            if _batch_at(self._log, indexed) is not None:
                self._position = max(self._position, indexed)
        while self.steps_left:
            batch = _batch_at(self._log, self._position)
            if batch is None:
                return "the log has no such offset"
            if batch.last_offset >= offset:
                largest_ms = _largest_timestamp(self._log, self._position)
                if batch.base_offset > offset or largest_ms != timestamp_ms:
                    return f"the batch up to offset {batch.last_offset} has timestamp {largest_ms}"
                return None
            self.steps_left -= 1
            self._position += batch.size_bytes
        return None


def _batch_at(log: ReadOnlyFile, position: int) -> _Batch | None:
    """Return the batch that begins at ``position``; None if no batch begins there."""
    if not 0 <= position < log.size():
        return None
    header = log.read_at(position, at.LAST_OFFSET_DELTA_AT + 4)
    try:
        head = read_entry_head(header)
    except CorruptRecords:
        return None
    if head.magic != at.MAGIC_V2:
        return _Batch(head.offset, head.offset, head.size_bytes)
    if len(header) < at.LAST_OFFSET_DELTA_AT + 4:
        return None
    delta = at.INT32.unpack_from(header, at.LAST_OFFSET_DELTA_AT)[0]
    return _Batch(head.offset, head.offset + delta, head.size_bytes)


def offset_index_rows(file: ReadOnlyFile, base: int) -> Iterator[Row | Finding]:
    """Yield each row of an offset index, and a finding if the row is wrong: offset and position
    must be above those of the row before, and be the last offset and the position of a batch. The
    offset may also be the last offset of a later batch that was appended together with this
    batch."""
    log = _SegmentLog(file.path, base)
    last_offset, last_position = base, 0
    with closing(log):
        for number, (relative, position) in enumerate(_rows(file, OFFSET_INDEX_ENTRY)):
            offset = base + relative
            text = f"offset: {offset} position: {position}"
            yield Row("index", {"offset": offset, "position": position}, text)
            if offset <= last_offset or position <= last_position:
                wrong: str | None = (
                    f"it does not rise above the row before, offset {last_offset} at"
                    f" {last_position}"
                )
            else:
                wrong = log.misfit(offset, position)
            if wrong is not None:
                text = f"row {number} says offset {offset} at {position}: {wrong}"
                yield Finding(Level.ERROR, file.path, text, number * OFFSET_INDEX_ENTRY.size)
            last_offset, last_position = offset, position
    if not last_position:
        yield Row("empty", {}, printable(f"{file.path} is empty."))
    yield from _behind_rows(file, OFFSET_INDEX_ENTRY, log)


def time_index_rows(file: ReadOnlyFile, base: int) -> Iterator[Row | Finding]:
    """Yield each row of a time index, and a finding if the row is wrong: its timestamp must be
    above that of the row before, its offset must not be below that of the row before, and the
    timestamp must be the maximum timestamp of the batch with the row's offset."""
    log = _SegmentLog(file.path, base)
    last_ms, last_offset = -1, base
    with closing(log):
        for number, (timestamp_ms, relative) in enumerate(_rows(file, TIME_INDEX_ENTRY)):
            offset = base + relative
            text = f"timestamp: {timestamp_ms} offset: {offset}"
            yield Row("timeindex", {"timestamp": timestamp_ms, "offset": offset}, text)
            if timestamp_ms <= last_ms or offset < last_offset:
                wrong: str | None = (
                    f"it does not rise above the row before, {last_ms} at {last_offset}"
                )
            else:
                wrong = log.time_misfit(timestamp_ms, offset)
            if wrong is not None:
                text = f"row {number} says timestamp {timestamp_ms} at offset {offset}: {wrong}"
                yield Finding(Level.ERROR, file.path, text, number * TIME_INDEX_ENTRY.size)
            last_ms, last_offset = timestamp_ms, offset
    yield from _behind_rows(file, TIME_INDEX_ENTRY, log)


def _largest_timestamp(log: ReadOnlyFile, position: int) -> int:
    header = log.read_at(position, at.BATCH_HEADER_BYTES)
    magic = header[at.MAGIC_AT]
    if magic == at.MAGIC_V0:
        return at.NO_TIMESTAMP_MS
    where = at.MAX_TIMESTAMP_AT if magic == at.MAGIC_V2 else at.LEGACY_TIMESTAMP_AT
    return int(at.INT64.unpack_from(header.ljust(at.BATCH_HEADER_BYTES, b"\0"), where)[0])


def _rows(file: ReadOnlyFile, form: Struct) -> Iterator[tuple[int, int]]:
    """Yield the rows of an index file, up to the first row of zeros, where preallocated space
    begins."""
    position = 0
    while True:
        data = file.read_at(position, _ROWS_AT_ONCE * form.size)
        data = data[: len(data) - len(data) % form.size]
        if not data:
            return
        for first, second in form.iter_unpack(data):
            if not first and not second:
                return
            yield first, second
        position += len(data)


def _behind_rows(file: ReadOnlyFile, form: Struct, log: _SegmentLog) -> Iterator[Finding]:
    if not log.steps_left:
        text = "not all rows were compared with the log, since they lead too far: use klog verify"
        yield Finding(Level.NOTE, file.path, text)
    yield from _odd_bytes(file, form.size)


def _odd_bytes(file: ReadOnlyFile, row_bytes: int) -> Iterator[Finding]:
    left = file.size() % row_bytes
    if left:
        text = f"{left} bytes are left after the last row of {row_bytes} bytes"
        yield Finding(Level.ERROR, file.path, text, file.size() - left)


def _open_segment_file(path: Path, base: int, suffix: Suffix) -> ReadOnlyFile | None:
    try:
        return ReadOnlyFile(path.with_name(segment_file_name(base, suffix)), ReadCounter())
    except FileNotFoundError:
        return None


# --- transaction index and producer snapshots -----------------------------------------------------
def transaction_index_rows(file: ReadOnlyFile) -> Iterator[Row | Finding]:
    """Yield the rows of a segment's transaction index: the aborted transactions whose markers are
    in the segment."""
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
    """Yield the producers in a producer snapshot, each with the sequence numbers and offsets of its
    last batch, if the snapshot has them."""
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
