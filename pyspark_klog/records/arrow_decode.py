"""Decodes the batches of Fetch responses or segment files to Arrow RecordBatches."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_klog.records import layout as at
from pyspark_klog.records.aborted_transactions import AbortedFilter
from pyspark_klog.records.arrow_columns import (
    DEFAULT_COLUMNS,
    MAX_COLUMN_BYTES,
    ColumnBuffers,
    repeated,
    schema_for,
    wanted_bits,
)
from pyspark_klog.records.arrow_legacy import LegacyRows
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.kernels import batch_decoding, scan
from pyspark_klog.records.kernels.status import (
    BAD_CRC,
    FULL,
    INCOMPLETE,
    OK,
    TIMESTAMP_NOT_IN_MICROSECONDS,
    error_for,
)
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.legacy import LegacyView

Table: TypeAlias = npt.NDArray[np.int64]

# A scan, which reads the batch headers and can check the CRCs, lists at most _TABLE_ROWS batches,
# and stops after the batch that reaches _SCAN_BYTES, so that the scanned bytes are still in the
# processor's cache when they are decoded. The inflated records of compressed batches are also
# decoded in groups, each of which ends with the batch that reaches _SCAN_BYTES.
_SCAN_BYTES = 1 << 20
_TABLE_ROWS = 4096
_FEWEST_ROWS = 1024  # a margin: added to the estimated number of rows of a RecordBatch

_PLAIN, _COMPRESSED, _LEGACY = range(3)

# Largest timestamp in milliseconds that fits 64 bits in microseconds.
_MAX_TIMESTAMP_MS = (2**63 - 1) // 1000


class ArrowDecoder:
    """Turns the batches of one partition into RecordBatches of bounded size.

    Pass the buffers to :meth:`decode` in order of their offsets; each must begin with a batch. A
    RecordBatch collects records of many batches and buffers: :meth:`decode` yields each full
    RecordBatch, and :meth:`flush` returns the rest. Control records and records outside
    ``start_offset`` <= offset < ``end_offset`` are dropped. Like in Kafka's consumer, records below
    ``next_offset`` that arrive a second time are dropped too. A RecordBatch has at most
    ``max_rows`` rows. Its keys together have at most ``target_bytes`` bytes, or the size of its
    first record if that is larger; the same holds for its values. Messages of formats v0 and v1 are
    listed by a kernel, but decoded by plain Python.

    Raises CorruptRecords for damaged batches (a wrong length, CRC, magic, count or varint),
    InvalidRecords for a malformed wrapper message or control record, UnsupportedCodec,
    DecompressedTooLarge for a batch that inflates to more than ``max_decompressed_bytes``, and
    MalformedTimestamp if the timestamp column is requested and a timestamp in microseconds does not
    fit 64 bits. After an error :meth:`flush` returns the records that were decoded before the
    error, which may lack the last compressed batches before it, because these are inflated in
    groups. Invalid UTF-8 in header keys becomes U+FFFD, like in Kafka's clients.
    """

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        start_offset: int = 0,
        end_offset: int = at.INT64_MAX,
        check_crc: bool = True,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        max_rows: int = 50_000,
        target_bytes: int = 1 << 20,
    ) -> None:
        if max_rows < 1 or not 1 <= target_bytes <= MAX_COLUMN_BYTES:
            raise ValueError(
                f"max_rows is {max_rows}, expected 1 or more; "
                f"target_bytes is {target_bytes}, expected 1 to {MAX_COLUMN_BYTES} bytes"
            )
        self.schema = schema_for(columns)
        self.next_offset = start_offset
        """Offset for the next Fetch: the offset after the last decoded batch, or the larger offset
        that the caller has set with ``start_offset`` or `skip_to`."""
        self.cut_off_bytes = 0
        """Size of the partial batch at the end of the buffer that was decoded last; 0 if that
        buffer ends with a whole batch, or if decoding has reached ``end_offset`` before."""
        self._topic = topic
        self._partition = partition
        self._columns = tuple(columns)
        self._wanted = wanted_bits(columns)
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._check_crc = int(check_crc)
        self._max_decompressed_bytes = max_decompressed_bytes
        self._max_rows = max_rows
        self._target_bytes = target_bytes
        self._buffers: ColumnBuffers | None = None
        self._state = np.zeros(batch_decoding.STATE_FIELDS, np.int64)
        self._legacy = LegacyRows(self._columns, max_rows, target_bytes)
        self._table = np.empty(_TABLE_ROWS * scan.TABLE_COLUMNS, np.int64)
        self._scan_state = np.zeros(scan.STATE_FIELDS, np.int64)
        self._constants: dict[str, pa.Array] = {}

    @property
    def is_done(self) -> bool:
        """Whether ``next_offset`` has reached ``end_offset``: no further Fetch is needed."""
        return self.next_offset >= self._end_offset

    def decode(
        self, buffer: Buffer, aborted: Sequence[tuple[int, int]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Decode one buffer. ``next_offset``, the offset for the next Fetch, advances while the
        caller uses the iterator.

        For read_committed ``aborted`` is the Fetch response's list of aborted transactions, as
        (producer id, first offset). A partial batch at the end of the buffer is no error, and sets
        ``cut_off_bytes``.
        """
        self.cut_off_bytes = 0
        if len(buffer) == 0:
            return
        data = np.frombuffer(buffer, np.uint8)
        filter_ = AbortedFilter(buffer, aborted) if aborted else None
        position = 0
        status = FULL
        while status == FULL and not self.is_done:
            status = scan.scan_batches(
                *(data, position, len(data), self._check_crc, _SCAN_BYTES),
                *(self._table, self._scan_state),
            )
            found = int(self._scan_state[scan.STATE_BATCHES])
            position = int(self._scan_state[scan.STATE_POSITION])
            if found:
                rows = self._table[: found * scan.TABLE_COLUMNS].reshape(found, -1)
                for run in _split_at_overlaps(rows):
                    self._start_offset = max(self._start_offset, self.next_offset)
                    yield from self._decode_rows(buffer, data, run, filter_)
                    next_offset = int(run[-1, scan.LAST_OFFSET]) + 1
                    self.next_offset = max(self.next_offset, next_offset)
        if status == INCOMPLETE:
            self.cut_off_bytes = len(data) - position
        elif status not in (OK, FULL) and not self.is_done:
            raise self._scan_error(buffer, position, status)

    def skip_to(self, offset: int) -> None:
        """Let later calls of :meth:`decode` drop all records below ``offset``.

        ``next_offset`` becomes ``offset``, unless it is already larger.
        """
        self.next_offset = max(self.next_offset, offset)

    def flush(self) -> pa.RecordBatch | None:
        """Return the records since the last full RecordBatch; None without records."""
        if self._legacy.records:
            return self._finish_legacy()
        if self._buffers is None or not self._state[batch_decoding.ROWS]:
            return None
        return self._finish()

    # --- batches of format v2 --------------------------------------------------------------------
    def _decode_rows(
        self,
        buffer: Buffer,
        data: npt.NDArray[np.uint8],
        rows: Table,
        filter_: AbortedFilter | None,
    ) -> Iterator[pa.RecordBatch]:
        in_common = int(self._scan_state[scan.STATE_ATTRIBUTES])
        if (
            filter_ is None
            and rows[0, scan.LAST_OFFSET] >= self._start_offset
            and rows[-1, scan.BASE_OFFSET] < self._end_offset
            and not in_common & (at.CODEC_MASK | at.CONTROL_BIT)
            and not self._scan_state[scan.STATE_LEGACY]
        ):
            # In this usual case (no aborted transactions, and uncompressed v2 batches without
            # control batches, all of which overlap the requested offsets) no batch has to be
            # dropped. The kernel decode_batches drops single records outside the requested offsets.
            yield from self._append(data, rows)
            return
        attributes = rows[:, scan.ATTRIBUTES]
        legacy = rows[:, scan.MAGIC] != at.MAGIC_V2
        keep = rows[:, scan.LAST_OFFSET] >= self._start_offset
        keep &= legacy | (
            (attributes & at.CONTROL_BIT == 0)
            & (rows[:, scan.BASE_OFFSET] < self._end_offset)
            & (rows[:, scan.RECORD_COUNT] > 0)
        )
        if filter_ is not None:
            keep &= filter_.committed_rows(rows)
        if not keep.all():
            rows = rows[keep]
            attributes, legacy = attributes[keep], legacy[keep]
        kinds = np.where(legacy, _LEGACY, np.where(attributes & at.CODEC_MASK, _COMPRESSED, _PLAIN))
        if not kinds.any():
            yield from self._append(data, rows)
            return
        starts = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
        for first, last in pairwise(starts):
            run = rows[first:last]
            if kinds[first] == _PLAIN:
                yield from self._append(data, run)
            elif kinds[first] == _COMPRESSED:
                yield from self._append_compressed(buffer, run)
            else:
                yield from self._append_legacy(buffer, run)

    def _append_compressed(self, buffer: Buffer, rows: Table) -> Iterator[pa.RecordBatch]:
        inflated: list[bytes | bytearray] = []
        inflated_bytes = first = 0
        for row, position in enumerate(rows[:, scan.POSITION].tolist()):
            section = BatchView(buffer, position).records_section(self._max_decompressed_bytes)
            inflated.append(section)
            inflated_bytes += len(section)
            if inflated_bytes >= _SCAN_BYTES or row == len(rows) - 1:
                yield from self._append_inflated(inflated, rows[first : row + 1])
                inflated = []
                inflated_bytes, first = 0, row + 1

    def _append_inflated(
        self, inflated: list[bytes | bytearray], rows: Table
    ) -> Iterator[pa.RecordBatch]:
        moved = rows.copy()
        sizes = [len(section) for section in inflated]
        # The kernel decode_batches skips a batch header at the POSITION of each row. ``inflated``
        # has the records of each batch without a header, so each POSITION is the start of the
        # batch's records minus the size of a header.
        moved[:, scan.POSITION] = np.cumsum(sizes) - sizes - at.RECORDS_AT
        moved[:, scan.SIZE_BYTES] = sizes
        moved[:, scan.SIZE_BYTES] += at.RECORDS_AT
        whole = inflated[0] if len(inflated) == 1 else b"".join(inflated)
        data = np.frombuffer(whole, np.uint8) if whole else np.empty(0, np.uint8)
        yield from self._append(data, moved)

    def _append(self, data: npt.NDArray[np.uint8], rows: Table) -> Iterator[pa.RecordBatch]:
        if not len(rows):
            return
        if self._legacy.records:
            yield self._finish_legacy()
        state = self._state
        state[: batch_decoding.ROWS] = 0  # let the kernel start at the first record of ``rows``
        flat = rows.reshape(-1)
        status = FULL
        capacity_bytes = self._target_bytes
        while status == FULL:
            if self._buffers is None:
                self._buffers = ColumnBuffers(
                    self._wanted, self._likely_rows(rows, capacity_bytes), capacity_bytes
                )
                state[batch_decoding.ROWS :] = 0
            status = batch_decoding.decode_batches(
                *(data, flat, len(rows), self._start_offset, self._end_offset),
                *(self._wanted, self._buffers.max_rows, state),
                *self._buffers.arguments(),
            )
            if status == FULL:
                capacity_bytes = max(self._target_bytes, int(state[batch_decoding.NEEDED_BYTES]))
                if state[batch_decoding.ROWS]:
                    yield self._finish()
                self._buffers = None
        if status != OK:
            raise self._record_error(rows, status)

    def _likely_rows(self, rows: Table, capacity_bytes: int) -> int:
        """Return for how many rows to allocate the buffers of the next RecordBatch.

        The number is an estimate from the average record size of ``rows``, plus a quarter and
        _FEWEST_ROWS as a margin, but at most ``max_rows``. Buffers for too many rows cost time;
        with buffers for too few rows a RecordBatch ends a little early.
        """
        records = int(rows[:, scan.RECORD_COUNT].sum())
        size_bytes = max(int(rows[:, scan.SIZE_BYTES].sum()) - len(rows) * at.RECORDS_AT, 1)
        likely = records * capacity_bytes // size_bytes
        return min(likely + likely // 4 + _FEWEST_ROWS, self._max_rows)

    def _finish(self) -> pa.RecordBatch:
        assert self._buffers is not None
        state = self._state.tolist()
        arrays = self._buffers.finish(state, self._columns)
        self._buffers = None
        return self._assemble(arrays, state[batch_decoding.ROWS])

    def _assemble(self, arrays: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
        for name in self._columns:
            if name in ("topic", "partition"):
                arrays[name] = self._constant(name, rows)
        return pa.RecordBatch.from_arrays(
            [arrays[name] for name in self._columns], schema=self.schema
        )

    def _constant(self, name: str, rows: int) -> pa.Array:
        """Return the topic or partition column of ``rows`` rows, all with the same value.

        The column is a slice of a cached one. A longer column than the cached one replaces it.
        """
        longest = self._constants.get(name)
        if longest is None or len(longest) < rows:
            value = self._topic if name == "topic" else self._partition
            longest = repeated(value, rows)
            self._constants[name] = longest
        return longest.slice(0, rows)

    # --- messages of formats v0 and v1 -----------------------------------------------------------
    def _append_legacy(self, buffer: Buffer, rows: Table) -> Iterator[pa.RecordBatch]:
        if self._buffers is not None and self._state[batch_decoding.ROWS]:
            yield self._finish()
        for position in rows[:, scan.POSITION].tolist():
            for record in LegacyView(buffer, position).records(self._max_decompressed_bytes):
                if not self._start_offset <= record.offset < self._end_offset:
                    continue
                if not self._legacy.has_room_for(record):
                    yield self._finish_legacy()
                if "timestamp" in self._columns and abs(record.timestamp_ms) > _MAX_TIMESTAMP_MS:
                    raise error_for(
                        TIMESTAMP_NOT_IN_MICROSECONDS,
                        f"{self._topic}-{self._partition}, offset {record.offset}",
                    )
                self._legacy.add(record)

    def _finish_legacy(self) -> pa.RecordBatch:
        count = len(self._legacy.records)
        return self._assemble(self._legacy.finish(), count)

    # --- errors of scanning and decoding ---------------------------------------------------------
    def _scan_error(self, buffer: Buffer, position: int, status: int) -> Exception:
        where = f"{self._topic}-{self._partition}, batch at byte {position}"
        if len(buffer) - position >= at.LOG_OVERHEAD_BYTES:
            where += f", offset {at.INT64.unpack_from(buffer, position)[0]}"
        if status == BAD_CRC:
            view: BatchView | LegacyView
            if buffer[position + at.MAGIC_AT] == at.MAGIC_V2:
                view = BatchView(buffer, position)
            else:
                view = LegacyView(buffer, position)
            return CorruptRecords(
                f"{where}: it carries CRC {view.crc:#010x}, "
                f"its bytes give {view.compute_crc():#010x}"
            )
        return error_for(status, where)

    def _record_error(self, rows: Table, status: int) -> Exception:
        batch = int(self._state[batch_decoding.BATCH])
        return error_for(
            status,
            f"{self._topic}-{self._partition}, record {int(self._state[batch_decoding.RECORD])} "
            f"of {int(rows[batch, scan.RECORD_COUNT])} in the batch at offset "
            f"{int(rows[batch, scan.BASE_OFFSET])}",
        )


def _split_at_overlaps(rows: Table) -> Sequence[Table]:
    """Split ``rows``, a table with one row per batch, before each batch whose base offset is not
    above the last offset of the previous batch.

    Such a batch repeats offsets. The decoder decodes the parts one after the other, and drops
    records whose offsets are not above the last offsets of all earlier parts.
    """
    falls = rows[1:, scan.BASE_OFFSET] <= rows[:-1, scan.LAST_OFFSET]
    return np.split(rows, np.flatnonzero(falls) + 1) if falls.any() else (rows,)
