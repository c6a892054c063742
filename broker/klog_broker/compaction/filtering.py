"""Filters chunks of a log for the log cleaner: drops the records that later records supersede."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from klog_broker.compaction import kernel
from klog_broker.compaction.decompressed_runs import (
    Bytes,
    Codecs,
    Flags,
    Numbers,
    Runs,
    TableChunk,
    as_chunk,
    records_error,
)
from klog_broker.compaction.kernel import DROP_RECORDS, KEEP_RECORDS, RETAIN_EMPTY, SET_HORIZON
from klog_broker.compaction.key_map import KeyMap
from klog_broker.compaction.old_formats import FilteredEntry, empty_batch, filter_entry
from pyspark_klog.records import layout as at
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.errors import RecordsError
from pyspark_klog.records.kernels.scan import (
    ATTRIBUTES,
    MAGIC,
    POSITION,
    RECORD_COUNT,
    SIZE_BYTES,
)
from pyspark_klog.records.kernels.status import FULL, NOT_PLAIN, OK
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.legacy import LegacyView
from pyspark_klog.records.record import Record

# The first size of the buffer to which the kernel writes batches that it has changed, until they
# are compressed again; the buffer grows if needed.
_PLAIN_BYTES = 1 << 20
_NO_NUMBERS = np.empty(0, np.int64)

__all__ = ["DROP_RECORDS", "KEEP_RECORDS", "RETAIN_EMPTY", "SET_HORIZON", "ChunkFilter"]


class Output:
    """A growing sequence of buffers for filtered batches: each is filled from its front, and a new
    one begins when the present one has no space left."""

    def __init__(self, size_bytes: int) -> None:
        # np.empty does not touch the memory, so parts of the buffer that are never written cost
        # nothing.
        self.buffer: Any = np.empty(size_bytes, np.uint8)
        self.end = 0
        self._full: list[memoryview] = []

    def add_buffer(self, size_bytes: int) -> None:
        """Begin a new buffer with space for ``size_bytes``, and not smaller than the old one."""
        self._close()
        self.buffer = np.empty(max(size_bytes, len(self.buffer)), np.uint8)

    def append(self, parts: Sequence[Buffer]) -> Any:
        """Append the bytes of ``parts``, one after another, to the present buffer or a new one;
        returns these bytes in the buffer as an array."""
        size_bytes = sum(map(len, parts))
        if size_bytes > len(self.buffer) - self.end:
            self.add_buffer(size_bytes)
        written = self.buffer[self.end : self.end + size_bytes]
        buffer = memoryview(self.buffer)
        for part in parts:
            start = self.end
            self.end += len(part)
            buffer[start : self.end] = part
        return written

    def pieces(self) -> list[memoryview]:
        self._close()
        return self._full

    def _close(self) -> None:
        if self.end:
            self._full.append(memoryview(self.buffer)[: self.end])
        self.end = 0


class ChunkFilter:
    """Filters chunks by a map of keys and a verdict on each batch, as Kafka's Cleaner does.

    A verdict has bits. KEEP_RECORDS and DROP_RECORDS apply to all records of the batch. Without
    these two bits, the filter decides on each record by its key in the map, and keeps the records
    after the last offset that the map covers. RETAIN_EMPTY keeps the batch's header if no record
    stays. SET_HORIZON gives the batch a delete horizon if it has none and records stay. A batch
    whose keys are looked up gets a horizon, too, if a tombstone stays. Batches of v0 and v1 have no
    horizon: tombstones whose keys are looked up can stay only if ``keep_old_tombstones``.
    ``max_decompressed_bytes`` limits the size of a decompressed batch.
    """

    def __init__(
        self,
        key_map: KeyMap,
        *,
        now_ms: int,
        delete_retention_ms: int,
        max_decompressed_bytes: int,
        keep_old_tombstones: bool,
    ) -> None:
        self._key_map = key_map
        self._codecs = Codecs(max_decompressed_bytes)
        self._keep_old_tombstones = keep_old_tombstones
        settings = np.empty(kernel.SETTING_FIELDS, np.int64)
        settings[kernel.SETTING_HASH_LOW] = key_map.hash_key[0]
        settings[kernel.SETTING_HASH_HIGH] = key_map.hash_key[1]
        settings[kernel.SETTING_LATEST_OFFSET] = key_map.latest_offset
        settings[kernel.SETTING_NOW_MS] = now_ms
        # With the largest delete.retention.ms, tombstones are kept for ever. Cap the delete horizon
        # of batches, which would not fit into 64 bits.
        settings[kernel.SETTING_HORIZON_MS] = min(now_ms + delete_retention_ms, at.INT64_MAX)
        self._settings = settings
        self._latest_offset = key_map.latest_offset
        self._block = np.empty(kernel.BLOCK_WORDS, np.int64)
        self._marks = np.empty(0, np.int64)
        self._plain: Any = np.empty(0, np.uint8)
        self._state = np.zeros(kernel.STATE_FIELDS, np.int64)
        self.records_read = 0
        self.records_kept = 0
        self.bytes_read = 0
        self.bytes_kept = 0

    def filter_chunk(
        self, data: Buffer | Bytes, table: Numbers, row_count: int, verdicts: Bytes
    ) -> list[memoryview]:
        """Return the filtered bytes of the first ``row_count`` batches of ``data``, in order.

        ``table`` is the flat table that kernels.scan made of ``data``, with a row for each batch;
        ``verdicts`` has a verdict for each row. The map of keys must not change while the filter is
        in use. Raises subclasses of RecordsError for damaged batches; then the filter cannot be
        used any more.
        """
        chunk = as_chunk(data, table, row_count)
        marks = self._marks_for(chunk)
        size_bytes = int(chunk.column(SIZE_BYTES).sum())
        output = Output(size_bytes)
        runs: Runs | None = None
        row = 0
        while True:
            status = self._filter_rows(
                chunk, row, verdicts, marks, _NO_NUMBERS, output.buffer, output.end
            )
            output.end = int(self._state[kernel.STATE_OUT_END])
            row = int(self._state[kernel.STATE_ROW])
            if status == NOT_PLAIN and chunk.field(row, MAGIC) != at.MAGIC_V2:
                kept = self._filter_old(chunk, row, int(verdicts[row]))
                output.append([kept.data])
                self.records_read += kept.records_read
                self.records_kept += kept.records_kept
                row += 1
            elif status == NOT_PLAIN:
                if runs is None:
                    runs = Runs(chunk, _is_needed(chunk, verdicts), self._codecs)
                row += self._filter_run(runs, row, verdicts, output)
            elif status == FULL:
                output.add_buffer(int(self._state[kernel.STATE_NEEDED_BYTES]))
            elif status == OK:
                pieces = output.pieces()
                self.bytes_read += size_bytes
                self.bytes_kept += sum(map(len, pieces))
                return pieces
            else:
                raise self._error(status, chunk)

    def _filter_rows(
        self,
        chunk: TableChunk,
        first: int,
        verdicts: Bytes,
        marks: Numbers,
        sizes: Numbers,
        out: Bytes,
        out_end: int,
    ) -> int:
        """Filter the batches of the rows from ``first`` on. The kernel stops early at a batch that
        does not fit into ``out``, has compressed records that must be read, is of an older format,
        or is damaged.

        Returns the kernel's status, which says why it stopped; STATE_ROW in ``_state`` is the row
        at which it stopped.
        """
        state = self._state
        state.fill(0)
        state[kernel.STATE_OUT_END] = out_end
        status = kernel.filter_rows(
            chunk.data,
            chunk.table,
            first,
            chunk.row_count,
            verdicts,
            self._settings,
            self._key_map.slots,
            self._block,
            marks,
            out,
            sizes,
            state,
        )
        self.records_read += int(state[kernel.STATE_RECORDS_READ])
        self.records_kept += int(state[kernel.STATE_RECORDS_KEPT])
        return status

    def _error(self, status: int, chunk: TableChunk) -> RecordsError:
        row, record = int(self._state[kernel.STATE_ROW]), int(self._state[kernel.STATE_RECORD])
        return records_error(status, chunk, row, record)

    def _marks_for(self, chunk: TableChunk) -> Numbers:
        """Return an array in which kernel.filter_rows marks the records of one batch after another.

        A mark says where the record ends and whether the record is kept. The array is long enough
        for each undamaged batch of ``chunk``, and can be longer, because later chunks reuse it.
        """
        if not len(chunk.table):
            return self._marks
        # A damaged batch may count more records than fit into it. The kernel refuses such a batch
        # before it writes marks, so the array need not have space for this count.
        most = len(chunk.data) // at.MIN_RECORD_BYTES
        most = min(most, max(int(chunk.column(RECORD_COUNT).max()), 0))
        if most > len(self._marks):
            self._marks = np.empty(most, np.int64)
        return self._marks

    def _filter_run(self, runs: Runs, first: int, verdicts: Bytes, output: Output) -> int:
        """Decompress a run of compressed batches into one buffer, and filter them. The run begins
        with row ``first``. Returns the number of rows in the run."""
        run = runs.inflated(first)
        rows = run.row_count
        marks = self._marks_for(run)
        sizes = np.empty(rows, np.int64)
        done = 0
        while done < rows:
            status = self._filter_rows(
                run, done, verdicts[first : first + rows], marks, sizes, self._plain, 0
            )
            if status not in (OK, FULL):
                raise self._error(status, run)
            end = int(self._state[kernel.STATE_ROW])
            self._append(runs, first + done, sizes[done:end].tolist(), output)
            if status == FULL and end == done:
                needed_bytes = int(self._state[kernel.STATE_NEEDED_BYTES])
                self._plain = np.empty(max(needed_bytes, _PLAIN_BYTES), np.uint8)
            done = end
        return rows

    def _append(self, runs: Runs, row: int, sizes: list[int], output: Output) -> None:
        """Append to ``output`` the filtered batches of the rows that begin with ``row``.

        ``sizes`` has a number for each of these rows: UNCHANGED for a batch that is copied from the
        chunk, 0 for a batch that is removed, or the size of a changed batch. The kernel has written
        changed batches to the buffer ``_plain``; their records are compressed again if the chunk
        has them compressed.
        """
        plain = memoryview(self._plain)
        parts: list[Buffer] = []
        seals: list[int] = []
        plain_end = position = 0
        for size_bytes in sizes:
            if size_bytes == kernel.UNCHANGED:
                part: Buffer = runs.entry(row)
                parts.append(part)
                position += len(part)
            elif size_bytes:
                batch = plain[plain_end : plain_end + size_bytes]
                plain_end += size_bytes
                codec = runs.codec(row)
                if size_bytes > at.BATCH_HEADER_BYTES and codec != Codec.NONE:
                    section = self._codecs.compress(codec, batch[at.BATCH_HEADER_BYTES :])
                    parts += (batch[: at.BATCH_HEADER_BYTES], section)
                    size_bytes = at.BATCH_HEADER_BYTES + len(section)
                    seals += (position, size_bytes, codec)
                else:
                    parts.append(batch)
                position += size_bytes
            row += 1
        written = output.append(parts)
        if seals:
            kernel.seal_batches(written, np.array(seals, np.int64))

    def _filter_old(self, chunk: TableChunk, row: int, verdict: int) -> FilteredEntry:
        entry = LegacyView(chunk.data.data, chunk.field(row, POSITION), chunk.end_position(row))
        is_kept: Callable[[Record], bool] = self._is_kept
        if verdict & DROP_RECORDS:
            is_kept = _no_record
        elif verdict & KEEP_RECORDS:
            is_kept = _any_record
        kept = filter_entry(entry, is_kept, self._codecs.max_bytes)
        if not kept.records_kept and verdict & RETAIN_EMPTY:
            return kept._replace(data=empty_batch(entry))
        return kept

    def _is_kept(self, record: Record) -> bool:
        """Whether a record of format v0 or v1 stays in the log. A record after the last offset that
        the map of keys covers stays. An earlier record stays if it has a key, the map has no later
        record of this key, and it is no tombstone that is old enough to be removed."""
        if record.offset > self._latest_offset:
            return True
        if record.key is None or (record.value is None and not self._keep_old_tombstones):
            return False
        return record.offset >= self._key_map.offset_of(record.key)


def _any_record(_: Record) -> bool:
    return True


def _no_record(_: Record) -> bool:
    return False


def _is_needed(chunk: TableChunk, verdicts: Bytes) -> Flags:
    """Return a flag for each batch of the chunk: whether the kernel must read the batch's records,
    to decide which of them stay, or to change their timestamp deltas for a new delete horizon."""
    has_horizon = chunk.column(ATTRIBUTES) & at.DELETE_HORIZON_BIT != 0
    verdicts = verdicts[: chunk.row_count]
    sets_horizon = (verdicts & SET_HORIZON != 0) & ~has_horizon
    is_judged = (verdicts & DROP_RECORDS != 0) | ((verdicts & KEEP_RECORDS != 0) & ~sets_horizon)
    found: Flags = (chunk.column(RECORD_COUNT) != 0) & ~is_judged
    return found
