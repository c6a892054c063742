"""Kernels that down-convert records to formats v0 and v1, one message with a CRC per record."""

from pyspark_klog.records.kernels.crc import crc32, crc32c
from pyspark_klog.records.kernels.jit import Array, inline, kernel
from pyspark_klog.records.kernels.memory import (
    byte_at,
    copy_bytes,
    read_i16,
    read_i32,
    read_i64,
    read_u32,
    write_i32,
    write_i64,
)
from pyspark_klog.records.kernels.records import add_wrapped, check_headers, read_record
from pyspark_klog.records.kernels.status import (
    BAD_COUNT,
    BAD_CRC,
    BAD_KEY_LENGTH,
    BAD_LENGTH,
    BAD_MAGIC,
    BAD_RECORD_END,
    BAD_SECTION_END,
    BAD_VALUE_LENGTH,
    BAD_WRAPPER_OFFSET,
    FULL,
    INCOMPLETE,
    INNER_NOT_PLAIN,
    NEGATIVE_TIMESTAMP,
    NOT_PLAIN,
    OFFSETS_DO_NOT_RISE,
    OK,
)
from pyspark_klog.records.layout import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    CRC_START_AT,
    LEGACY_ATTRIBUTES_AT,
    LEGACY_CRC_AT,
    LEGACY_CRC_START_AT,
    LEGACY_TIMESTAMP_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TIMESTAMP_AT,
    MIN_BATCH_LENGTH,
    MIN_MESSAGE_SIZE,
    MIN_RECORD_BYTES,
    NO_TIMESTAMP_MS,
    RECORD_COUNT_AT,
    RECORDS_AT,
    SIZE_AT,
    TIMESTAMP_TYPE_BIT,
    UP_TO_MAGIC_BYTES,
)

# Size of a message of format v0 or v1 without its key and value.
V0_OVERHEAD_BYTES = LOG_OVERHEAD_BYTES + MIN_MESSAGE_SIZE[0]
V1_OVERHEAD_BYTES = LOG_OVERHEAD_BYTES + MIN_MESSAGE_SIZE[1]
MOST_GROWTH = 6
"""Converted records take at most this many times the bytes of the v2 records: apart from key and
value, a v2 record has at least 7 bytes, and the message that replaces it has at most 34."""

# Indexes of the array ``state`` of the kernels; the caller sets it to 0 before the first call.
POSITION = 0  # byte position in ``buf`` of the next batch or message, or of the one in error
OUT_END = 1  # byte position in ``out`` after the messages written so far
MESSAGES = 2  # number of converted records; messages copied in their old format do not count
LAST_OFFSET = 3  # offset of the last record of the batch or wrapper message converted last
MAX_TIMESTAMP_MS = 4  # largest timestamp of the messages written for the batch converted last
STATE_FIELDS = 5

_MIN_V0_SIZE = MIN_MESSAGE_SIZE[0]
_MIN_V1_SIZE = MIN_MESSAGE_SIZE[1]


@inline
def _write_message(
    out: Array,
    at: int,
    magic: int,
    attributes: int,
    offset: int,
    timestamp_ms: int,
    buf: Array,
    key_at: int,
    key_bytes: int,
    value_at: int,
    value_bytes: int,
) -> int:
    """Write one message and return its end; a length of -1 means null.

    The caller has checked that the message fits ``out``.
    """
    position = at + LEGACY_CRC_START_AT
    out[position] = magic
    out[position + 1] = attributes
    position += 2
    if magic == MAGIC_V1:
        write_i64(out, position, timestamp_ms)
        position += 8
    write_i32(out, position, key_bytes)
    position += 4
    if key_bytes > 0:
        copy_bytes(out, position, buf, key_at, key_bytes)
        position += key_bytes
    write_i32(out, position, value_bytes)
    position += 4
    if value_bytes > 0:
        copy_bytes(out, position, buf, value_at, value_bytes)
        position += value_bytes
    write_i64(out, at, offset)
    write_i32(out, at + SIZE_AT, position - at - LOG_OVERHEAD_BYTES)
    write_i32(out, at + LEGACY_CRC_AT, crc32(out, at + LEGACY_CRC_START_AT, position))
    return position


