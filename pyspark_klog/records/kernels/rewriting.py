"""Kernels with which a broker rewrites the records of a producer's v2 batch, because their offset
deltas are not 0, 1, 2 ... or because the batch header claims LogAppendTime.

One kernel (measure_records) checks the records and computes their size after the rewriting; another
kernel (write_records) then writes them. So the output buffer has exactly the needed size, and input
and output together take at most three times the size of the input.
"""

from pyspark_klog.records.kernels.jit import Array, inline, kernel
from pyspark_klog.records.kernels.memory import copy_bytes
from pyspark_klog.records.kernels.records import add_wrapped, check_headers, read_record
from pyspark_klog.records.kernels.status import (
    BAD_COUNT,
    BAD_SECTION_END,
    CLAIMS_APPEND_TIME,
    MISSES_KEY,
    OK,
    TIMESTAMP_OUT_OF_RANGE,
)
from pyspark_klog.records.kernels.varints import (
    varint_size,
    varlong_size,
    write_varint,
    write_varlong,
)
from pyspark_klog.records.layout import INT64_MAX, MIN_RECORD_BYTES, NO_TIMESTAMP_MS

# Indexes of the array ``result`` of measure_records and measure_messages.
MEASURED_POSITION = 0  # position of the record with the error; without one, end of the records
MEASURED_RECORD = 1  # number of the record with the error; without an error, the record count
MEASURED_SIZE_BYTES = 2  # size in bytes of all records after they are rewritten
MEASURED_IN_ORDER = 3  # 1 if the offset deltas of the records are 0, 1, 2 ...
MEASURED_FIRST_TIMESTAMP_MS = 4
MEASURED_LEAST_TIMESTAMP_MS = 5
MEASURED_MAX_TIMESTAMP_MS = 6
MEASURED_KEY_FAULTS = 7
MEASURED_TIMESTAMP_FAULTS = 8
MEASURED_LAST_OFFSET = 9  # stored offset of the last message; -1 for records of a v2 batch
MEASURED_FIELDS = 10

# Columns of the array ``faults``, which has a row for each fault of a record until it is full: the
# record's number, the kind of fault (a number of status.py), the timestamp in ms.
FAULT_COLUMNS = 3


@inline
def add_fault(faults: Array, found: int, record: int, kind: int, timestamp_ms: int) -> None:
    """Write row number ``found`` of ``faults``, unless ``faults`` is full."""
    to = found * FAULT_COLUMNS
    if to < len(faults):
        faults[to] = record
        faults[to + 1] = kind
        faults[to + 2] = timestamp_ms


@inline
def _body_size(
    delta: int, index: int, key_bytes: int, value_bytes: int, headers: int, headers_bytes: int
) -> int:
    body = 1 + varlong_size(delta) + varint_size(index)
    body += varint_size(key_bytes) + varint_size(value_bytes) + varint_size(headers)
    if key_bytes > 0:
        body += key_bytes
    if value_bytes > 0:
        body += value_bytes
    return body + headers_bytes


@inline
def write_field(out: Array, position: int, buf: Array, start: int, count: int) -> int:
    """Write ``count`` as a varint, then ``count`` bytes of ``buf``; return the position after them.

    A null field has the count -1 and no bytes.
    """
    position = write_varint(out, position, count)
    if count <= 0:
        return position
    copy_bytes(out, position, buf, start, count)
    return position + count


