"""The kernel that checks the records in stored batches against the batch headers."""

from pyspark_klog.records.kernels.jit import Array, inline, kernel
from pyspark_klog.records.kernels.records import check_headers, read_record
from pyspark_klog.records.kernels.scan import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET,
    MAGIC,
    POSITION,
    RECORD_COUNT,
    SIZE_BYTES,
    TABLE_COLUMNS,
)
from pyspark_klog.records.kernels.status import (
    BAD_COUNT,
    BAD_SECTION_END,
    OFFSETS_DO_NOT_RISE,
    OK,
)
from pyspark_klog.records.layout import CODEC_MASK, MAGIC_V2, MIN_RECORD_BYTES, RECORDS_AT

# Indexes of the array ``result``, into which check_batch_contents writes the place of an error.
RESULT_ROW = 0  # row in ``table`` of the batch with the error; argument ``end`` if no error
RESULT_RECORD = 1  # number, from 0, of the record with the error in its batch
RESULT_FIELDS = 2


@inline
def _check_section(
    buf: Array, start: int, end: int, count: int, last_offset_delta: int
) -> tuple[int, int]:
    """Check that ``count`` well-formed records with rising offset deltas fill ``buf[start:end]``.

    Returns (status, number of the record with the error, from 0; ``count`` if no record has one).
    No offset delta may be larger than ``last_offset_delta``.
    """
    if count < 0 or count > (end - start) // MIN_RECORD_BYTES:
        return BAD_COUNT, 0
    at = start
    before = -1
    for index in range(count):
        status, next_at, _, offset_delta, _, _, _, _, headers, headers_at = read_record(
            buf, at, end
        )
        if status != OK:
            return status, index
        if headers != 0:
            status = check_headers(buf, headers_at, next_at, headers)
            if status != OK:
                return status, index
        if offset_delta <= before or offset_delta > last_offset_delta:
            return OFFSETS_DO_NOT_RISE, index
        before = offset_delta
        at = next_at
    return (OK if at == end else BAD_SECTION_END), count


@kernel("in8", "in64", "i64", "i64", "out64")
def check_batch_contents(buf: Array, table: Array, first: int, end: int, result: Array) -> int:
    """Check the records of the batches in the rows ``first`` to ``end``, exclusive, of ``table``.

    ``table`` has one row per batch in ``buf``, as the kernel ``scan_batches`` writes them. Only
    uncompressed v2 batches are checked: the records must be well-formed, fill the batch exactly and
    be as many as the header counts.
    Their offset deltas must rise, up to at most the last offset delta of the batch; compaction
    leaves gaps. Like in Kafka, a batch with record count 0 may contain any bytes. Returns OK or the
    status of the first error. ``result`` (RESULT_FIELDS long) receives the place of the error.
    """
    status = OK
    row = first
    record = 0
    while row < end:
        at = row * TABLE_COLUMNS
        count = table[at + RECORD_COUNT]
        if table[at + MAGIC] == MAGIC_V2 and not table[at + ATTRIBUTES] & CODEC_MASK and count:
            position = table[at + POSITION]
            status, record = _check_section(
                buf,
                position + RECORDS_AT,
                position + table[at + SIZE_BYTES],
                count,
                table[at + LAST_OFFSET] - table[at + BASE_OFFSET],
            )
            if status != OK:
                break
        row += 1
    result[RESULT_ROW] = row
    result[RESULT_RECORD] = record
    return status
