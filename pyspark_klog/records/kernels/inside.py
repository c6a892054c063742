"""Whether what lies inside of stored batches bears out their headers: for whoever checks a log."""

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

# What a check leaves in ``result``.
RESULT_ROW = 0  # of the batch that the status is about; the end if there is none
RESULT_RECORD = 1  # the number of the record in it
RESULT_FIELDS = 2


@inline
def _check_section(
    buf: Array, start: int, end: int, count: int, last_offset_delta: int
) -> tuple[int, int]:
    """A status, and the number of the record that it is about."""
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
def check_inside(buf: Array, table: Array, first: int, end: int, result: Array) -> int:
    """Check the records of the batches ``first`` to ``end``, exclusive, of a scan's table.

    Positions in ``table`` are those in ``buf``. Of each v2 batch that is not compressed the records
    are well-formed, as many as its header counts, and fill it exactly; their offset deltas rise and
    do not pass the batch's last (compaction leaves gaps). As in Kafka a batch that counts none may
    hold anything. Others are passed over. Returns OK or the first thing that is wrong; ``result``
    (RESULT_FIELDS long) says where.
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
