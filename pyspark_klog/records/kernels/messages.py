"""Kernels that convert messages of formats v0 and v1, from old producers, to v2 records.

Kernel measure_messages checks the messages, and kernel write_messages writes the records. The array
``result`` receives counts, sizes and timestamps at the MEASURED_* indexes of rewriting.py, and the
array ``faults`` receives (record number, kind of fault, timestamp) for each fault.
"""

from pyspark_klog.records.kernels.crc import crc32
from pyspark_klog.records.kernels.jit import Array, inline, kernel
from pyspark_klog.records.kernels.memory import byte_at, read_i32, read_i64, read_u32
from pyspark_klog.records.kernels.records import add_wrapped
from pyspark_klog.records.kernels.rewriting import (
    MEASURED_FIRST_TIMESTAMP_MS,
    MEASURED_IN_ORDER,
    MEASURED_KEY_FAULTS,
    MEASURED_LAST_OFFSET,
    MEASURED_LEAST_TIMESTAMP_MS,
    MEASURED_MAX_TIMESTAMP_MS,
    MEASURED_POSITION,
    MEASURED_RECORD,
    MEASURED_SIZE_BYTES,
    MEASURED_TIMESTAMP_FAULTS,
    add_fault,
    write_field,
)
from pyspark_klog.records.kernels.status import (
    BAD_CRC,
    BAD_KEY_LENGTH,
    BAD_LENGTH,
    BAD_MAGIC,
    BAD_RECORD_END,
    BAD_VALUE_LENGTH,
    CLAIMS_APPEND_TIME,
    COMPRESSED_AMONG_OTHERS,
    INCOMPLETE,
    INNER_CUT_OFF,
    MESSAGE_TOO_LARGE,
    MISSES_KEY,
    MIXED_FORMATS,
    OK,
    TIMESTAMP_OUT_OF_RANGE,
    TOO_MANY_RECORDS,
)
from pyspark_klog.records.kernels.varints import (
    varint_size,
    varlong_size,
    write_varint,
    write_varlong,
)
from pyspark_klog.records.layout import (
    CODEC_MASK,
    INT64_MAX,
    LEGACY_ATTRIBUTES_AT,
    LEGACY_CRC_AT,
    LEGACY_CRC_START_AT,
    LEGACY_KEY_AT,
    LEGACY_TIMESTAMP_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_BATCH_LENGTH,
    MIN_MESSAGE_SIZE,
    NO_TIMESTAMP_MS,
    SIZE_AT,
    TIMESTAMP_TYPE_BIT,
    UP_TO_MAGIC_BYTES,
)

_MIN_V0_SIZE = MIN_MESSAGE_SIZE[0]
_MIN_V1_SIZE = MIN_MESSAGE_SIZE[1]
_V0_KEY_AT = LEGACY_KEY_AT[0]
_V1_KEY_AT = LEGACY_KEY_AT[1]


@inline
def _read_message(buf: Array, at: int, end: int) -> tuple[int, int, int, int, int, int, int]:
    """Find the fields of the message at ``at``, whose first 17 bytes must lie before ``end``.

    Returns (status, end of the message, timestamp, start of the key, length of the key, start of
    the value, length of the value). The timestamp is -1 in v0, and the length of null is -1.
    """
    size = read_i32(buf, at + SIZE_AT)
    if size > end - at - LOG_OVERHEAD_BYTES:
        return INCOMPLETE, 0, 0, 0, 0, 0, 0
    magic = byte_at(buf, at + MAGIC_AT)
    if magic == MAGIC_V2:
        status = BAD_LENGTH if size < MIN_BATCH_LENGTH else MIXED_FORMATS
        return status, 0, 0, 0, 0, 0, 0
    if magic > MAGIC_V2:
        return BAD_MAGIC, 0, 0, 0, 0, 0, 0
    is_v1 = magic == MAGIC_V1
    if size < (_MIN_V1_SIZE if is_v1 else _MIN_V0_SIZE):
        return BAD_LENGTH, 0, 0, 0, 0, 0, 0
    next_at = at + LOG_OVERHEAD_BYTES + size
    timestamp_ms = read_i64(buf, at + LEGACY_TIMESTAMP_AT) if is_v1 else NO_TIMESTAMP_MS
    key_at = at + (_V1_KEY_AT if is_v1 else _V0_KEY_AT)
    key_bytes = read_i32(buf, key_at)
    key_at += 4
    value_at = key_at
    if key_bytes < 0:
        key_bytes = -1
    elif key_bytes > next_at - key_at - 4:
        return BAD_KEY_LENGTH, 0, 0, 0, 0, 0, 0
    else:
        value_at += key_bytes
    value_bytes = read_i32(buf, value_at)
    value_at += 4
    stop = value_at
    if value_bytes < 0:
        value_bytes = -1
    elif value_bytes > next_at - value_at:
        return BAD_VALUE_LENGTH, 0, 0, 0, 0, 0, 0
    else:
        stop += value_bytes
    if stop != next_at:
        return BAD_RECORD_END, 0, 0, 0, 0, 0, 0
    return OK, next_at, timestamp_ms, key_at, key_bytes, value_at, value_bytes


@inline
def _body_size(delta: int, index: int, key_bytes: int, value_bytes: int) -> int:
    # The 2 bytes are the attributes and the header count.
    body = 2 + varlong_size(delta) + varint_size(index)
    body += varint_size(key_bytes) + varint_size(value_bytes)
    if key_bytes > 0:
        body += key_bytes
    if value_bytes > 0:
        body += value_bytes
    return body


