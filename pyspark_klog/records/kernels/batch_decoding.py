"""The kernel that decodes the records of many v2 batches into the buffers of Arrow columns."""

from pyspark_klog.records.kernels.jit import Array, inline, kernel
from pyspark_klog.records.kernels.memory import copy_bytes
from pyspark_klog.records.kernels.records import (
    add_wrapped,
    check_headers,
    is_utf8,
    read_header,
    read_record,
)
from pyspark_klog.records.kernels.scan import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP_MS,
    MAX_TIMESTAMP_MS,
    RECORD_COUNT,
    SIZE_BYTES,
    TABLE_COLUMNS,
)
from pyspark_klog.records.kernels.scan import POSITION as BATCH_POSITION
from pyspark_klog.records.kernels.status import (
    BAD_COUNT,
    BAD_SECTION_END,
    FULL,
    OK,
    TIMESTAMP_NOT_IN_MICROSECONDS,
)
from pyspark_klog.records.layout import MIN_RECORD_BYTES, RECORDS_AT, TIMESTAMP_TYPE_BIT

# Bits of the argument ``wanted`` of decode_batches, one for each column that it shall fill.
WANT_KEY = 1
WANT_VALUE = 2
WANT_OFFSET = 4
WANT_TIMESTAMP = 8
WANT_TIMESTAMP_TYPE = 16
WANT_HEADERS = 32

# Indexes of the argument ``state`` of decode_batches. BATCH, RECORD and POSITION are the place at
# which the next call continues; the caller sets them to 0 for a new table of batches. ROWS to
# HEADER_KEYS_NOT_UTF8 describe the contents of the columns; the caller sets them to 0 for new
# columns.
BATCH = 0
RECORD = 1
POSITION = 2
ROWS = 3
KEY_BYTES = 4
VALUE_BYTES = 5
KEY_NULLS = 6
VALUE_NULLS = 7
HEADERS = 8
HEADER_KEY_BYTES = 9
HEADER_VALUE_BYTES = 10
HEADER_VALUE_NULLS = 11
HEADER_KEYS_NOT_UTF8 = 12
NEEDED_BYTES = 13  # with status FULL: size of the record that did not fit into the columns
STATE_FIELDS = 14

# Largest number of milliseconds that fits 64 bits in microseconds: (2^63 - 1) // 1000.
_MAX_TIMESTAMP_MS = 9_223_372_036_854_775


@inline
def _clear_bit(bitmap: Array, bit: int) -> None:
    bitmap[bit >> 3] = bitmap[bit >> 3] & (0xFF ^ (1 << (bit & 7)))


@inline
def _copy_headers(
    buf: Array,
    position: int,
    end: int,
    count: int,
    state: Array,
    key_ends: Array,
    keys: Array,
    value_ends: Array,
    values: Array,
    values_valid: Array,
) -> None:
    """Append headers to the columns; the caller has checked the headers, and that they fit."""
    at = position
    header = int(state[HEADERS])
    keys_end = int(state[HEADER_KEY_BYTES])
    values_end = int(state[HEADER_VALUE_BYTES])
    for _ in range(count):
        _, at, key_at, key_bytes, value_at, value_bytes = read_header(buf, at, end)
        if not is_utf8(buf, key_at, key_at + key_bytes):
            state[HEADER_KEYS_NOT_UTF8] += 1
        copy_bytes(keys, keys_end, buf, key_at, key_bytes)
        keys_end += key_bytes
        if value_bytes < 0:
            _clear_bit(values_valid, header)
            state[HEADER_VALUE_NULLS] += 1
        else:
            copy_bytes(values, values_end, buf, value_at, value_bytes)
            values_end += value_bytes
        header += 1
        key_ends[header] = keys_end
        value_ends[header] = values_end
    state[HEADERS] = header
    state[HEADER_KEY_BYTES] = keys_end
    state[HEADER_VALUE_BYTES] = values_end


