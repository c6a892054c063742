"""Produce load: requests on one connection without waiting, or one outstanding on each of many.

Requests are encoded beforehand; for an idempotent producer the kernel only writes sequence numbers
and new CRCs. Every response is checked: its size, correlation id, error code and offset.
"""

from benchmarks._load.checks import check_reply, write_sequence
from benchmarks._load.libc import (
    CLOSED,
    FAILED,
    WOULD_BLOCK,
    epoll_wait,
    now_ns,
    receive_some,
    send_some,
    wait_ready,
)
from benchmarks._load.plans import (
    PLAN_ACKS,
    PLAN_CONNECTIONS,
    PLAN_DEADLINE_NS,
    PLAN_EVENT_BYTES,
    PLAN_EVENT_FD_AT,
    PLAN_FIRST_OFFSET,
    PLAN_FIRST_SEQUENCE,
    PLAN_FRAME_BYTES,
    PLAN_FRAMES,
    PLAN_RECORDS,
    PLAN_REPLY_BYTES,
    PLAN_REPLY_OFFSET_AT,
    PLAN_REQUESTS,
    PLAN_SEQUENCED,
    STATE_NEXT_OFFSET,
    STATE_REPLIES,
    STATE_REPLY_AT,
    STATE_SENT,
    STATUS_CLOSED,
    STATUS_OK,
    STATUS_SOCKET_FAILED,
    STATUS_TOO_LATE,
    STATUS_UNEXPECTED_REPLY,
)
from pyspark_klog.records.kernels.jit import Array, kernel
from pyspark_klog.records.kernels.memory import copy_bytes, load_u32, read_i32, read_i64

# The most bytes that are sent before the responses are read.
_MOST_SENT_BYTES = 256 * 1024
# The frames whose sequences are written before they are sent: they are still in the processor's
# cache.
_BURST_FRAMES = 128
_POLL_MS = 500
_LAST_SEQUENCE = 2**31 - 1


@kernel("i64", "out8", "in64", "out8", "out64", "out64")
def produce_pipelined(
    fd: int, frames: Array, plan: Array, inbox: Array, state: Array, scratch: Array
) -> int:
    """Send PLAN_REQUESTS requests on a socket as fast as it takes them; check the responses.

    ``frames`` holds PLAN_FRAMES frames that are sent in a ring, and behind them the last frame.
    With acks=0 only the last frame requests a response, whose offset shows that all earlier batches
    were appended. A frame's correlation id is its place in ``frames``. Returns a status; ``state``
    has the progress, and the place of an unexpected response in ``inbox``.
    """
    frame_bytes = int(plan[PLAN_FRAME_BYTES])
    frame_count = int(plan[PLAN_FRAMES])
    requests = int(plan[PLAN_REQUESTS])
    records = int(plan[PLAN_RECORDS])
    reply_bytes = int(plan[PLAN_REPLY_BYTES])
    deadline_ns = int(plan[PLAN_DEADLINE_NS])
    is_sequenced = int(plan[PLAN_SEQUENCED]) != 0
    sequence = int(plan[PLAN_FIRST_SEQUENCE])
    ring_bytes = frame_count * frame_bytes
    before_last_bytes = (requests - 1) * frame_bytes
    all_bytes = requests * frame_bytes
    # With acks=0 the only response is that of the last request.
    replies = requests - 1 if int(plan[PLAN_ACKS]) == 0 else 0
    next_offset = int(plan[PLAN_FIRST_OFFSET]) + replies * records
    prepared = 0 if is_sequenced else requests
    sent_bytes = 0
    filled = 0
    while replies < requests:
        progress = 0
        if sent_bytes == prepared * frame_bytes and prepared < requests:
            burst = 0
            while burst < _BURST_FRAMES and prepared < requests:
                place = prepared % frame_count
                if prepared == requests - 1:
                    place = frame_count
                elif place == 0 and burst > 0:
                    break  # the ring's end; a burst is sent from one place
                write_sequence(frames, place * frame_bytes, plan, sequence)
                sequence = (sequence + records) & _LAST_SEQUENCE
                prepared += 1
                burst += 1
        if sent_bytes < all_bytes:
            at = ring_bytes + sent_bytes - before_last_bytes
            count = all_bytes - sent_bytes
            if sent_bytes < before_last_bytes:
                at = sent_bytes % ring_bytes
                count = min(
                    ring_bytes - at,
                    before_last_bytes - sent_bytes,
                    prepared * frame_bytes - sent_bytes,
                    _MOST_SENT_BYTES,
                )
            progress = send_some(fd, frames, at, count)
            if progress == FAILED:
                state[STATE_SENT] = sent_bytes // frame_bytes
                state[STATE_REPLIES] = replies
                return STATUS_SOCKET_FAILED
            sent_bytes += progress
        got = receive_some(fd, inbox, filled, len(inbox) - filled)
        if got < 0:
            state[STATE_SENT] = sent_bytes // frame_bytes
            state[STATE_REPLIES] = replies
            return STATUS_CLOSED if got == CLOSED else STATUS_SOCKET_FAILED
        filled += got
        at = 0
        while filled - at >= reply_bytes:
            place = frame_count if replies == requests - 1 else replies % frame_count
            if not check_reply(inbox, at, plan, place, next_offset):
                state[STATE_SENT] = sent_bytes // frame_bytes
                state[STATE_REPLIES] = replies
                state[STATE_REPLY_AT] = at
                state[STATE_NEXT_OFFSET] = next_offset
                return STATUS_UNEXPECTED_REPLY
            replies += 1
            next_offset += records
            at += reply_bytes
        if at > 0:
            # The rest is less than a response, and lies behind whole ones: no overlap.
            copy_bytes(inbox, 0, inbox, at, filled - at)
            filled -= at
        if progress == 0 and got == WOULD_BLOCK:
            if filled >= 4 and filled - 4 >= read_i32(inbox, 0):
                # A whole response that is shorter than the expected one has an error.
                state[STATE_REPLIES] = replies
                state[STATE_REPLY_AT] = 0
                state[STATE_NEXT_OFFSET] = next_offset
                return STATUS_UNEXPECTED_REPLY
            if now_ns(scratch) > deadline_ns:
                state[STATE_SENT] = sent_bytes // frame_bytes
                state[STATE_REPLIES] = replies
                return STATUS_TOO_LATE
            wait_ready(fd, sent_bytes < all_bytes, _POLL_MS, scratch)
    state[STATE_SENT] = requests
    state[STATE_REPLIES] = replies
    state[STATE_NEXT_OFFSET] = next_offset
    return STATUS_OK