@inline
def _convert_records(
    buf: Array,
    start: int,
    end: int,
    count: int,
    base_offset: int,
    base_timestamp_ms: int,
    append_time_ms: int,
    magic: int,
    first_offset: int,
    is_relative: int,
    out: Array,
    out_at: int,
    state: Array,
) -> int:
    """Write the records of a v2 batch as messages to ``out`` at ``out_at``.

    Records below ``first_offset`` are left out. Returns OK, FULL if ``out`` is too short, or an
    error status.
    """
    if count < 0 or count > (end - start) // MIN_RECORD_BYTES:
        return BAD_COUNT
    overhead = V1_OVERHEAD_BYTES if magic == MAGIC_V1 else V0_OVERHEAD_BYTES
    attributes = TIMESTAMP_TYPE_BIT if append_time_ms >= 0 and magic == MAGIC_V1 else 0
    at = start
    written = 0
    written_to = out_at
    last_offset = 0
    first = 0
    max_timestamp_ms = NO_TIMESTAMP_MS
    for index in range(count):
        status, next_at, delta, offset_delta, key_at, key_bytes, value_at, value_bytes, n, h_at = (
            read_record(buf, at, end)
        )
        if status != OK:
            return status
        if n != 0:
            status = check_headers(buf, h_at, next_at, n)
            if status != OK:
                return status
        at = next_at
        offset = add_wrapped(base_offset, offset_delta)
        timestamp_ms = append_time_ms
        if append_time_ms < 0:
            timestamp_ms = add_wrapped(base_timestamp_ms, delta)
        if timestamp_ms < NO_TIMESTAMP_MS:
            return NEGATIVE_TIMESTAMP
        if index == 0:
            first = offset
        elif offset <= last_offset:
            return OFFSETS_DO_NOT_RISE
        last_offset = offset
        if offset < first_offset:
            continue
        size = overhead
        if key_bytes > 0:
            size += key_bytes
        if value_bytes > 0:
            size += value_bytes
        if size > len(out) - written_to:
            return FULL
        if timestamp_ms > max_timestamp_ms:
            max_timestamp_ms = timestamp_ms
        written_to = _write_message(
            out,
            written_to,
            magic,
            attributes,
            offset - first if is_relative else offset,
            timestamp_ms,
            buf,
            key_at,
            key_bytes,
            value_at,
            value_bytes,
        )
        written += 1
    if at != end:
        return BAD_SECTION_END
    state[OUT_END] = written_to
    state[MESSAGES] = int(state[MESSAGES]) + written
    state[LAST_OFFSET] = last_offset
    state[MAX_TIMESTAMP_MS] = max_timestamp_ms
    return OK


@kernel("in8", "i64", "i64", "i64", "i64", "i64", "i64", "i64", "i64", "out8", "out64")
def convert_section(
    buf: Array,
    start: int,
    end: int,
    count: int,
    base_offset: int,
    base_timestamp_ms: int,
    append_time_ms: int,
    magic: int,
    is_relative: int,
    out: Array,
    state: Array,
) -> int:
    """Convert the inflated records of a v2 batch to the messages of a wrapper of format ``magic``.

    ``append_time_ms`` replaces the timestamps of the records, unless it is negative. With
    ``is_relative`` the offsets of the messages are relative to the first record. Returns OK, FULL
    if ``out`` is too short, or an error status.
    """
    return _convert_records(
        buf,
        start,
        end,
        count,
        base_offset,
        base_timestamp_ms,
        append_time_ms,
        magic,
        -(2**63),
        is_relative,
        out,
        0,
        state,
    )


