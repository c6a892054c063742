"""Responses in the order of their requests, and the parts of them that are still to be sent.

A slot is a request's place in its connection's queue. Slots are filled in any order, but responses
leave the queue only from its head, as outgoing parts: byte strings and file regions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from klog_broker.network.bounds import PROBED_BYTES, READ_AHEAD_BYTES
from klog_broker.network.large_frame import LargeFrame
from klog_broker.runtime.disk.files import ProbedRegion
from klog_broker.runtime.net.sockets import StreamSocket

# The most parts (byte strings) of responses in one send call: below the limit of sendmsg, which
# takes 1024 buffers (IOV_MAX).
_PARTS_PER_SEND = 256
COUNTED_ELSEWHERE = -1
_IN_MEMORY = (bytes, bytearray, memoryview)


class SlotState(Enum):
    """The state of a place in the queue of responses: it has no response yet (WAITING), it has one,
    its request gets no response (SKIPPED), or it closes the connection."""

    WAITING = "waiting"
    ANSWERED = "answered"
    SKIPPED = "skipped"
    CLOSES = "closes"


class SlotOwner(Protocol):
    """The methods of a connection's outbox that the places (`QueuedResponse`) in its queue of
    responses use."""

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, so that responses can be sent."""

    def on_slot_filled(self, slot: QueuedResponse) -> None:
        """Called when ``slot`` (a response's place in the queue) has been filled: it has a response
        (``complete``), its request gets no response (``skip``), or it closes the connection
        (``close``)."""

    def on_slot_held(self) -> None:
        """Pass no more requests of the connection to handlers until the request whose handler has
        called ``hold`` is answered."""

    def flush_now(self) -> None:
        """Send the scheduled responses now, before the event-loop turn's send phase."""


