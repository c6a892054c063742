"""Transactions on many connections, a producer on each: batches, then EndTxn, then the next one.

The kernel speaks transaction.version 2 (KIP-890): Produce adds its partition, and EndTxn returns
the producer's next id and epoch. A request that gets CONCURRENT_TRANSACTIONS is sent again after a
pause. Every response is checked: its correlation id, error code and offset.
"""

from benchmarks._load.libc import CLOSED, epoll_wait, now_ns, receive_some, send_some, wait_ready
from benchmarks._load.plans import (
    STATUS_CLOSED,
    STATUS_OK,
    STATUS_SOCKET_FAILED,
    STATUS_TOO_LATE,
    STATUS_UNEXPECTED_REPLY,
)
from benchmarks._load.transaction_plans import (
    BOOK_APPENDED,
    BOOK_BEGAN_NS,
    BOOK_EPOCH,
    BOOK_FILLED,
    BOOK_LAST_OFFSET,
    BOOK_PHASE,
    BOOK_PRODUCER_ID,
    BOOK_REFUSED,
    BOOK_REPLIES,
    BOOK_REQUESTS,
    BOOK_SENT,
    BOOK_SEQUENCE,
    BOOK_SOCKET,
    BOOK_WAKE_NS,
    BOOK_WORDS,
    PHASE_ENDING,
    PHASE_IDLE,
    PHASE_PRODUCING,
    SHARED_BEGUN,
    SHARED_ENDED,
    SHARED_IS_PRODUCE,
    SHARED_REPLY_AT,
    SHARED_RETRIES,
    TXN_BATCH_END_AT,
    TXN_BATCH_START_AT,
    TXN_BATCHES,
    TXN_CONNECTIONS,
    TXN_DEADLINE_NS,
    TXN_END_BYTES,
    TXN_END_PRODUCER_AT,
    TXN_ENDED_PRODUCER_AT,
    TXN_ENDS,
    TXN_EVENT_BYTES,
    TXN_EVENT_FD_AT,
    TXN_IN_FLIGHT,
    TXN_OFFSET_AT,
    TXN_PRODUCE_BYTES,
    TXN_RECORDS,
    TXN_TRANSACTIONS,
)
from pyspark_klog.records.kernels.crc import crc32c
from pyspark_klog.records.kernels.jit import Array, inline, kernel
from pyspark_klog.records.kernels.memory import (
    copy_bytes,
    load_u32,
    read_i16,
    read_i32,
    read_i64,
    write_i32,
    write_i64,
)
from pyspark_klog.records.layout import (
    BASE_SEQUENCE_AT,
    CRC_AT,
    CRC_START_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
)

INBOX_BYTES = 4096
"""Bytes of the inbox of each connection: a response with an error has a text."""

_CORRELATION_ID_AT = 8
_POLL_MS = 500
_PAUSING_POLL_MS = 1
# Kafka's clients pause this long before they ask again whether the last transaction has ended.
_PAUSE_NS = 5_000_000
_CONCURRENT_TRANSACTIONS = 51
_LAST_SEQUENCE = 2**31 - 1


@inline
def write_i16(out: Array, position: int, number: int) -> None:
    """Write a number of 16 bits, big-endian."""
    out[position] = number >> 8 & 0xFF
    out[position + 1] = number & 0xFF


@inline
def send_whole(fd: int, buf: Array, start: int, count: int, scratch: Array) -> bool:
    """Send all bytes, waiting for space in the socket: the broker goes on without our reads."""
    sent = 0
    while sent < count:
        progress = send_some(fd, buf, start + sent, count - sent)
        if progress < 0:
            return False
        sent += progress
        if sent < count:
            wait_ready(fd, True, _POLL_MS, scratch)
    return True


@inline
def send_batch(frames: Array, index: int, book: Array, plan: Array, scratch: Array) -> bool:
    """Send the connection's next batch."""
    at = index * BOOK_WORDS
    frame_bytes = int(plan[TXN_PRODUCE_BYTES])
    frame_at = index * frame_bytes
    start = frame_at + int(plan[TXN_BATCH_START_AT])
    before = int(book[at + BOOK_SENT]) * int(plan[TXN_RECORDS])
    write_i32(frames, frame_at + _CORRELATION_ID_AT, int(book[at + BOOK_REQUESTS]))
    write_i64(frames, start + PRODUCER_ID_AT, int(book[at + BOOK_PRODUCER_ID]))
    write_i16(frames, start + PRODUCER_EPOCH_AT, int(book[at + BOOK_EPOCH]))
    sequence = (int(book[at + BOOK_SEQUENCE]) + before) & _LAST_SEQUENCE
    write_i32(frames, start + BASE_SEQUENCE_AT, sequence)
    crc = crc32c(frames, start + CRC_START_AT, frame_at + int(plan[TXN_BATCH_END_AT]))
    write_i32(frames, start + CRC_AT, crc)
    book[at + BOOK_SENT] += 1
    book[at + BOOK_REQUESTS] += 1
    return send_whole(int(book[at + BOOK_SOCKET]), frames, frame_at, frame_bytes, scratch)