@inline
def _read_message(buf: Array, at: int, end: int) -> tuple[int, int, int, int, int]:
    """Find key and value of the v1 message in ``buf[at:end]``.

    Returns (status, start of the key, length of the key, start of the value, length of the value).
    The status is OK or the fault of the message; the length of null is -1.
    """
    key_at = at + LEGACY_TIMESTAMP_AT + 12
    key_bytes = read_i32(buf, key_at - 4)
    value_at = key_at + 4
    if key_bytes < 0:
        key_bytes = -1
    elif key_bytes > end - value_at:
        return BAD_KEY_LENGTH, 0, 0, 0, 0
    else:
        value_at += key_bytes
    value_bytes = read_i32(buf, value_at - 4)
    value_end = value_at
    if value_bytes < 0:
        value_bytes = -1
    elif value_bytes > end - value_at:
        return BAD_VALUE_LENGTH, 0, 0, 0, 0
    else:
        value_end += value_bytes
    if value_end != end:
        return BAD_RECORD_END, 0, 0, 0, 0
    return OK, key_at, key_bytes, value_at, value_bytes


@kernel("in8", "i64", "i64", "i64", "out8", "out64")
def convert_messages(
    buf: Array, start: int, end: int, wrapper_offset: int, out: Array, state: Array
) -> int:
    """Convert the inflated messages of a v1 wrapper to v0 messages, which are smaller because they
    have no timestamp.

    ``wrapper_offset`` is the absolute offset of the last message, so the absolute offset of each
    message follows from its inner offset. If ``wrapper_offset`` is 0, the inner offsets are
    absolute: old librdkafka sends such wrappers. Returns OK, FULL if ``out`` is too short, or an
    error status.
    """
    at = start
    last_inner = 0
    count = 0
    while at < end:
        if end - at < V1_OVERHEAD_BYTES:
            return BAD_LENGTH
        size = read_i32(buf, at + SIZE_AT)
        if byte_at(buf, at + MAGIC_AT) != MAGIC_V1:
            return INNER_NOT_PLAIN
        if byte_at(buf, at + LEGACY_ATTRIBUTES_AT) & CODEC_MASK:
            return INNER_NOT_PLAIN
        if size < _MIN_V1_SIZE or size > end - at - LOG_OVERHEAD_BYTES:
            return BAD_LENGTH
        last_inner = read_i64(buf, at)
        at += LOG_OVERHEAD_BYTES + size
        count += 1
    if count == 0:
        return INNER_NOT_PLAIN
    base_offset = 0
    if wrapper_offset != 0:
        if wrapper_offset < last_inner:
            return BAD_WRAPPER_OFFSET
        base_offset = add_wrapped(wrapper_offset, -last_inner)
    at = start
    written_to = 0
    last_offset = 0
    for index in range(count):
        message_end = at + LOG_OVERHEAD_BYTES + read_i32(buf, at + SIZE_AT)
        status, key_at, key_bytes, value_at, value_bytes = _read_message(buf, at, message_end)
        if status != OK:
            return status
        offset = add_wrapped(base_offset, read_i64(buf, at))
        if index > 0 and offset <= last_offset:
            return OFFSETS_DO_NOT_RISE
        last_offset = offset
        if message_end - at - 8 > len(out) - written_to:
            return FULL
        written_to = _write_message(
            out, written_to, 0, 0, offset, 0, buf, key_at, key_bytes, value_at, value_bytes
        )
        at = message_end
    state[OUT_END] = written_to
    state[MESSAGES] = int(state[MESSAGES]) + count
    state[LAST_OFFSET] = last_offset
    return OK


@inline
def _convert_v1(
    buf: Array, at: int, next_at: int, first_offset: int, out: Array, out_at: int, state: Array
) -> int:
    """Convert a plain v1 message to v0; leave it out if its offset is below ``first_offset``."""
    if crc32(buf, at + LEGACY_CRC_START_AT, next_at) != read_u32(buf, at + LEGACY_CRC_AT):
        return BAD_CRC
    status, key_at, key_bytes, value_at, value_bytes = _read_message(buf, at, next_at)
    if status != OK:
        return status
    state[OUT_END] = out_at
    offset = read_i64(buf, at)
    if offset < first_offset:
        return OK
    if next_at - at - 8 > len(out) - out_at:
        return FULL
    state[OUT_END] = _write_message(
        out, out_at, 0, 0, offset, 0, buf, key_at, key_bytes, value_at, value_bytes
    )
    state[MESSAGES] = int(state[MESSAGES]) + 1
    return OK


