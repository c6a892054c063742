"""Scans a segment with compiled kernels, which check the CRCs and yield tables of batches.

The scan holds a read buffer of at most MAX_ENTRY_BYTES in memory, and copies one compressed batch
at a time to decompress its records.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from klog_broker.inspection.stored_entries import MAX_ENTRY_BYTES, has_right_crc
from klog_broker.log.batch_rows import header_row
from pyspark_klog.records import layout as at
from pyspark_klog.records.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    codec_of,
    decompress,
)
from pyspark_klog.records.errors import CorruptRecords, DecompressedTooLarge, RecordsError
from pyspark_klog.records.kernels import batch_contents, scan
from pyspark_klog.records.kernels.status import FULL, INCOMPLETE, OK, error_for
from pyspark_klog.records.legacy import LegacyView
from pyspark_klog.records.record_sets import read_entry_head
from pyspark_klog.storage.partition_files import ReadOnlyFile
from pyspark_klog.storage.segment_walk import Table

_WINDOW_BYTES = 4 << 20
_TABLE_ROWS = 16_384
_NO_DATA = np.empty(0, np.uint8)


class ScannedBatches(NamedTuple):
    """Consecutive batches of a segment. records/kernels/scan.py names the columns of ``rows``."""

    rows: Table
    """One row for each batch. Its position column counts from the start of ``data``."""
    data: npt.NDArray[np.uint8]
    """The read buffer, which has the bytes of the batches. ``data`` and ``rows`` are valid
    until ``scan_segment`` is asked for the next batches. ``data`` is empty for a single batch of
    more than MAX_ENTRY_BYTES, of which only the CRC was checked."""
    shift: int
    """The position of ``data`` in the file."""

    def bytes_of(self, row: int) -> bytes:
        """Return the bytes of one batch."""
        start = int(self.rows[row, scan.POSITION])
        return self.data[start : start + int(self.rows[row, scan.SIZE_BYTES])].tobytes()

    def positions(self) -> npt.NDArray[np.int64]:
        """Return the positions of the batches in the file."""
        positions: npt.NDArray[np.int64] = self.rows[:, scan.POSITION] + self.shift
        return positions


class BadPlace(NamedTuple):
    """The position in the file at which a batch should begin but none can be read, and the
    fault."""

    position: int
    text: str


def scan_segment(file: ReadOnlyFile, position: int) -> Iterator[ScannedBatches | BadPlace]:
    """Yield the batches from ``position`` on, up to the file's end or a place where no batch can be
    read, which is yielded as a BadPlace."""
    window = bytearray(_WINDOW_BYTES)
    table = np.empty(_TABLE_ROWS * scan.TABLE_COLUMNS, np.int64)
    state = np.zeros(scan.STATE_FIELDS, np.int64)
    while True:
        with memoryview(window) as view:
            filled = file.read_into(view, position)
        data = np.frombuffer(window, np.uint8)
        data.flags.writeable = False
        start, status = 0, FULL
        while status == FULL:
            status = scan.scan_batches(data, start, filled, 1, len(window), table, state)
            found = int(state[scan.STATE_BATCHES])
            start = int(state[scan.STATE_POSITION])
            if found:
                yield ScannedBatches(
                    table[: found * scan.TABLE_COLUMNS].reshape(found, -1), data, position
                )
        if not filled:
            return
        if status not in (OK, INCOMPLETE):
            yield BadPlace(position + start, str(error_for(status, "the batch")))
            return
        position += start
        if start:
            continue
        larger = _larger_batch(file, window[: min(filled, at.BATCH_HEADER_BYTES)], position)
        if isinstance(larger, int):
            window = bytearray(larger)
            continue
        yield larger
        if isinstance(larger, BadPlace):
            return
        position += int(larger.rows[0, scan.SIZE_BYTES])


def _larger_batch(
    file: ReadOnlyFile, header: bytearray, position: int
) -> int | ScannedBatches | BadPlace:
    """Handle the bytes at ``position`` if the read buffer has no whole batch there. Return the size
    of a batch of at most MAX_ENTRY_BYTES, so that the caller makes the buffer larger. For a larger
    v2 batch with a right CRC, return its header fields without the bytes; else a BadPlace."""
    left = file.size() - position
    try:
        head = read_entry_head(header)
    except CorruptRecords:
        return BadPlace(position, f"{left} bytes are left, which do not begin a batch")
    if head.size_bytes > left:
        text = f"the batch is cut off: {left} of its {head.size_bytes} bytes are left"
        return BadPlace(position, text)
    if head.size_bytes <= MAX_ENTRY_BYTES:
        return head.size_bytes
    if head.magic != at.MAGIC_V2 or not has_right_crc(file, position, head, bytes(header)):
        return BadPlace(position, f"a batch of {head.size_bytes} bytes has a wrong CRC")
    row = np.array([header_row(header, 0)._replace(position=0)], np.int64)
    return ScannedBatches(row, _NO_DATA, position)


# --- checks of the records inside batches ---------------------------------------------------------
class InsideFault(NamedTuple):
    """A batch whose records contradict its header, or were not checked."""

    row: int
    text: str
    is_unread: bool
    """Whether the records were not checked, because they are too large."""


def faults_inside(chunk: ScannedBatches) -> Iterator[InsideFault]:
    """Yield those of the scanned batches whose records contradict their headers, or are too large
    to check."""
    rows = chunk.rows
    if not len(chunk.data):
        text = f"a batch of {rows[0, scan.SIZE_BYTES]} bytes: its records are not checked"
        yield InsideFault(0, text, True)
        return
    result = np.zeros(batch_contents.RESULT_FIELDS, np.int64)
    first = 0
    while first < len(rows):
        status = batch_contents.check_batch_contents(
            chunk.data, rows.reshape(-1), first, len(rows), result
        )
        if status == OK:
            break
        row, record = result.tolist()
        yield InsideFault(row, str(error_for(status, f"record {record} of the batch")), False)
        first = row + 1
    for row in np.flatnonzero(rows[:, scan.ATTRIBUTES] & at.CODEC_MASK).tolist():
        try:
            _check_compressed(chunk, row)
        except DecompressedTooLarge as error:
            yield InsideFault(row, f"its records are not checked: {error}", True)
        except RecordsError as error:
            yield InsideFault(row, str(error), False)


def _check_compressed(chunk: ScannedBatches, row: int) -> None:
    """Raise RecordsError if a compressed batch's records are invalid, or too large to
    decompress."""
    fields = chunk.rows[row].copy()
    data = chunk.bytes_of(row)
    if fields[scan.MAGIC] != at.MAGIC_V2:
        for _ in LegacyView(data).records(check_inner_crcs=True):
            pass
        return
    if not fields[scan.RECORD_COUNT]:
        return
    codec = codec_of(int(fields[scan.ATTRIBUTES]))
    with memoryview(data) as view, view[at.RECORDS_AT :] as section:
        inflated = decompress(codec, section, max_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES)
    # Let ``fields``, the batch's row in the table of scanned batches, describe an uncompressed
    # batch for the kernel check_batch_contents. The decompressed buffer has only the records, so
    # the batch, which begins with its header, has a negative position.
    fields[scan.ATTRIBUTES] &= ~at.CODEC_MASK
    fields[scan.POSITION] = -at.RECORDS_AT
    fields[scan.SIZE_BYTES] = len(inflated) + at.RECORDS_AT
    result = np.zeros(batch_contents.RESULT_FIELDS, np.int64)
    octets = np.frombuffer(inflated, np.uint8)
    octets.flags.writeable = False
    status = batch_contents.check_batch_contents(octets, fields, 0, 1, result)
    if status != OK:
        raise error_for(status, f"record {int(result[batch_contents.RESULT_RECORD])} of the batch")
