"""Small requests: one outstanding on each of many connections (or of one), always the same."""

from benchmarks._load.checks import is_same_reply
from benchmarks._load.libc import CLOSED, epoll_wait, now_ns, receive_some, send_some
from benchmarks._load.plans import (
    PLAN_CONNECTIONS,
    PLAN_DEADLINE_NS,
    PLAN_EVENT_BYTES,
    PLAN_EVENT_FD_AT,
    PLAN_FRAME_BYTES,
    PLAN_REPLY_BYTES,
    PLAN_REQUESTS,
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
from pyspark_klog.records.kernels.memory import load_u32, read_i32, write_i32

_CORRELATION_ID_AT = 8
_POLL_MS = 500


@kernel(
    *("i64", "in64", "in64", "out8", "in8", "in64"),
    *("out8", "out8", "out64", "out64", "out64", "out64", "out64"),
)
def ask_one_outstanding(
    epoll_fd: int,
    sockets: Array,
    index_of: Array,
    requests_of: Array,
    replies_of: Array,
    plan: Array,
    inbox: Array,
    events: Array,
    filled: Array,
    state: Array,
    sent_ns: Array,
    latencies_ns: Array,
    scratch: Array,
) -> int:
    """Keep one request outstanding on each socket until PLAN_REQUESTS have been answered.

    The sockets are registered with ``epoll_fd`` for reading; ``index_of`` leads from a socket's
    number to its place. Each place has PLAN_FRAME_BYTES in ``requests_of``, where the correlation
    id is written, and PLAN_REPLY_BYTES in ``inbox`` and in ``replies_of``. ``replies_of`` has the
    expected response, whose correlation id is ignored. ``latencies_ns`` takes one value for each
    request. Returns a status; after an unexpected response STATE_REPLY_AT is its place in
    ``inbox``.
    """
    connections = int(plan[PLAN_CONNECTIONS])
    requests = int(plan[PLAN_REQUESTS])
    frame_bytes = int(plan[PLAN_FRAME_BYTES])
    reply_bytes = int(plan[PLAN_REPLY_BYTES])
    deadline_ns = int(plan[PLAN_DEADLINE_NS])
    event_bytes = int(plan[PLAN_EVENT_BYTES])
    event_fd_at = int(plan[PLAN_EVENT_FD_AT])
    most_events = len(events) // event_bytes
    sent = 0
    replies = 0
    for index in range(connections):
        if sent < requests:
            sent_ns[index] = now_ns(scratch)
            write_i32(requests_of, index * frame_bytes + _CORRELATION_ID_AT, sent)
            # A socket with no request outstanding has space for a whole request.
            count = send_some(int(sockets[index]), requests_of, index * frame_bytes, frame_bytes)
            if count != frame_bytes:
                return STATUS_SOCKET_FAILED
            sent += 1
    while replies < requests:
        ready = epoll_wait(epoll_fd, events, most_events, _POLL_MS)
        state[STATE_SENT] = sent
        state[STATE_REPLIES] = replies
        if ready <= 0 and now_ns(scratch) > deadline_ns:
            return STATUS_TOO_LATE
        for event in range(ready):
            fd = load_u32(events, event * event_bytes + event_fd_at)
            index = int(index_of[fd])
            at = index * reply_bytes
            request_at = index * frame_bytes
            have = int(filled[index])
            got = receive_some(fd, inbox, at + have, reply_bytes - have)
            if got < 0:
                return STATUS_CLOSED if got == CLOSED else STATUS_SOCKET_FAILED
            have += got
            filled[index] = have
            is_short = have >= 4 and have - 4 >= read_i32(inbox, at)
            if have < reply_bytes and not is_short:
                continue
            correlation_id = read_i32(requests_of, request_at + _CORRELATION_ID_AT)
            if not is_same_reply(inbox, replies_of, at, have, reply_bytes, correlation_id):
                state[STATE_REPLY_AT] = at
                return STATUS_UNEXPECTED_REPLY
            filled[index] = 0
            now = now_ns(scratch)
            latencies_ns[replies] = now - int(sent_ns[index])
            replies += 1
            if sent < requests:
                sent_ns[index] = now
                write_i32(requests_of, request_at + _CORRELATION_ID_AT, sent)
                if send_some(fd, requests_of, request_at, frame_bytes) != frame_bytes:
                    return STATUS_SOCKET_FAILED
                sent += 1
    state[STATE_SENT] = sent
    state[STATE_REPLIES] = replies
    return STATUS_OK