@kernel("in8", *["i64"] * 11, "out64", "out64")
def measure_messages(
    buf: Array,
    start: int,
    end: int,
    of_magic: int,
    same_timestamp: int,
    timestamp_of_all_ms: int,
    earliest_ms: int,
    latest_ms: int,
    is_append_time: int,
    key_required: int,
    max_message_bytes: int,
    max_records: int,
    faults: Array,
    result: Array,
) -> int:
    """Check the messages of ``buf[start:end]``, and compute the size that write_messages needs.

    An error status is returned for a message that is compressed, has a wrong CRC or is larger than
    ``max_message_bytes``, and for more than ``max_records`` messages. ``of_magic`` is the format of
    the wrapper that contained the messages, or -1 without a wrapper. Without a wrapper a partial
    message at the end is ignored, and ``result[MEASURED_POSITION]`` is the end of the whole
    messages.

    ``same_timestamp`` means that the wrapper has LogAppendTime: all messages then have the
    wrapper's timestamp ``timestamp_of_all_ms``. ``is_append_time`` means that the broker sets the
    timestamps.

    A readable message can have one of these faults, which ``result`` counts and ``faults`` lists:
    the key is null although ``key_required`` is set; the producer claims LogAppendTime, and
    ``is_append_time`` is set or the timestamp is -1; or the timestamp is neither -1 nor within
    ``earliest_ms`` to ``latest_ms``, and ``is_append_time`` is not set.
    """
    at = start
    index = 0
    size = 0
    first_ms = NO_TIMESTAMP_MS
    least_ms = INT64_MAX
    max_ms = NO_TIMESTAMP_MS
    key_faults = 0
    timestamp_faults = 0
    last_offset = -1
    status = OK
    while at < end:
        if end - at < UP_TO_MAGIC_BYTES:
            status = INCOMPLETE
            break
        status, next_at, timestamp_ms, _, key_bytes, _, value_bytes = _read_message(buf, at, end)
        if status != OK:
            break
        magic = byte_at(buf, at + MAGIC_AT)
        attributes = byte_at(buf, at + LEGACY_ATTRIBUTES_AT)
        if next_at - at > max_message_bytes:
            status = MESSAGE_TOO_LARGE
            break
        if crc32(buf, at + LEGACY_CRC_START_AT, next_at) != read_u32(buf, at + LEGACY_CRC_AT):
            status = BAD_CRC
            break
        if of_magic >= 0 and magic != of_magic:
            status = MIXED_FORMATS
            break
        if attributes & CODEC_MASK:
            status = COMPRESSED_AMONG_OTHERS
            break
        if index >= max_records:
            status = TOO_MANY_RECORDS
            break
        claims = same_timestamp
        if of_magic < 0 and magic == MAGIC_V1 and attributes & TIMESTAMP_TYPE_BIT:
            claims = 1
        if same_timestamp:
            timestamp_ms = timestamp_of_all_ms
        if index == 0:
            first_ms = timestamp_ms
        if timestamp_ms < least_ms:
            least_ms = timestamp_ms
        if timestamp_ms > max_ms:
            max_ms = timestamp_ms
        last_offset = read_i64(buf, at)
        found = key_faults + timestamp_faults
        if key_required and key_bytes < 0:
            add_fault(faults, found, index, MISSES_KEY, timestamp_ms)
            key_faults += 1
        elif is_append_time or timestamp_ms == NO_TIMESTAMP_MS:
            if claims:
                add_fault(faults, found, index, CLAIMS_APPEND_TIME, timestamp_ms)
                timestamp_faults += 1
        elif timestamp_ms < earliest_ms or timestamp_ms > latest_ms:
            add_fault(faults, found, index, TIMESTAMP_OUT_OF_RANGE, timestamp_ms)
            timestamp_faults += 1
        body = _body_size(add_wrapped(timestamp_ms, -first_ms), index, key_bytes, value_bytes)
        size += varint_size(body) + body
        index += 1
        at = next_at
    if status == INCOMPLETE:
        status = OK if of_magic < 0 else INNER_CUT_OFF
    result[MEASURED_POSITION] = at
    result[MEASURED_RECORD] = index
    result[MEASURED_SIZE_BYTES] = size
    result[MEASURED_IN_ORDER] = 0  # messages have no offset deltas yet: write_messages sets them
    result[MEASURED_FIRST_TIMESTAMP_MS] = first_ms
    result[MEASURED_LEAST_TIMESTAMP_MS] = least_ms
    result[MEASURED_MAX_TIMESTAMP_MS] = max_ms
    result[MEASURED_KEY_FAULTS] = key_faults
    result[MEASURED_TIMESTAMP_FAULTS] = timestamp_faults
    result[MEASURED_LAST_OFFSET] = last_offset
    return status


@kernel("in8", "i64", "i64", "i64", "i64", "out8", "i64")
def write_messages(
    buf: Array,
    start: int,
    end: int,
    same_timestamp: int,
    base_timestamp_ms: int,
    out: Array,
    out_at: int,
) -> int:
    """Write the messages of ``buf[start:end]`` as v2 records to ``out`` at ``out_at``.

    :func:`measure_messages` must have returned OK for these messages. ``base_timestamp_ms`` is the
    timestamp of the first message. Returns the position after the last record.
    """
    at = start
    to = out_at
    index = 0
    while at < end:
        _, next_at, timestamp_ms, key_at, key_bytes, value_at, value_bytes = _read_message(
            buf, at, end
        )
        delta = 0 if same_timestamp else add_wrapped(timestamp_ms, -base_timestamp_ms)
        to = write_varint(out, to, _body_size(delta, index, key_bytes, value_bytes))
        out[to] = 0  # attributes
        to = write_varlong(out, to + 1, delta)
        to = write_varint(out, to, index)
        to = write_field(out, to, buf, key_at, key_bytes)
        to = write_field(out, to, buf, value_at, value_bytes)
        out[to] = 0  # no headers
        to += 1
        index += 1
        at = next_at
    return to