@inline
def _convert_batch(
    buf: Array,
    at: int,
    next_at: int,
    magic: int,
    first_offset: int,
    out: Array,
    out_at: int,
    state: Array,
) -> int:
    """Convert an uncompressed v2 batch to plain messages; a control batch gives no message."""
    if crc32c(buf, at + CRC_START_AT, next_at) != read_u32(buf, at + CRC_AT):
        return BAD_CRC
    attributes = read_i16(buf, at + ATTRIBUTES_AT)
    count = read_i32(buf, at + RECORD_COUNT_AT)
    state[OUT_END] = out_at
    if attributes & CONTROL_BIT or count == 0:
        return OK
    append_time_ms = NO_TIMESTAMP_MS
    if attributes & TIMESTAMP_TYPE_BIT:
        append_time_ms = read_i64(buf, at + MAX_TIMESTAMP_AT)
        if append_time_ms < 0:
            return NEGATIVE_TIMESTAMP
    return _convert_records(
        buf,
        at + RECORDS_AT,
        next_at,
        count,
        read_i64(buf, at),
        read_i64(buf, at + BASE_TIMESTAMP_AT),
        append_time_ms,
        magic,
        first_offset,
        0,
        out,
        out_at,
        state,
    )


@kernel("in8", "i64", "i64", "i64", "i64", "i64", "out8", "out64")
def convert_entries(
    buf: Array,
    start: int,
    end: int,
    magic: int,
    first_offset: int,
    stop_bytes: int,
    out: Array,
    state: Array,
) -> int:
    """Convert the batches and messages (the entries) of ``buf[start:end]`` to formats no newer than
    ``magic``.

    Entries in an old enough format are copied, and only their length and codec number are checked.
    Newer entries are converted and their CRC is checked; records below ``first_offset`` and control
    batches are left out. Returns

    - OK at ``end``,
    - NOT_PLAIN before an entry that must be inflated or has an unknown codec,
    - FULL before an entry that does not fit ``out``, or when ``stop_bytes`` bytes are written,
    - INCOMPLETE before an entry that ``end`` cuts off,
    - else the error status of the next entry.

    ``state`` describes the entries converted before the one that stopped the call.
    """
    at = start
    status = OK
    state[OUT_END] = 0
    while at < end and status == OK:
        available = end - at
        size = -1
        entry_magic = -1
        if available >= UP_TO_MAGIC_BYTES:
            size = read_i32(buf, at + SIZE_AT)
            entry_magic = byte_at(buf, at + MAGIC_AT)
        next_at = at + LOG_OVERHEAD_BYTES + size
        out_at = int(state[OUT_END])
        if available < UP_TO_MAGIC_BYTES or size > available - LOG_OVERHEAD_BYTES:
            status = INCOMPLETE
        elif out_at >= stop_bytes:
            status = FULL
        elif entry_magic == MAGIC_V2:
            if size < MIN_BATCH_LENGTH:
                status = BAD_LENGTH
            elif read_i16(buf, at + ATTRIBUTES_AT) & CODEC_MASK:
                status = NOT_PLAIN
            else:
                status = _convert_batch(buf, at, next_at, magic, first_offset, out, out_at, state)
        elif entry_magic > MAGIC_V2:
            status = BAD_MAGIC
        elif size < (_MIN_V1_SIZE if entry_magic == MAGIC_V1 else _MIN_V0_SIZE):
            status = BAD_LENGTH
        elif entry_magic > magic:
            if byte_at(buf, at + LEGACY_ATTRIBUTES_AT) & CODEC_MASK:
                status = NOT_PLAIN
            else:
                status = _convert_v1(buf, at, next_at, first_offset, out, out_at, state)
        elif byte_at(buf, at + LEGACY_ATTRIBUTES_AT) & CODEC_MASK > 3:
            status = NOT_PLAIN
        elif next_at - at > len(out) - out_at:
            status = FULL
        else:
            copy_bytes(out, out_at, buf, at, next_at - at)
            state[OUT_END] = out_at + next_at - at
        if status == OK:
            at = next_at
        else:
            state[OUT_END] = out_at
    state[POSITION] = at
    return status