@kernel("in8", *["i64"] * 9, "out64", "out64")
def measure_records(
    buf: Array,
    start: int,
    end: int,
    count: int,
    base_timestamp_ms: int,
    same_timestamp: int,
    earliest_ms: int,
    latest_ms: int,
    refuse_claims: int,
    key_required: int,
    faults: Array,
    result: Array,
) -> int:
    """Check that ``buf[start:end]`` consists of ``count`` well-formed records.

    Offset deltas may have any values. ``result`` (MEASURED_FIELDS long) receives properties of the
    records and the size that :func:`write_records` needs. With ``same_timestamp`` each record has
    the base timestamp, whatever its delta.

    A readable record can have one of these faults: the key is null although ``key_required`` is
    set; ``refuse_claims`` is set, which means that the batch claims LogAppendTime and may not; or
    the timestamp is neither -1 nor within ``earliest_ms`` to ``latest_ms``. ``result`` has the
    number of faults, and ``faults`` the first of them, FAULT_COLUMNS numbers for each. Returns OK,
    or the status of the first unreadable record.
    """
    at = start
    index = 0
    size = 0
    in_order = 1
    first_ms = NO_TIMESTAMP_MS
    least_ms = INT64_MAX
    max_ms = NO_TIMESTAMP_MS
    key_faults = 0
    timestamp_faults = 0
    status = OK
    if count < 0 or count > (end - start) // MIN_RECORD_BYTES:
        status = BAD_COUNT
    while status == OK and index < count:
        (
            status,
            next_at,
            delta,
            offset_delta,
            _,
            key_bytes,
            _,
            value_bytes,
            headers,
            headers_at,
        ) = read_record(buf, at, end)
        if status != OK:
            break
        if headers != 0:
            status = check_headers(buf, headers_at, next_at, headers)
            if status != OK:
                break
        if offset_delta != index:
            in_order = 0
        if same_timestamp:
            delta = 0
        timestamp_ms = add_wrapped(base_timestamp_ms, delta)
        if index == 0:
            first_ms = timestamp_ms
        if timestamp_ms < least_ms:
            least_ms = timestamp_ms
        if timestamp_ms > max_ms:
            max_ms = timestamp_ms
        if key_required and key_bytes < 0:
            add_fault(faults, key_faults + timestamp_faults, index, MISSES_KEY, timestamp_ms)
            key_faults += 1
        elif refuse_claims:
            found = key_faults + timestamp_faults
            add_fault(faults, found, index, CLAIMS_APPEND_TIME, timestamp_ms)
            timestamp_faults += 1
        elif timestamp_ms != NO_TIMESTAMP_MS and (
            timestamp_ms < earliest_ms or timestamp_ms > latest_ms
        ):
            found = key_faults + timestamp_faults
            add_fault(faults, found, index, TIMESTAMP_OUT_OF_RANGE, timestamp_ms)
            timestamp_faults += 1
        body = _body_size(delta, index, key_bytes, value_bytes, headers, next_at - headers_at)
        size += varint_size(body) + body
        index += 1
        at = next_at
    if status == OK and at != end:
        status = BAD_SECTION_END
    result[MEASURED_POSITION] = at
    result[MEASURED_RECORD] = index
    result[MEASURED_SIZE_BYTES] = size
    result[MEASURED_IN_ORDER] = in_order
    result[MEASURED_FIRST_TIMESTAMP_MS] = first_ms
    result[MEASURED_LEAST_TIMESTAMP_MS] = least_ms
    result[MEASURED_MAX_TIMESTAMP_MS] = max_ms
    result[MEASURED_KEY_FAULTS] = key_faults
    result[MEASURED_TIMESTAMP_FAULTS] = timestamp_faults
    result[MEASURED_LAST_OFFSET] = -1
    return status


@kernel("in8", "i64", "i64", "i64", "i64", "out8", "i64")
def write_records(
    buf: Array, start: int, end: int, count: int, same_timestamp: int, out: Array, out_at: int
) -> int:
    """Write the records of ``buf[start:end]`` to ``out`` at ``out_at``, with offset deltas from 0.

    :func:`measure_records` must have returned OK for these records. Timestamp deltas stay, or
    become 0 with ``same_timestamp``; headers are copied. Returns the position in ``out``
    after the last record.
    """
    at = start
    to = out_at
    for index in range(count):
        (
            _,
            next_at,
            delta,
            _,
            key_at,
            key_bytes,
            value_at,
            value_bytes,
            headers,
            headers_at,
        ) = read_record(buf, at, end)
        if same_timestamp:
            delta = 0
        headers_bytes = next_at - headers_at
        to = write_varint(
            out, to, _body_size(delta, index, key_bytes, value_bytes, headers, headers_bytes)
        )
        out[to] = 0  # attributes
        to = write_varlong(out, to + 1, delta)
        to = write_varint(out, to, index)
        to = write_field(out, to, buf, key_at, key_bytes)
        to = write_field(out, to, buf, value_at, value_bytes)
        to = write_varint(out, to, headers)
        copy_bytes(out, to, buf, headers_at, headers_bytes)
        to += headers_bytes
        at = next_at
    return to