class QueuedResponse:
    """The place in a connection's queue of responses for one request's response, or for those of
    several Produce requests that a produce plan has served.

    Only one of ``complete``, ``skip`` and ``close`` is called, and none of them if the request is
    canceled because the connection has closed.
    """

    __slots__ = (
        "_owner",
        "_when_closed",
        "api_key",
        "began_ns",
        "close_reason",
        "fits_one_send",
        "frame",
        "head",
        "is_held",
        "keeps_frame",
        "parts",
        "size_bytes",
        "state",
    )

    def __init__(self, owner: SlotOwner, api_key: int, head: int, began_ns: int) -> None:
        self._owner = owner
        self.api_key = api_key
        self.head = head
        """The request's API key (upper 16 bits) and version (lower 16 bits), under which the
        metrics count it as answered. COUNTED_ELSEWHERE if the place is for Produce requests that
        the compiled kernel has served together (in a produce plan): produce/planner.py counts
        these."""
        self.began_ns = began_ns
        """The time in ns of the event-loop turn in which the request was passed to its handler."""
        self.state = SlotState.WAITING
        self.parts: list[Any] = []
        self.size_bytes = 0
        """The size in bytes of the response's parts in memory (byte strings); file regions do not
        count."""
        self.fits_one_send = True
        """Whether one send call can take the response's parts: at most _PARTS_PER_SEND parts, and
        no file region."""
        self.close_reason = ""
        self.frame: LargeFrame | None = None
        """The large frame (RECEIVE_BYTES or more) in whose own buffer the request arrived; None if
        there is none, or its buffer was returned to the pool."""
        self.is_held = False
        self.keeps_frame = False
        self._when_closed: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return self._owner.is_open

    @property
    def is_filled(self) -> bool:
        """Whether complete, skip or close was called."""
        return self.state is not SlotState.WAITING

    def complete(self, parts: list[Any]) -> None:
        """Answer with a whole frame in parts: byte strings, and file regions with ``file``,
        ``position`` and ``size``."""
        self.parts = parts
        self.fits_one_send = len(parts) <= _PARTS_PER_SEND
        for part in parts:
            if isinstance(part, _IN_MEMORY):
                self.size_bytes += len(part)
            else:
                self.fits_one_send = False
        self._fill(SlotState.ANSWERED)

    def send_early(self) -> None:
        """Send the response now, before the event-loop turn's send phase, unless an earlier
        response of the connection is still missing."""
        self._owner.flush_now()

    def skip(self) -> None:
        """End the request without a response, as for Produce with acks=0."""
        self._fill(SlotState.SKIPPED)

    def close(self, reason: str) -> None:
        """Close the connection once all earlier responses are sent."""
        self.close_reason = reason
        self._fill(SlotState.CLOSES)

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` if the connection closes before the request is answered. After the
        call, the caller must not read the request's bytes."""
        self._when_closed = callback

    def hold(self) -> bool:
        """Stop parsing the connection until the request is answered.

        Returns whether the request's bytes stay valid until then. If the connection closes earlier,
        they stay valid until a callback of ``when_closed`` was called.
        """
        if self.state is not SlotState.WAITING:
            return False
        if not self.is_held:
            self.is_held = True
            self._owner.on_slot_held()
        return self.frame is not None

    def end_turn(self) -> None:
        """Called after the event-loop turn that parsed the request. If the request was a large
        frame, which has a buffer of its own, return this buffer to the pool.

        If ``hold`` was called, the buffer is returned only once the request is answered.
        """
        if self.frame is None:
            return
        if self.is_held and self.state is SlotState.WAITING:
            self.keeps_frame = True
        else:
            self.give_back_frame()

    def give_back_frame(self) -> None:
        """Return the large frame's buffer to the pool of buffers for large frames, because its
        bytes are no longer used."""
        if self.frame is not None:
            frame, self.frame = self.frame, None
            frame.give_back()

    def connection_closed(self) -> None:
        """Drop the response, and call the `when_closed` callback if the request is not answered
        yet.

        The callback cancels the operation that would answer. Such an operation no longer reads the
        request, so a large frame's buffer that was kept for it is returned to the pool.
        """
        self.parts = []
        callback, self._when_closed = self._when_closed, None
        if callback is not None and self.state is SlotState.WAITING:
            callback()
            if self.keeps_frame:
                self.give_back_frame()

    def _fill(self, state: SlotState) -> None:
        if self.state is not SlotState.WAITING:
            raise RuntimeError(
                f"a request was answered twice: {self.state.value}, then {state.value}"
            )
        self.state = state
        # The callback often refers to the request's context, which refers to this slot (the place
        # of the response in the queue): the cycle would keep the parts of the response, and with
        # them files, until a garbage collection.
        self._when_closed = None
        self._owner.on_slot_filled(self)


class Sent(Enum):
    """Why ``OutgoingParts.send`` stopped."""

    ALL = "all"
    BLOCKED = "blocked"  # the socket accepts no more bytes now
    BUDGET = "budget"  # this call of ``send`` has sent its limit, budget_bytes
    COLD = "cold"  # the next piece of a file is not in the page cache: it must be read ahead first


class ShortRegion(OSError):
    """A file is shorter than expected: it ends before the end of a region that a response sends."""


class OutgoingParts:
    """The parts (byte strings and file regions) of responses that a connection may send now, and
    how many bytes of the first part are sent."""

    __slots__ = ("_done_bytes", "_parts", "_warm_end", "bytes_in_memory")

    def __init__(self) -> None:
        self._parts: deque[Any] = deque()
        self._done_bytes = 0
        self._warm_end = 0
        self.bytes_in_memory = 0

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, slot: QueuedResponse) -> None:
        """Add a response's parts (byte strings and file regions) behind those that are still to be
        sent."""
        for part in slot.parts:
            if isinstance(part, _IN_MEMORY):
                if len(part):
                    self._parts.append(part)
                    self.bytes_in_memory += len(part)
            elif part.size:
                self._parts.append(part)
        # The slot (the response's place in the queue) may outlive the sending, and must not keep
        # files open: a region's file closes with the last reference to the region.
        slot.parts = []

    def send(
        self, stream: StreamSocket, budget_bytes: int, *, is_fresh: bool = False
    ) -> tuple[Sent, int]:
        """Send up to ``budget_bytes`` of the responses' parts. Byte strings may exceed this budget,
        file regions may not.

        Returns why the sending stopped, and the number of sent bytes. Before a piece of a file is
        sent, the page cache is probed for it, because sendfile of a page that is not in the page
        cache blocks even on a non-blocking socket. ``is_fresh`` means that all parts were added in
        this event-loop turn. Then a small ProbedRegion (whose first and last byte were found in the
        page cache when it was created) needs no further probe.
        """
        sent_bytes = 0
        parts = self._parts
        while parts:
            left_bytes = budget_bytes - sent_bytes
            if left_bytes <= 0:
                return Sent.BUDGET, sent_bytes
            first = parts[0]
            try:
                if isinstance(first, _IN_MEMORY):
                    batch = self._bytes_at_the_head()
                    # Bytes before a file piece are sent with MSG_MORE, to share a packet with it.
                    is_last = len(parts) == len(batch)
                    count = stream.send(batch) if is_last else stream.send_more(batch)
                    wanted = sum(map(len, batch))
                    self.advance_bytes(count)
                else:
                    wanted = min(first.size - self._done_bytes, left_bytes)
                    if not (
                        is_fresh and type(first) is ProbedRegion and first.size <= PROBED_BYTES
                    ):
                        wanted = self._warm_bytes(first, wanted)
                        if wanted == 0:
                            return Sent.COLD, sent_bytes
                    count = self._send_piece(stream, first, wanted)
            except (BlockingIOError, InterruptedError):
                return Sent.BLOCKED, sent_bytes
            sent_bytes += count
            if count < wanted:
                return Sent.BLOCKED, sent_bytes
        return Sent.ALL, sent_bytes

    def _send_piece(self, stream: StreamSocket, region: Any, size_bytes: int) -> int:
        """Send the next bytes of the first part, a file region; return the number of sent bytes."""
        done_bytes = self._done_bytes
        count = stream.send_file(region.file, region.position + done_bytes, size_bytes)
        if count == 0:
            raise ShortRegion(
                f"{region.file!r} is too short for a response with its {region.size} bytes from"
                f" position {region.position} on"
            )
        self._done_bytes = done_bytes + count
        if self._done_bytes == region.size:
            self._parts.popleft()
            self._done_bytes = 0
            self._warm_end = 0
        return count

    def cold_region(self) -> tuple[Any, int, int]:
        """The file, position and size of the next piece of a file to send, after ``send`` returned
        COLD: the piece is not in the page cache, and a helper thread has to read it ahead."""
        region = self._parts[0]
        left = region.size - self._done_bytes
        return region.file, region.position + self._done_bytes, min(left, READ_AHEAD_BYTES)

    def warmed(self, size_bytes: int) -> None:
        """Record that the next ``size_bytes`` of the first part, a file region, were read from the
        disk into the page cache.

        These bytes are sent without probing the page cache again: if the cache is too small to keep
        them, each probe would request the same read-ahead again, forever.
        """
        self._warm_end = self._done_bytes + size_bytes

    def clear(self) -> None:
        """Drop all parts (byte strings and file regions) that are still to be sent, because the
        connection is closed."""
        self._parts.clear()
        self.bytes_in_memory = 0

    def _warm_bytes(self, region: Any, size_bytes: int) -> int:
        """How many of the next ``size_bytes`` of the first part, a file region, can be sent without
        waiting for the disk."""
        read_ahead_bytes = self._warm_end - self._done_bytes
        if read_ahead_bytes > 0:
            return min(size_bytes, read_ahead_bytes)
        file, start = region.file, region.position + self._done_bytes
        warm_bytes = min(size_bytes, PROBED_BYTES)
        if not file.is_warm(start, warm_bytes):
            return 0
        while warm_bytes < size_bytes:
            end = min(size_bytes, warm_bytes + PROBED_BYTES)
            if not file.is_warm(start + end - 1, 1):
                break
            warm_bytes = end
        return warm_bytes

    def _bytes_at_the_head(self) -> list[Any]:
        batch: list[Any] = []
        for part in self._parts:
            if not isinstance(part, _IN_MEMORY) or len(batch) == _PARTS_PER_SEND:
                break
            batch.append(part)
        if self._done_bytes:
            batch[0] = memoryview(batch[0])[self._done_bytes :]
        return batch

    def advance_bytes(self, count: int) -> None:
        """Remove ``count`` bytes, which were just sent, from the first parts of the responses.
        These parts must be byte strings, not file regions."""
        count += self._done_bytes
        while count and count >= len(self._parts[0]):
            size = len(self._parts.popleft())
            self.bytes_in_memory -= size
            count -= size
        self._done_bytes = count


class PendingResponse(Protocol):
    """The delayed responses to acks=all requests that a produce plan has served (the compiled
    kernel serves many connections together): the responses wait until the followers have the
    batches."""

    def wait(self, place: QueuedResponse, /) -> None:
        """Complete ``place`` (in the connection's queue of responses) with these delayed responses
        to Produce requests, once each batch of the requests is replicated or has failed, or the
        requests' timeout has passed."""
