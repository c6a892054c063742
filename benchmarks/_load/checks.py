"""Functions of kernels that write fields into requests and check responses; no I/O.

The functions also run as plain Python, so that their tests need no numba.
"""

from benchmarks._load.plans import (
    PLAN_BATCH_END_AT,
    PLAN_BATCH_START_AT,
    PLAN_REPLY_BYTES,
    PLAN_REPLY_OFFSET_AT,
    STATE_LOG_BYTES,
    STATE_NEXT_OFFSET,
    STATE_RECORDS,
    STATUS_BAD_BATCH,
    STATUS_BAD_CRC,
    STATUS_NOTHING_FETCHED,
    STATUS_OK,
)
from pyspark_klog.records.kernels.crc import crc32c
from pyspark_klog.records.kernels.jit import Array, inline
from pyspark_klog.records.kernels.memory import (
    byte_at,
    read_i16,
    read_i32,
    read_i64,
    read_u32,
    write_i32,
)
from pyspark_klog.records.layout import (
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_AT,
    CRC_AT,
    CRC_START_AT,
    LAST_OFFSET_DELTA_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MAGIC_V2,
    RECORD_COUNT_AT,
)

# A Fetch response of version 13 or newer for one partition, up to the size of its records: size 4,
# correlation id 4, tags 1, throttle time 4; then the error code and the session id.
_ERROR_AT = 13
_TOPICS_AT = _ERROR_AT + 2 + 4  # count 1, topic id 16
_PARTITIONS_AT = _TOPICS_AT + 1 + 16  # count 1, index 4; then the error code
_PARTITION_ERROR_AT = _PARTITIONS_AT + 1 + 4  # 2; high watermark, stable and start offsets 8 each
_ABORTED_AT = _PARTITION_ERROR_AT + 2 + 3 * 8  # count 1, preferred replica 4
_RECORDS_SIZE_AT = _ABORTED_AT + 1 + 4
_ONE = 2  # a compact array's count is one more than its elements

MIN_FETCH_REPLY_BYTES = _RECORDS_SIZE_AT + 1


@inline
def check_reply(inbox: Array, at: int, plan: Array, correlation_id: int, offset: int) -> bool:
    """Whether the whole response at ``at`` is the expected one: no error, and this base offset."""
    offset_at = at + int(plan[PLAN_REPLY_OFFSET_AT])
    return (
        read_i32(inbox, at) == int(plan[PLAN_REPLY_BYTES]) - 4
        and read_i32(inbox, at + 4) == correlation_id
        and read_i16(inbox, offset_at - 2) == 0
        and read_i64(inbox, offset_at) == offset
    )


@inline
def is_same_reply(
    inbox: Array, expected: Array, at: int, have: int, reply_bytes: int, correlation_id: int
) -> bool:
    """Whether the ``have`` bytes at ``at`` are the expected response, but for correlation ids."""
    if have != reply_bytes or read_i32(inbox, at + 4) != correlation_id:
        return False
    for place in range(at, at + reply_bytes):
        if byte_at(inbox, place) != byte_at(expected, place) and not 4 <= place - at < 8:
            return False
    return True


@inline
def write_sequence(frames: Array, frame_at: int, plan: Array, sequence: int) -> None:
    """Give the batch of the frame at ``frame_at`` a base sequence, and a new CRC."""
    start = frame_at + int(plan[PLAN_BATCH_START_AT])
    end = frame_at + int(plan[PLAN_BATCH_END_AT])
    write_i32(frames, start + BASE_SEQUENCE_AT, sequence)
    write_i32(frames, start + CRC_AT, crc32c(frames, start + CRC_START_AT, end))


@inline
def find_records(inbox: Array, filled: int) -> tuple[int, int]:
    """The start and end of the record set in a whole Fetch response.

    The result is -1, -1 for a response with an error or of another shape.
    """
    if filled < MIN_FETCH_REPLY_BYTES or read_i16(inbox, _ERROR_AT) != 0:
        return -1, -1
    if byte_at(inbox, 8) != 0 or byte_at(inbox, _TOPICS_AT) != _ONE:
        return -1, -1
    if byte_at(inbox, _PARTITIONS_AT) != _ONE or read_i16(inbox, _PARTITION_ERROR_AT) != 0:
        return -1, -1
    if byte_at(inbox, _ABORTED_AT) > 1:
        return -1, -1
    at = _RECORDS_SIZE_AT
    size = 0
    shift = 0
    while at < filled and shift <= 28:
        byte = byte_at(inbox, at)
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            end = at + max(size - 1, 0)
            if end > filled:
                return -1, -1
            return at, end
        shift += 7
    return -1, -1


@inline
def find_sized_records(inbox: Array, filled: int, expected: Array, same_to: int) -> tuple[int, int]:
    """The start and end of the record set in a Fetch response before version 12.

    The records of the only partition end such a response. ``expected`` is a response without
    records. From the correlation id up to ``same_to``, its first field that may differ, every
    response has the same bytes.
    """
    start = len(expected)
    if filled < start:
        return -1, -1
    for place in range(8, same_to):
        if byte_at(inbox, place) != byte_at(expected, place):
            return -1, -1
    end = start + read_i32(inbox, start - 4)
    if end < start or end > filled:
        return -1, -1
    return start, end


@inline
def walk_batches(
    inbox: Array, start: int, end: int, wanted: int, check_crc: bool, state: Array
) -> int:
    """Check the batches of a record set; return a status, and their end in STATE_NEXT_OFFSET.

    The batches follow each other without a gap, and the first one holds ``wanted``. The last one
    may be cut: Kafka sends a number of bytes, not of batches.
    """
    at = start
    next_offset = wanted
    while end - at >= BATCH_HEADER_BYTES:
        size = LOG_OVERHEAD_BYTES + read_i32(inbox, at + BATCH_LENGTH_AT)
        if size < BATCH_HEADER_BYTES or byte_at(inbox, at + MAGIC_AT) != MAGIC_V2:
            return STATUS_BAD_BATCH
        if size > end - at:
            break
        base = read_i64(inbox, at + BASE_OFFSET_AT)
        last = base + read_i32(inbox, at + LAST_OFFSET_DELTA_AT)
        if last < next_offset or base > next_offset or (base != next_offset and at != start):
            return STATUS_BAD_BATCH
        if check_crc and crc32c(inbox, at + CRC_START_AT, at + size) != read_u32(
            inbox, at + CRC_AT
        ):
            return STATUS_BAD_CRC
        state[STATE_RECORDS] += read_i32(inbox, at + RECORD_COUNT_AT)
        state[STATE_LOG_BYTES] += size
        next_offset = last + 1
        at += size
    state[STATE_NEXT_OFFSET] = next_offset
    return STATUS_OK if next_offset > wanted else STATUS_NOTHING_FETCHED
