"""The kernel that validates the records of one v2 batch before a broker appends the batch."""

from pyspark_klog.records.kernels.jit import Array, kernel
from pyspark_klog.records.kernels.records import add_wrapped, check_headers, read_record
from pyspark_klog.records.kernels.status import (
    BAD_COUNT,
    BAD_SECTION_END,
    MISSING_KEY,
    OFFSET_DELTA_NOT_INDEX,
    OK,
    TIMESTAMP_NOT_ALLOWED,
)
from pyspark_klog.records.layout import MIN_RECORD_BYTES, NO_TIMESTAMP_MS

# Indexes of the array ``result``, which validate_records fills.
RESULT_POSITION = 0  # position of the record with the error; without an error, end of the records
RESULT_RECORD = 1  # number of the record with the error; without an error, the record count
RESULT_MAX_TIMESTAMP_MS = 2
RESULT_MAX_TIMESTAMP_RECORD = 3  # number of the first record with the largest timestamp
RESULT_FIELDS = 4


@kernel("in8", "i64", "i64", "i64", "i64", "i64", "i64", "i64", "out64")
def validate_records(
    buf: Array,
    start: int,
    end: int,
    count: int,
    base_timestamp_ms: int,
    earliest_ms: int,
    latest_ms: int,
    key_required: int,
    result: Array,
) -> int:
    """Check like Kafka's LogValidator that ``buf[start:end]`` consists of ``count`` valid records.

    In a valid record lengths, varints and headers stay within the record, and the offset delta is
    the record's number in the batch. With ``key_required`` the record has a key. A timestamp other
    than -1 lies between ``earliest_ms`` and ``latest_ms``, both inclusive; for LogAppendTime pass
    the smallest and the largest 64-bit number, which allow every timestamp. Returns OK or the
    status of the first error. ``result`` (RESULT_FIELDS long) receives the position and the number
    of the record with the error, and the largest timestamp.
    """
    at = start
    index = 0
    max_timestamp_ms = NO_TIMESTAMP_MS
    max_record = 0
    status = OK
    if count < 0 or count > (end - start) // MIN_RECORD_BYTES:
        status = BAD_COUNT
    while status == OK and index < count:
        status, next_at, delta, offset_delta, _, key_bytes, _, _, headers, headers_at = read_record(
            buf, at, end
        )
        if status != OK:
            break
        if headers != 0:
            status = check_headers(buf, headers_at, next_at, headers)
            if status != OK:
                break
        if offset_delta != index:
            status = OFFSET_DELTA_NOT_INDEX
            break
        if key_required and key_bytes < 0:
            status = MISSING_KEY
            break
        timestamp_ms = add_wrapped(base_timestamp_ms, delta)
        if timestamp_ms != NO_TIMESTAMP_MS and (
            timestamp_ms < earliest_ms or timestamp_ms > latest_ms
        ):
            status = TIMESTAMP_NOT_ALLOWED
            break
        if timestamp_ms > max_timestamp_ms:
            max_timestamp_ms = timestamp_ms
            max_record = index
        index += 1
        at = next_at
    if status == OK and at != end:
        status = BAD_SECTION_END
    result[RESULT_POSITION] = at
    result[RESULT_RECORD] = index
    result[RESULT_MAX_TIMESTAMP_MS] = max_timestamp_ms
    result[RESULT_MAX_TIMESTAMP_RECORD] = max_record
    return status
