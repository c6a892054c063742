"""A chunk of a log without the records that are superseded."""

from collections.abc import Callable
from typing import Any

import numpy as np

from klog_broker.compaction import kernel
from klog_broker.compaction.inflating import Bytes, Chunk, Numbers, as_chunk, inflate, records_error
from klog_broker.compaction.kernel import DROP_RECORDS, KEEP_RECORDS, RETAIN_EMPTY, SET_HORIZON
from klog_broker.compaction.key_map import KeyMap
from klog_broker.compaction.old_formats import Kept, empty_batch, filter_entry
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.compression import codec_of, compress
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

__all__ = ["DROP_RECORDS", "KEEP_RECORDS", "RETAIN_EMPTY", "SET_HORIZON", "ChunkFilter"]


class ChunkFilter:
    """Filters chunks by a map of keys and a verdict on each batch, as Kafka's Cleaner does.

    The verdict is 0, so that each record is looked up, or bits: KEEP_RECORDS, or DROP_RECORDS;
    RETAIN_EMPTY has the header stay if no record does; SET_HORIZON gives the batch a delete horizon
    if it has none and records are kept. A looked-up batch gets one as well when a tombstone stays
    in it; v0 and v1 have none, their tombstones stay if ``keep_old_tombstones``.
    ``max_decompressed_bytes`` bounds what one batch may inflate to.
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
        self._max_decompressed_bytes = max_decompressed_bytes
        self._keep_old_tombstones = keep_old_tombstones
        settings = np.empty(kernel.SETTING_FIELDS, np.int64)
        settings[kernel.SETTING_HASH_LOW] = key_map.hash_key[0]
        settings[kernel.SETTING_HASH_HIGH] = key_map.hash_key[1]
        settings[kernel.SETTING_LATEST_OFFSET] = key_map.latest_offset
        settings[kernel.SETTING_NOW_MS] = now_ms
        # A retention of the largest number is "for ever".
        settings[kernel.SETTING_HORIZON_MS] = min(now_ms + delete_retention_ms, at.INT64_MAX)
        self._settings = settings
        self._latest_offset = key_map.latest_offset
        self._block = np.empty(kernel.BLOCK_WORDS, np.int64)
        self._marks = np.empty(0, np.int64)
        self._state = np.zeros(kernel.STATE_FIELDS, np.int64)
        self.records_read = 0
        self.records_kept = 0
        self.bytes_read = 0
        self.bytes_kept = 0

    def filter_chunk(
        self, data: Buffer | Bytes, table: Numbers, row_count: int, verdicts: Bytes
    ) -> list[memoryview]:
        """What is left of the first ``row_count`` rows of a scan's flat table of ``data``, in
        order, with a verdict for each.

        The map may not change as long as the filter is in use. Raises subclasses of RecordsError
        for rows that are damaged; the filter is then of no more use.
        """
        chunk = as_chunk(data, table, row_count)
        output = _Output(int(chunk.column(SIZE_BYTES).sum()))
        row = 0
        while True:
            status = self._filter_rows(chunk, row, row_count, verdicts, output)
            row = int(self._state[kernel.STATE_ROW])
            if status == NOT_PLAIN:
                kept = self._filter_other(chunk, row, int(verdicts[row]))
                output.append(kept.data)
                self.records_read += kept.records_read
                self.records_kept += kept.records_kept
                self.bytes_read += chunk.field(row, SIZE_BYTES)
                self.bytes_kept += len(kept.data)
                row += 1
            elif status == FULL:
                output.make_room(int(self._state[kernel.STATE_NEEDED_BYTES]))
            elif status == OK:
                return output.pieces()
            else:
                record = int(self._state[kernel.STATE_RECORD])
                raise records_error(status, chunk, row, record)

    def _filter_rows(
        self, chunk: Chunk, row: int, rows_end: int, verdicts: Bytes, output: "_Output"
    ) -> int:
        state = self._state
        state.fill(0)
        state[kernel.STATE_OUT_END] = output.end
        status = kernel.filter_rows(
            chunk.data,
            chunk.table,
            row,
            rows_end,
            verdicts,
            self._settings,
            self._key_map.slots,
            self._block,
            self._marks_for(chunk),
            output.room,
            state,
        )
        output.end = int(state[kernel.STATE_OUT_END])
        self.records_read += int(state[kernel.STATE_RECORDS_READ])
        self.records_kept += int(state[kernel.STATE_RECORDS_KEPT])
        self.bytes_read += int(state[kernel.STATE_BYTES_READ])
        self.bytes_kept += int(state[kernel.STATE_BYTES_KEPT])
        return status

    def _marks_for(self, chunk: Chunk) -> Numbers:
        """Room for a mark for each record of any batch."""
        if not len(chunk.table):
            return self._marks
        # A count that does not fit its batch's bytes is found out before it is used.
        most = len(chunk.data) // at.MIN_RECORD_BYTES
        most = min(most, max(int(chunk.column(RECORD_COUNT).max()), 0))
        if most > len(self._marks):
            self._marks = np.empty(most, np.int64)
        return self._marks

    def _filter_other(self, chunk: Chunk, row: int, verdict: int) -> Kept:
        """A row that the kernel leaves to Python."""
        if chunk.field(row, MAGIC) != at.MAGIC_V2:
            return self._filter_old(chunk, row, verdict)
        inflated = inflate(chunk, row, self._max_decompressed_bytes)
        output = _Output(int(inflated.table[SIZE_BYTES]))
        verdicts = np.array([verdict], np.uint8)
        while (status := self._filter_rows(inflated, 0, 1, verdicts, output)) == FULL:
            output.make_room(int(self._state[kernel.STATE_NEEDED_BYTES]))
        if status != OK:
            raise records_error(status, inflated, 0, int(self._state[kernel.STATE_RECORD]))
        # The kernel has counted bytes that are none of the log's.
        self.bytes_read -= int(self._state[kernel.STATE_BYTES_READ])
        self.bytes_kept -= int(self._state[kernel.STATE_BYTES_KEPT])
        if not self._state[kernel.STATE_BATCHES_CHANGED]:
            return Kept(chunk.entry(row), 0, 0)
        data = b"".join(output.pieces())
        if not self._state[kernel.STATE_RECORDS_KEPT]:
            return Kept(data, 0, 0)
        return Kept(_compressed(data, chunk.field(row, ATTRIBUTES)), 0, 0)

    def _filter_old(self, chunk: Chunk, row: int, verdict: int) -> Kept:
        entry = LegacyView(chunk.data.data, chunk.field(row, POSITION), chunk.end_position(row))
        is_kept: Callable[[Record], bool] = self._is_kept
        if verdict & DROP_RECORDS:
            is_kept = _no_record
        elif verdict & KEEP_RECORDS:
            is_kept = _any_record
        kept = filter_entry(entry, is_kept, self._max_decompressed_bytes)
        if not kept.records_kept and verdict & RETAIN_EMPTY:
            return kept._replace(data=empty_batch(entry))
        return kept

    def _is_kept(self, record: Record) -> bool:
        """The rule for a record of an old format."""
        if record.offset > self._latest_offset:
            return True
        if record.key is None or (record.value is None and not self._keep_old_tombstones):
            return False
        return record.offset >= self._key_map.offset_of(record.key)


def _any_record(_: Record) -> bool:
    return True


def _no_record(_: Record) -> bool:
    return False


def _compressed(batch: bytes, attributes: int) -> bytes:
    """A plain batch with its records compressed as ``attributes`` say."""
    codec = codec_of(attributes)
    section = compress(codec, memoryview(batch)[at.BATCH_HEADER_BYTES :])
    data = bytearray(batch[: at.BATCH_HEADER_BYTES]) + section
    at.INT32.pack_into(data, at.BATCH_LENGTH_AT, len(data) - at.LOG_OVERHEAD_BYTES)
    view = BatchView(data)
    at.INT16.pack_into(data, at.ATTRIBUTES_AT, view.attributes | codec)
    view.update_crc()
    return bytes(data)


class _Output:
    """Room that is filled from the front: one piece as a rule, and another whenever it is full."""

    def __init__(self, size_bytes: int) -> None:
        # Not zeroed, and touched only as far as it is filled.
        self.room: Any = np.empty(size_bytes, np.uint8)
        self.end = 0
        self._full: list[memoryview] = []

    def make_room(self, size_bytes: int) -> None:
        """Have room for so many bytes at once, and for as many as there was room for."""
        self._close()
        self.room = np.empty(max(size_bytes, len(self.room)), np.uint8)

    def append(self, data: Buffer) -> None:
        if len(data) > len(self.room) - self.end:
            self.make_room(len(data))
        self.room[self.end : self.end + len(data)] = np.frombuffer(data, np.uint8)
        self.end += len(data)

    def pieces(self) -> list[memoryview]:
        self._close()
        return self._full

    def _close(self) -> None:
        if self.end:
            self._full.append(memoryview(self.room)[: self.end])
        self.end = 0