@kernel(
    *("i64", "in64", "in64", "in8", "in64"),
    *("out8", "out8", "out64", "out64", "out64", "out64", "out64"),
)
def produce_one_outstanding(
    epoll_fd: int,
    sockets: Array,
    index_of: Array,
    frame: Array,
    plan: Array,
    inbox: Array,
    events: Array,
    filled: Array,
    state: Array,
    sent_ns: Array,
    latencies_ns: Array,
    scratch: Array,
) -> int:
    """Keep one request outstanding on each of many sockets until PLAN_REQUESTS have been answered.

    The sockets are registered with ``epoll_fd`` for reading; ``index_of`` leads from a socket's
    number to its place. ``inbox`` has PLAN_REPLY_BYTES for each. ``latencies_ns`` takes one value
    for each request. ``filled`` begins with zeros; its second half has each connection's last
    offset. Returns a status; after an unexpected response STATE_REPLY_AT is its place in ``inbox``.
    """
    connections = int(plan[PLAN_CONNECTIONS])
    requests = int(plan[PLAN_REQUESTS])
    frame_bytes = int(plan[PLAN_FRAME_BYTES])
    reply_bytes = int(plan[PLAN_REPLY_BYTES])
    offset_at = int(plan[PLAN_REPLY_OFFSET_AT])
    deadline_ns = int(plan[PLAN_DEADLINE_NS])
    event_bytes = int(plan[PLAN_EVENT_BYTES])
    event_fd_at = int(plan[PLAN_EVENT_FD_AT])
    most_events = len(events) // event_bytes
    sent = 0
    replies = 0
    for index in range(connections):
        filled[connections + index] = int(plan[PLAN_FIRST_OFFSET]) - 1
        if sent < requests:
            sent_ns[index] = now_ns(scratch)
            # A socket with no request outstanding has space for a whole request.
            if send_some(int(sockets[index]), frame, 0, frame_bytes) != frame_bytes:
                return STATUS_SOCKET_FAILED
            sent += 1
    while replies < requests:
        ready = epoll_wait(epoll_fd, events, most_events, _POLL_MS)
        if ready <= 0 and now_ns(scratch) > deadline_ns:
            state[STATE_SENT] = sent
            state[STATE_REPLIES] = replies
            return STATUS_TOO_LATE
        for event in range(ready):
            fd = load_u32(events, event * event_bytes + event_fd_at)
            index = int(index_of[fd])
            at = index * reply_bytes
            have = int(filled[index])
            got = receive_some(fd, inbox, at + have, reply_bytes - have)
            if got < 0:
                state[STATE_SENT] = sent
                state[STATE_REPLIES] = replies
                return STATUS_CLOSED if got == CLOSED else STATUS_SOCKET_FAILED
            have += got
            filled[index] = have
            is_short = have >= 4 and have - 4 >= read_i32(inbox, at)
            if have < reply_bytes and not is_short:
                continue
            offset = int(read_i64(inbox, at + offset_at))
            if offset <= int(filled[connections + index]) or not check_reply(
                inbox, at, plan, 0, offset
            ):
                state[STATE_SENT] = sent
                state[STATE_REPLIES] = replies
                state[STATE_REPLY_AT] = at
                state[STATE_NEXT_OFFSET] = int(filled[connections + index]) + 1
                return STATUS_UNEXPECTED_REPLY
            filled[index] = 0
            filled[connections + index] = offset
            now = now_ns(scratch)
            latencies_ns[replies] = now - int(sent_ns[index])
            replies += 1
            if sent < requests:
                sent_ns[index] = now
                if send_some(fd, frame, 0, frame_bytes) != frame_bytes:
                    state[STATE_SENT] = sent
                    state[STATE_REPLIES] = replies
                    return STATUS_SOCKET_FAILED
                sent += 1
    state[STATE_SENT] = sent
    state[STATE_REPLIES] = replies
    return STATUS_OK
