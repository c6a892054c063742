"""Fetch load: one connection reads a partition from an offset to an end, one fetch outstanding.

The load works as a consumer does: it copies all bytes out of the socket, and reads every batch's
header, since only the last one has the next offset.
"""

from benchmarks._load.checks import (
    MIN_FETCH_REPLY_BYTES,
    find_records,
    find_sized_records,
    walk_batches,
)
from benchmarks._load.libc import (
    CLOSED,
    WOULD_BLOCK,
    now_ns,
    receive_some,
    send_some,
    wait_ready,
)
from benchmarks._load.plans import (
    PLAN_CHECK_CRC,
    PLAN_DEADLINE_NS,
    PLAN_END_OFFSET,
    PLAN_FIRST_OFFSET,
    PLAN_FRAME_BYTES,
    PLAN_OFFSET_AT,
    PLAN_SAME_TO,
    STATE_NEXT_OFFSET,
    STATE_REPLIES,
    STATE_REPLY_AT,
    STATE_SENT,
    STATE_WIRE_BYTES,
    STATUS_CLOSED,
    STATUS_OK,
    STATUS_SOCKET_FAILED,
    STATUS_TOO_LATE,
    STATUS_UNEXPECTED_REPLY,
)
from pyspark_klog.records.kernels.jit import Array, kernel
from pyspark_klog.records.kernels.memory import read_i32, write_i32, write_i64

_CORRELATION_ID_AT = 8
_POLL_MS = 500


@kernel("i64", "out8", "in8", "in64", "out8", "out64", "out64")
def fetch_to_end(
    fd: int,
    request: Array,
    expected: Array,
    plan: Array,
    inbox: Array,
    state: Array,
    scratch: Array,
) -> int:
    """Fetch from PLAN_FIRST_OFFSET until PLAN_END_OFFSET; the offset is written to ``request``.

    ``expected`` is a response without records, compared if PLAN_SAME_TO is not 0. ``inbox`` holds a
    whole response. Returns a status; counts are in ``state``.
    """
    same_to = int(plan[PLAN_SAME_TO])
    least_bytes = MIN_FETCH_REPLY_BYTES if same_to == 0 else len(expected)
    request_bytes = int(plan[PLAN_FRAME_BYTES])
    end_offset = int(plan[PLAN_END_OFFSET])
    deadline_ns = int(plan[PLAN_DEADLINE_NS])
    check_crc = int(plan[PLAN_CHECK_CRC]) != 0
    offset = int(plan[PLAN_FIRST_OFFSET])
    correlation_id = 0
    state[STATE_REPLY_AT] = 0
    while offset < end_offset:
        write_i64(request, int(plan[PLAN_OFFSET_AT]), offset)
        write_i32(request, _CORRELATION_ID_AT, correlation_id)
        # No other request is outstanding: the socket has space.
        if send_some(fd, request, 0, request_bytes) != request_bytes:
            return STATUS_SOCKET_FAILED
        state[STATE_SENT] += 1
        filled = 0
        wanted = 4
        while filled < wanted:
            got = receive_some(fd, inbox, filled, len(inbox) - filled)
            if got < 0:
                return STATUS_CLOSED if got == CLOSED else STATUS_SOCKET_FAILED
            if got == WOULD_BLOCK:
                if now_ns(scratch) > deadline_ns:
                    return STATUS_TOO_LATE
                wait_ready(fd, False, _POLL_MS, scratch)
                continue
            filled += got
            if wanted == 4 and filled >= 4:
                wanted = 4 + read_i32(inbox, 0)
                if wanted < least_bytes or wanted > len(inbox):
                    return STATUS_UNEXPECTED_REPLY
        start, end = (
            find_records(inbox, filled)
            if same_to == 0
            else find_sized_records(inbox, filled, expected, same_to)
        )
        if filled != wanted or read_i32(inbox, 4) != correlation_id or start < 0:
            return STATUS_UNEXPECTED_REPLY
        state[STATE_REPLIES] += 1
        state[STATE_WIRE_BYTES] += filled
        status = walk_batches(inbox, start, end, offset, check_crc, state)
        if status != STATUS_OK:
            return status
        offset = int(state[STATE_NEXT_OFFSET])
        correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
    return STATUS_OK