@kernel(
    *("in8", "in64", "i64", "i64", "i64", "i64", "i64"),
    *("out64", "out64", "out64", "out32"),
    *("out32", "out8", "out8", "out32", "out8", "out8"),
    *("out32", "out32", "out8", "out32", "out8", "out8"),
)
def decode_batches(
    buf: Array,
    table: Array,
    batch_count: int,
    start_offset: int,
    end_offset: int,
    wanted: int,
    max_rows: int,
    state: Array,
    offsets: Array,
    timestamps_us: Array,
    timestamp_types: Array,
    key_ends: Array,
    keys: Array,
    keys_valid: Array,
    value_ends: Array,
    values: Array,
    values_valid: Array,
    header_ends: Array,
    header_key_ends: Array,
    header_keys: Array,
    header_value_ends: Array,
    header_values: Array,
    header_values_valid: Array,
) -> int:
    """Append the records with offsets in ``start_offset`` to ``end_offset`` (exclusive) to columns.

    ``table`` has ``batch_count`` rows of v2 batches as ``scan_batches`` writes them, with positions
    in ``buf``. The records must lie inside ``buf`` uncompressed. The header of a batch is not read,
    and for inflated records its position may lie before the start of ``buf``.

    A column that is not in ``wanted`` may be an empty array. The arrays of the other columns must
    be long enough for ``max_rows`` rows: arrays of the end positions of values (``*_ends``) have
    one element more, bitmaps have all bits set, and the arrays of bytes may have any length.
    ``len(header_key_ends) - 1`` headers fit.

    Returns OK after the last batch; FULL when the next record does not fit, and the caller must
    call again with new columns and the same ``state``, whose fields from ROWS on the caller sets to
    0; else the error status of the record or batch at ``state[POSITION]``.
    """
    batch = int(state[BATCH])
    record = int(state[RECORD])
    position = int(state[POSITION])
    row = int(state[ROWS])
    keys_end = int(state[KEY_BYTES])
    values_end = int(state[VALUE_BYTES])
    keys_room = len(keys)
    values_room = len(values)
    status = OK
    while batch < batch_count:
        place = batch * TABLE_COLUMNS
        start = int(table[place + BATCH_POSITION])
        end = start + int(table[place + SIZE_BYTES])
        base_offset = int(table[place + BASE_OFFSET])
        base_timestamp_ms = int(table[place + BASE_TIMESTAMP_MS])
        timestamp_type = 1 if int(table[place + ATTRIBUTES]) & TIMESTAMP_TYPE_BIT else 0
        count = int(table[place + RECORD_COUNT])
        if record == 0:
            position = start + RECORDS_AT
            if count < 0 or count > (end - position) // MIN_RECORD_BYTES:
                status = BAD_COUNT
                break
        while record < count:
            (
                status,
                next_position,
                timestamp_delta,
                offset_delta,
                key_at,
                key_bytes,
                value_at,
                value_bytes,
                headers,
                headers_at,
            ) = read_record(buf, position, end)
            if status != OK:
                break
            if headers != 0:
                status = check_headers(buf, headers_at, next_position, headers)
                if status != OK:
                    break
            offset = add_wrapped(base_offset, offset_delta)
            if offset < start_offset or offset >= end_offset:
                record += 1
                position = next_position
                continue
            if (
                row >= max_rows
                or (wanted & WANT_KEY and key_bytes > keys_room - keys_end)
                or (wanted & WANT_VALUE and value_bytes > values_room - values_end)
            ):
                status = FULL
                break
            if wanted & WANT_TIMESTAMP:
                timestamp_ms = int(table[place + MAX_TIMESTAMP_MS])
                if timestamp_type == 0:
                    timestamp_ms = add_wrapped(base_timestamp_ms, timestamp_delta)
                if timestamp_ms > _MAX_TIMESTAMP_MS or timestamp_ms < -_MAX_TIMESTAMP_MS:
                    status = TIMESTAMP_NOT_IN_MICROSECONDS
                    break
                timestamps_us[row] = timestamp_ms * 1000  # fits 64 bits: see _MAX_TIMESTAMP_MS
            if wanted & WANT_HEADERS:
                rest = next_position - headers_at
                if (
                    headers >= len(header_key_ends) - state[HEADERS]
                    or rest > len(header_keys) - state[HEADER_KEY_BYTES]
                    or rest > len(header_values) - state[HEADER_VALUE_BYTES]
                ):
                    status = FULL
                    break
                if headers != 0:
                    _copy_headers(
                        buf,
                        headers_at,
                        next_position,
                        headers,
                        state,
                        header_key_ends,
                        header_keys,
                        header_value_ends,
                        header_values,
                        header_values_valid,
                    )
                header_ends[row + 1] = state[HEADERS]
            if wanted & WANT_OFFSET:
                offsets[row] = offset
            if wanted & WANT_TIMESTAMP_TYPE:
                timestamp_types[row] = timestamp_type
            if wanted & WANT_KEY:
                if key_bytes < 0:
                    _clear_bit(keys_valid, row)
                    state[KEY_NULLS] += 1
                else:
                    copy_bytes(keys, keys_end, buf, key_at, key_bytes)
                    keys_end += key_bytes
                key_ends[row + 1] = keys_end
            if wanted & WANT_VALUE:
                if value_bytes < 0:
                    _clear_bit(values_valid, row)
                    state[VALUE_NULLS] += 1
                else:
                    copy_bytes(values, values_end, buf, value_at, value_bytes)
                    values_end += value_bytes
                value_ends[row + 1] = values_end
            row += 1
            record += 1
            position = next_position
        if status != OK:
            break
        if position != end and count != 0:
            status = BAD_SECTION_END
            break
        batch += 1
        record = 0
    state[BATCH] = batch
    state[RECORD] = record
    state[POSITION] = position
    state[ROWS] = row
    state[KEY_BYTES] = keys_end
    state[VALUE_BYTES] = values_end
    state[NEEDED_BYTES] = next_position - position if status == FULL else 0
    return status
