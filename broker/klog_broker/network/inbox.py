"""The received bytes of one connection, which the inbox cuts into requests.

Bytes that came in this event-loop turn are a piece of the shared receive arena (``unparsed``). When
the turn ends, the bytes of requests that are not begun (passed to a handler) move to the
connection's own buffer (``rest``). A frame of RECEIVE_BYTES or more that does not arrive in one
turn gets a buffer that grows as the frame arrives (``large``). While no request may be begun, bytes
are received into ``rest``, up to RECEIVE_BYTES, to notice the end of the stream.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from klog_broker.network.bounds import (
    LEAST_RECEIVE_BYTES,
    METADATA_REQUEST_BYTES,
    MIN_REQUEST_BYTES,
    RECEIVE_BYTES,
)
from klog_broker.network.large_frame import LargeFrame
from klog_broker.network.memory import ReceiveMemory
from klog_broker.runtime.net.sockets import StreamSocket
from pyspark_klog.protocol.keys import ApiKey

_SIZE = struct.Struct(">i")
_API_KEY = struct.Struct(">h")
FRAME_HEAD = struct.Struct(">ihh")
"""The first fields of a frame: size, API key, version."""

PRODUCE = int(ApiKey.PRODUCE)
NO_REQUEST = -1
"""The result of ``next_api_key`` while no whole request has arrived."""
_ARENA_FULL = -1

_EMPTY = memoryview(b"")
_NOTHING = bytearray()


class BadFrame(Exception):
    """The received bytes cannot be cut into requests; the text has the reason."""


class Inbox:
    """The received bytes of one connection that are not passed to handlers yet. Loop thread
    only."""

    __slots__ = (
        "_arena_end",
        "_keep",
        "_max_request_bytes",
        "_memory",
        "_rest",
        "_stream",
        "_unparsed",
        "_waits_for_memory",
        "large",
    )

    def __init__(
        self,
        stream: StreamSocket,
        memory: ReceiveMemory,
        max_request_bytes: int,
        keep: Callable[[], None],
    ) -> None:
        self.large: LargeFrame | None = None
        """A frame of RECEIVE_BYTES or more that did not arrive in one event-loop turn, in its own
        buffer, while it arrives or waits for its handler; None if there is none."""
        self._stream = stream
        self._memory = memory
        self._max_request_bytes = max_request_bytes
        # `_keep` moves the unparsed bytes out of the shared receive arena. Called at the end of an
        # event-loop turn in which this inbox had unparsed bytes, and when a large frame that waited
        # for a buffer of its own may get one.
        self._keep = keep
        self._unparsed = _EMPTY
        self._arena_end = 0
        self._rest = _NOTHING
        self._waits_for_memory = False

    def __bool__(self) -> bool:
        return bool(self._unparsed or self._rest) or self.large is not None

    @property
    def has_unparsed(self) -> bool:
        """Whether some of the bytes to be parsed in this event-loop turn are not parsed yet."""
        return bool(self._unparsed)

    @property
    def is_full(self) -> bool:
        """Whether the connection must not receive more bytes for now: RECEIVE_BYTES are unparsed, a
        large frame (RECEIVE_BYTES or more) is complete, or a large frame waits for a buffer of its
        own."""
        return (
            self._waits_for_memory
            or len(self._rest) + len(self._unparsed) >= RECEIVE_BYTES
            or (self.large is not None and self.large.is_complete)
        )

    # -- receiving bytes from the client ------------------------------------------------------

    def receive(self, share_bytes: int) -> int:
        """Receive into the large frame (of RECEIVE_BYTES or more, in its own buffer) that is
        arriving, as `LargeFrame.receive` does; without one, once into the receive arena, up to
        ``share_bytes``.

        Returns the number of received bytes: 0 at the end of the stream, negative if the arena is
        full in this event-loop turn. Raises the socket's OSError.
        """
        if self.large is not None:
            return self.large.receive(self._stream)
        arena = self._memory.arena
        self._move_rest()
        rest = self._rest
        room = min(arena.free_bytes() - len(rest), share_bytes)
        if room < LEAST_RECEIVE_BYTES:
            return _ARENA_FULL
        start = arena.used_bytes
        received_at = start + len(rest)
        count = self._stream.recv_into(arena.view[received_at : received_at + room])
        if rest:
            arena.view[start:received_at] = rest
            self._rest = _NOTHING
        arena.mark_used(len(rest) + count)
        self._set_unparsed(start, received_at + count)
        return count

    def receive_into_rest(self) -> int:
        """Receive into the large frame (of RECEIVE_BYTES or more, in its own buffer) that is
        arriving, as `LargeFrame.receive` does; without one, once into the connection's own buffer
        ``rest``, until it has RECEIVE_BYTES.

        Used while no request may be passed to a handler. Returns the number of received bytes: 0 at
        the end of the stream. If ``rest`` is full, returns 1 without receiving, since 0 would mean
        the end of the stream.
        """
        if self.large is not None:
            return self.large.receive(self._stream)
        self._move_rest()
        room = RECEIVE_BYTES - len(self._rest)
        if room <= 0:
            return 1
        buffer = bytearray(room)
        count = self._stream.recv_into(memoryview(buffer))
        self._rest = self._rest + buffer[:count]
        return count

    def add_received_bytes(self, start: int, end: int) -> None:
        """Take over the receive arena's bytes from ``start`` to ``end``, which the caller received
        for this connection and marked as used."""
        self._set_unparsed(start, end)

    def _set_unparsed(self, start: int, end: int) -> None:
        self._arena_end = end
        self._unparsed = self._memory.arena.view[start:end]
        self._memory.keep_at_turn_end(self._keep)

    def keep_rest(self, *, may_begin_large: bool) -> None:
        """Move the unparsed bytes out of the receive arena, which is reused when the event-loop
        turn ends.

        If ``may_begin_large``, and the bytes are an incomplete frame of RECEIVE_BYTES or more, the
        frame gets a buffer of its own, as soon as queued.max.request.bytes allows.
        """
        self._move_rest()
        rest = self._rest
        if not may_begin_large or self.large is not None or len(rest) < 4:
            return
        size = _SIZE.unpack_from(rest)[0]
        if RECEIVE_BYTES <= size + 4 <= self._max_request_bytes + 4 and len(rest) < size + 4:
            self._begin_large_frame(size + 4)

    def _move_rest(self) -> None:
        if self._unparsed:
            self._rest = bytearray(self._unparsed)
            self._unparsed = _EMPTY

    def _begin_large_frame(self, frame_bytes: int) -> None:
        if not self._memory.may_lend():
            if not self._waits_for_memory:
                self._waits_for_memory = True
                self._memory.when_returned(self._on_memory)
            return
        self._waits_for_memory = False
        self.large = LargeFrame(self._memory, frame_bytes, self._rest)
        self._rest = _NOTHING

    def _on_memory(self) -> None:
        if self._waits_for_memory:
            self._waits_for_memory = False
            self._keep()

    def drop(self) -> LargeFrame | None:
        """Drop all bytes of a closed connection.

        Returns the large frame (of RECEIVE_BYTES or more) if there is one, else None; the caller
        must give the frame's buffer back to the pool after the event-loop turn.
        """
        large, self.large = self.large, None
        self._rest = _NOTHING
        self._waits_for_memory = False
        return large

    # -- produce plans, which serve Produce requests of many connections together --------------

    def move_rest_into_arena(self) -> None:
        """Move ``rest``, the unparsed bytes in the connection's own buffer, into the receive arena
        if they fit. The produce plan, which serves the Produce requests of many connections
        together, can serve only requests in the arena."""
        rest, arena = self._rest, self._memory.arena
        if (
            len(rest) < FRAME_HEAD.size
            or self._unparsed
            or self.large is not None
            or arena.free_bytes() < len(rest)
        ):
            return
        start = arena.used_bytes
        arena.mark_used(len(rest))
        arena.view[start : arena.used_bytes] = rest
        self._rest = _NOTHING
        self._set_unparsed(start, arena.used_bytes)

    def begins_with_produce(self) -> tuple[int, int] | None:
        """The sizes of the first frame and of all unparsed bytes, if the unparsed bytes are in the
        receive arena and begin with a Produce request; else None."""
        view = self._unparsed
        if len(view) < FRAME_HEAD.size:
            return None
        size, api_key, _ = FRAME_HEAD.unpack_from(view)
        if api_key != PRODUCE or view.obj is not self._memory.arena.view.obj:
            return None
        return size + 4, len(view)

    def arena_range(self) -> tuple[int, int] | None:
        """Start and end of the unparsed bytes in the receive arena; None if no unparsed byte is in
        the arena."""
        view = self._unparsed
        if not view or view.obj is not self._memory.arena.view.obj:
            return None
        return self._arena_end - len(view), self._arena_end

    def pass_over(self, size_bytes: int) -> None:
        """Skip the first ``size_bytes`` of the unparsed bytes: the compiled kernel has already
        served the Produce requests in them."""
        self._unparsed = self._unparsed[size_bytes:] or _EMPTY

    # -- cutting the received bytes into requests ---------------------------------------------

    def parse_rest_next(self) -> None:
        """If no bytes in the receive arena are unparsed, let ``rest``, the unparsed bytes in the
        connection's own buffer, be parsed next."""
        if self._rest and not self._unparsed and self.large is None:
            self._unparsed = memoryview(self._rest)
            self._rest = _NOTHING
            self._memory.keep_at_turn_end(self._keep)

    def next_api_key(self) -> int:
        """The API key of the next request; NO_REQUEST if it has not arrived as a whole.

        :raises BadFrame: if the frame's size is not permitted
        """
        if self.large is not None:
            return self._large_api_key(self.large)
        view = self._unparsed
        held = len(view)
        if held < 4:
            return NO_REQUEST
        size: int = _SIZE.unpack_from(view)[0]
        if not MIN_REQUEST_BYTES <= size <= self._max_request_bytes:
            raise BadFrame(
                f"a request announces {size} bytes; from {MIN_REQUEST_BYTES} to"
                f" {self._max_request_bytes} (socket.request.max.bytes) are allowed"
            )
        if held < 6:
            return NO_REQUEST
        api_key: int = _API_KEY.unpack_from(view, 4)[0]
        if size > held - 4:
            _check_metadata_size(size, api_key)
            return NO_REQUEST
        return api_key

    def _large_api_key(self, large: LargeFrame) -> int:
        if not large.is_complete:
            return NO_REQUEST
        frame = large.frame()
        api_key: int = _API_KEY.unpack_from(frame)[0]
        _check_metadata_size(len(frame), api_key)
        return api_key

    def pop_request(self) -> tuple[memoryview, LargeFrame | None]:
        """Remove the next request, which ``next_api_key`` has found.

        Returns the frame without its size, and the `LargeFrame` in whose buffer the request
        arrived, or None if the request has no buffer of its own.
        """
        large = self.large
        if large is not None:
            self.large = None
            return large.frame(), large
        view = self._unparsed
        end = 4 + _SIZE.unpack_from(view)[0]
        self._unparsed = view[end:] if end < len(view) else _EMPTY
        return view[4:end], None


def _check_metadata_size(size: int, api_key: int) -> None:
    """Raise BadFrame for a request above METADATA_REQUEST_BYTES, unless it is Produce."""
    if size > METADATA_REQUEST_BYTES and api_key != PRODUCE:
        raise BadFrame(
            f"a request of API key {api_key} announces {size} bytes; only Produce may have more"
            f" than {METADATA_REQUEST_BYTES}"
        )
