"""The kernel that lists the batches in a buffer, for log recovery and before decoding."""

from pyspark_klog.records.kernels.crc import crc32, crc32c
from pyspark_klog.records.kernels.jit import Array, inline, kernel
from pyspark_klog.records.kernels.memory import byte_at, read_i16, read_i32, read_i64, read_u32
from pyspark_klog.records.kernels.status import (
    BAD_COUNT,
    BAD_CRC,
    BAD_LAST_OFFSET,
    BAD_LENGTH,
    BAD_MAGIC,
    FULL,
    INCOMPLETE,
    OK,
)
from pyspark_klog.records.layout import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    CODEC_MASK,
    CRC_AT,
    CRC_START_AT,
    INT64_MAX,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LEGACY_ATTRIBUTES_AT,
    LEGACY_CRC_AT,
    LEGACY_CRC_START_AT,
    LEGACY_TIMESTAMP_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MAGIC_V0,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TIMESTAMP_AT,
    MIN_BATCH_LENGTH,
    MIN_MESSAGE_SIZE,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP_MS,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    SIZE_AT,
    UP_TO_MAGIC_BYTES,
)

# Columns of the table that scan_batches fills. A row describes a v2 batch, or a v0 or v1 message,
# which may be a wrapper.
POSITION = 0
SIZE_BYTES = 1
MAGIC = 2
ATTRIBUTES = 3
BASE_OFFSET = 4
LAST_OFFSET = 5
BASE_TIMESTAMP_MS = 6
MAX_TIMESTAMP_MS = 7
RECORD_COUNT = 8
LEADER_EPOCH = 9
PRODUCER_ID = 10
PRODUCER_EPOCH = 11
BASE_SEQUENCE = 12
TABLE_COLUMNS = 13

# Indexes of the array ``state``, which scan_batches fills with facts about the rows of its table.
STATE_BATCHES = 0  # number of rows
STATE_POSITION = 1  # end of the last valid batch or message, or the start of the scan
STATE_ATTRIBUTES = 2  # bitwise or of the column ATTRIBUTES of all rows
STATE_LEGACY = 3  # number of rows with format v0 or v1
STATE_FIELDS = 4

_MIN_V0_SIZE = MIN_MESSAGE_SIZE[0]
_MIN_V1_SIZE = MIN_MESSAGE_SIZE[1]


@inline
def _read_batch(buf: Array, at: int, table: Array, row: int) -> int:
    delta = read_i32(buf, at + LAST_OFFSET_DELTA_AT)
    base_offset = read_i64(buf, at)
    count = read_i32(buf, at + RECORD_COUNT_AT)
    if delta < 0 or base_offset > INT64_MAX - delta:
        return BAD_LAST_OFFSET
    if count < 0:
        return BAD_COUNT
    table[row + ATTRIBUTES] = read_i16(buf, at + ATTRIBUTES_AT)
    table[row + BASE_OFFSET] = base_offset
    table[row + LAST_OFFSET] = base_offset + delta
    table[row + BASE_TIMESTAMP_MS] = read_i64(buf, at + BASE_TIMESTAMP_AT)
    table[row + MAX_TIMESTAMP_MS] = read_i64(buf, at + MAX_TIMESTAMP_AT)
    table[row + RECORD_COUNT] = count
    table[row + LEADER_EPOCH] = read_i32(buf, at + LEADER_EPOCH_AT)
    table[row + PRODUCER_ID] = read_i64(buf, at + PRODUCER_ID_AT)
    table[row + PRODUCER_EPOCH] = read_i16(buf, at + PRODUCER_EPOCH_AT)
    table[row + BASE_SEQUENCE] = read_i32(buf, at + BASE_SEQUENCE_AT)
    return OK


@inline
def _read_message(buf: Array, at: int, magic: int, table: Array, row: int) -> None:
    attributes = byte_at(buf, at + LEGACY_ATTRIBUTES_AT)
    timestamp_ms = NO_TIMESTAMP_MS
    if magic == MAGIC_V1:
        timestamp_ms = read_i64(buf, at + LEGACY_TIMESTAMP_AT)
    table[row + ATTRIBUTES] = attributes
    table[row + BASE_OFFSET] = read_i64(buf, at)
    table[row + LAST_OFFSET] = read_i64(buf, at)
    table[row + BASE_TIMESTAMP_MS] = timestamp_ms
    table[row + MAX_TIMESTAMP_MS] = timestamp_ms
    table[row + RECORD_COUNT] = -1 if attributes & CODEC_MASK else 1
    table[row + LEADER_EPOCH] = NO_LEADER_EPOCH
    table[row + PRODUCER_ID] = NO_PRODUCER_ID
    table[row + PRODUCER_EPOCH] = NO_PRODUCER_EPOCH
    table[row + BASE_SEQUENCE] = NO_SEQUENCE


@kernel("in8", "i64", "i64", "i64", "i64", "out64", "out64")
def scan_batches(
    buf: Array, start: int, end: int, check_crc: int, max_bytes: int, table: Array, state: Array
) -> int:
    """List the batches and messages of ``buf[start:end]``, and check length, magic, counts and,
    with ``check_crc``, the CRC.

    Each valid batch or message (entry) adds a row of ``TABLE_COLUMNS`` numbers to ``table``. The
    row of a v0 or v1 wrapper has the wrapper's last offset as base offset and the record count -1,
    because only the compressed messages contain the true numbers. ``state[STATE_POSITION]`` is the
    start for the next call, and the place at which log recovery truncates.

    Returns OK at ``end``; FULL when ``table`` is full or at least ``max_bytes`` were scanned;
    INCOMPLETE if ``end`` cuts off the next entry; else the error status of the next entry.
    """
    rows = len(table) // TABLE_COLUMNS
    found = 0
    attributes = 0
    legacy = 0
    at = start
    status = OK
    while at < end:
        available = end - at
        if found >= rows or at - start >= max_bytes:
            status = FULL
            break
        if available < UP_TO_MAGIC_BYTES:
            status = INCOMPLETE
            break
        size = read_i32(buf, at + SIZE_AT)
        if size > available - LOG_OVERHEAD_BYTES:
            status = INCOMPLETE
            break
        magic = byte_at(buf, at + MAGIC_AT)
        row = found * TABLE_COLUMNS
        next_at = at + LOG_OVERHEAD_BYTES + size
        if magic == MAGIC_V2:
            if size < MIN_BATCH_LENGTH:
                status = BAD_LENGTH
            elif check_crc and crc32c(buf, at + CRC_START_AT, next_at) != read_u32(
                buf, at + CRC_AT
            ):
                status = BAD_CRC
            else:
                status = _read_batch(buf, at, table, row)
        elif magic in (MAGIC_V0, MAGIC_V1):
            if size < (_MIN_V1_SIZE if magic == MAGIC_V1 else _MIN_V0_SIZE):
                status = BAD_LENGTH
            elif check_crc and crc32(buf, at + LEGACY_CRC_START_AT, next_at) != read_u32(
                buf, at + LEGACY_CRC_AT
            ):
                status = BAD_CRC
            else:
                _read_message(buf, at, magic, table, row)
        else:
            status = BAD_MAGIC
        if status != OK:
            break
        table[row + POSITION] = at
        table[row + SIZE_BYTES] = next_at - at
        table[row + MAGIC] = magic
        attributes |= int(table[row + ATTRIBUTES])
        legacy += 0 if magic == MAGIC_V2 else 1
        found += 1
        at = next_at
    state[STATE_BATCHES] = found
    state[STATE_POSITION] = at
    state[STATE_ATTRIBUTES] = attributes
    state[STATE_LEGACY] = legacy
    return status