@inline
def send_end(ends: Array, index: int, book: Array, plan: Array, scratch: Array) -> bool:
    """Send EndTxn for the connection's transaction."""
    at = index * BOOK_WORDS
    frame_bytes = int(plan[TXN_END_BYTES])
    frame_at = index * frame_bytes
    producer_at = frame_at + int(plan[TXN_END_PRODUCER_AT])
    write_i32(ends, frame_at + _CORRELATION_ID_AT, int(book[at + BOOK_REQUESTS]))
    write_i64(ends, producer_at, int(book[at + BOOK_PRODUCER_ID]))
    write_i16(ends, producer_at + 8, int(book[at + BOOK_EPOCH]))
    book[at + BOOK_PHASE] = PHASE_ENDING
    book[at + BOOK_REQUESTS] += 1
    return send_whole(int(book[at + BOOK_SOCKET]), ends, frame_at, frame_bytes, scratch)


@inline
def go_on(
    frames: Array, ends: Array, index: int, book: Array, plan: Array, shared: Array, scratch: Array
) -> bool:
    """Send all requests that the connection may send now; False if its socket failed."""
    at = index * BOOK_WORDS
    if book[at + BOOK_PHASE] == PHASE_IDLE:
        if shared[SHARED_BEGUN] == plan[TXN_TRANSACTIONS]:
            return True
        shared[SHARED_BEGUN] += 1
        book[at + BOOK_PHASE] = PHASE_PRODUCING
        book[at + BOOK_SENT] = 0
        book[at + BOOK_APPENDED] = 0
        book[at + BOOK_BEGAN_NS] = now_ns(scratch)
    if book[at + BOOK_PHASE] != PHASE_PRODUCING or book[at + BOOK_REFUSED] != 0:
        return True
    batches = int(plan[TXN_BATCHES])
    if book[at + BOOK_APPENDED] == batches:
        return send_end(ends, index, book, plan, scratch)
    while (
        book[at + BOOK_SENT] < batches
        and book[at + BOOK_REQUESTS] - book[at + BOOK_REPLIES] < plan[TXN_IN_FLIGHT]
    ):
        if not send_batch(frames, index, book, plan, scratch):
            return False
    return True


@inline
def finish(index: int, book: Array, shared: Array, took_ns: Array, now: int) -> None:
    """Note the end of a transaction."""
    at = index * BOOK_WORDS
    took_ns[int(shared[SHARED_ENDED])] = now - int(book[at + BOOK_BEGAN_NS])
    shared[SHARED_ENDED] += 1
    book[at + BOOK_PHASE] = PHASE_IDLE


@inline
def handle_response(
    inbox: Array, start: int, index: int, book: Array, plan: Array, shared: Array,
    took_ns: Array, now: int,
) -> bool:  # fmt: skip
    """Note the result in the whole response at ``start``; False if the response is unexpected."""
    at = index * BOOK_WORDS
    is_end = book[at + BOOK_PHASE] == PHASE_ENDING
    place = start + int(plan[TXN_ENDED_PRODUCER_AT] if is_end else plan[TXN_OFFSET_AT])
    error = int(read_i16(inbox, place - 2))
    value = int(read_i64(inbox, place))
    if read_i32(inbox, start + 4) != book[at + BOOK_REPLIES]:
        return False
    book[at + BOOK_REPLIES] += 1
    if error == _CONCURRENT_TRANSACTIONS or (error != 0 and book[at + BOOK_REFUSED] != 0):
        # Batches that were sent behind a refused one are out of order.
        book[at + BOOK_REFUSED] = 1
        if book[at + BOOK_REPLIES] == book[at + BOOK_REQUESTS]:
            book[at + BOOK_REFUSED] = 0
            book[at + BOOK_PHASE] = PHASE_PRODUCING
            book[at + BOOK_SENT] = book[at + BOOK_APPENDED]
            book[at + BOOK_WAKE_NS] = now + _PAUSE_NS
            shared[SHARED_RETRIES] += 1
        return True
    if error != 0 or book[at + BOOK_REFUSED] != 0:
        return False
    if is_end:
        book[at + BOOK_PRODUCER_ID] = value
        book[at + BOOK_EPOCH] = int(read_i16(inbox, place + 8))
        book[at + BOOK_SEQUENCE] = 0
        finish(index, book, shared, took_ns, now)
        return True
    if value <= book[at + BOOK_LAST_OFFSET]:
        return False
    book[at + BOOK_LAST_OFFSET] = value
    book[at + BOOK_APPENDED] += 1
    batches = int(plan[TXN_BATCHES])
    if plan[TXN_ENDS] == 0 and book[at + BOOK_APPENDED] == batches:
        sequence = int(book[at + BOOK_SEQUENCE]) + batches * int(plan[TXN_RECORDS])
        book[at + BOOK_SEQUENCE] = sequence & _LAST_SEQUENCE
        finish(index, book, shared, took_ns, now)
    return True


@inline
def receive(
    inbox: Array, index: int, book: Array, plan: Array, shared: Array, took_ns: Array,
    scratch: Array,
) -> int:  # fmt: skip
    """Handle the responses that a connection has received; return a status."""
    at = index * BOOK_WORDS
    inbox_at = index * INBOX_BYTES
    have = int(book[at + BOOK_FILLED])
    got = receive_some(int(book[at + BOOK_SOCKET]), inbox, inbox_at + have, INBOX_BYTES - have)
    if got < 0:
        return STATUS_CLOSED if got == CLOSED else STATUS_SOCKET_FAILED
    end = inbox_at + have + got
    start = inbox_at
    now = now_ns(scratch)
    while end - start >= 4 and end - start - 4 >= read_i32(inbox, start):
        shared[SHARED_REPLY_AT] = start
        shared[SHARED_IS_PRODUCE] = int(book[at + BOOK_PHASE] == PHASE_PRODUCING)
        if not handle_response(inbox, start, index, book, plan, shared, took_ns, now):
            return STATUS_UNEXPECTED_REPLY
        start += 4 + int(read_i32(inbox, start))
    if start > inbox_at:
        for place in range(end - start):
            copy_bytes(inbox, inbox_at + place, inbox, start + place, 1)
    book[at + BOOK_FILLED] = end - start
    return STATUS_OK


@inline
def wake(
    frames: Array, ends: Array, book: Array, plan: Array, shared: Array, scratch: Array
) -> int:
    """Resume connections after their pause; return how many still pause, -1 if a socket failed."""
    now = now_ns(scratch)
    pausing = 0
    for index in range(int(plan[TXN_CONNECTIONS])):
        at = index * BOOK_WORDS
        wake_ns = int(book[at + BOOK_WAKE_NS])
        if wake_ns > now:
            pausing += 1
        elif wake_ns > 0:
            book[at + BOOK_WAKE_NS] = 0
            if not go_on(frames, ends, index, book, plan, shared, scratch):
                return -1
    return pausing


@kernel(
    *("i64", "in64", "in64", "out8", "out8", "out64"),
    *("out8", "out8", "out64", "out64", "out64"),
)
def transact(
    epoll_fd: int,
    index_of: Array,
    plan: Array,
    frames: Array,
    ends: Array,
    book: Array,
    inbox: Array,
    events: Array,
    shared: Array,
    took_ns: Array,
    scratch: Array,
) -> int:
    """Carry out TXN_TRANSACTIONS transactions, one at a time on each connection.

    The sockets are registered with ``epoll_fd`` for reading; ``index_of`` leads from a socket's
    number to its place. Each place has TXN_PRODUCE_BYTES in ``frames``, TXN_END_BYTES in ``ends``,
    BOOK_WORDS in ``book`` and INBOX_BYTES in ``inbox``. ``took_ns`` takes a value for each
    transaction. Returns a status; SHARED_REPLY_AT is the place of an unexpected response in
    ``inbox``.
    """
    event_bytes = int(plan[TXN_EVENT_BYTES])
    most_events = len(events) // event_bytes
    transactions = int(plan[TXN_TRANSACTIONS])
    pausing = 0
    for index in range(int(plan[TXN_CONNECTIONS])):
        if not go_on(frames, ends, index, book, plan, shared, scratch):
            return STATUS_SOCKET_FAILED
    while shared[SHARED_ENDED] < transactions:
        poll_ms = _PAUSING_POLL_MS if pausing else _POLL_MS
        ready = epoll_wait(epoll_fd, events, most_events, poll_ms)
        if ready <= 0 and now_ns(scratch) > int(plan[TXN_DEADLINE_NS]):
            return STATUS_TOO_LATE
        retries = int(shared[SHARED_RETRIES])
        for event in range(ready):
            fd = load_u32(events, event * event_bytes + int(plan[TXN_EVENT_FD_AT]))
            index = int(index_of[fd])
            status = receive(inbox, index, book, plan, shared, took_ns, scratch)
            if status != STATUS_OK:
                return status
            if book[index * BOOK_WORDS + BOOK_WAKE_NS] == 0 and not go_on(
                frames, ends, index, book, plan, shared, scratch
            ):
                return STATUS_SOCKET_FAILED
        if pausing or shared[SHARED_RETRIES] > retries:
            pausing = wake(frames, ends, book, plan, shared, scratch)
            if pausing < 0:
                return STATUS_SOCKET_FAILED
    return STATUS_OK
