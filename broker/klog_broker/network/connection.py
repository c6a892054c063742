"""One client's connection: frames out of what is received, answers back in order.

Parsing stops while an answer is outstanding, except that Produce may follow Produce; while too many
answers wait or are unsent; and when the turn's share is used up. Reading goes on until
RECEIVE_BYTES lie unparsed, so that a client that goes away is noticed.
"""

from __future__ import annotations

import struct
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from klog_broker.network.bounds import (
    LEAST_RECEIVE_BYTES,
    METADATA_REQUEST_BYTES,
    MIN_REQUEST_BYTES,
    PENDING_REPLIES,
    PENDING_REPLY_BYTES,
    RECEIVE_BYTES,
    REQUESTS_PER_TURN,
    SEND_BYTES,
)
from klog_broker.network.large_frame import LargeFrame
from klog_broker.network.replies import OutgoingParts, ReplySlot, Sent, SlotState
from klog_broker.runtime.poller import BROKEN, READABLE, WRITABLE
from klog_broker.runtime.sockets import StreamSocket
from pyspark_klog.protocol.keys import ApiKey

if TYPE_CHECKING:
    from klog_broker.network.server import Server

_SIZE = struct.Struct(">i")
_API_KEY = struct.Struct(">h")
_PEEK = struct.Struct(">ihh")  # size, API key, version
_PRODUCE = int(ApiKey.PRODUCE)
_EMPTY = memoryview(b"")
_NOTHING = bytearray()


class Stopped(Enum):
    """Why parsing stopped."""

    NEEDS_BYTES = "needs bytes"
    WAITS_FOR_REPLY = "waits for reply"  # resumed when a slot is filled or bytes have left
    TURN_IS_OVER = "turn is over"


class Connection:
    """Lives from accept to ``close``; loop thread only."""

    __slots__ = (
        "_arena_end",
        "_awaits_plan",
        "_close_reason",
        "_closing",
        "_end_of_stream",
        "_flush_scheduled",
        "_held",
        "_interest",
        "_is_bulk",
        "_is_quiet",
        "_large",
        "_outgoing",
        "_outstanding",
        "_produces",
        "_queued_bytes",
        "_reading_ahead",
        "_replies",
        "_requests",
        "_rest",
        "_resume_scheduled",
        "_server",
        "_socket",
        "_stopped",
        "_turn",
        "_unparsed",
        "_waits_for_memory",
        "client_address",
        "connection_id",
        "descriptor",
        "is_open",
        "last_used_ms",
        "listener",
    )

    def __init__(
        self, server: Server, stream: StreamSocket, listener: str, connection_id: str
    ) -> None:
        self.is_open = True
        self.descriptor = stream.fileno()
        self.client_address = stream.remote_address()[0]
        self.connection_id = connection_id
        self.listener = listener
        self.last_used_ms = server.loop.now_ms()
        self._server = server
        self._socket = stream
        self._interest = READABLE
        # Received and unparsed: of this turn a piece of the arena, of earlier turns `_rest`, and of
        # a frame that is too large for both a buffer of its own.
        self._unparsed = _EMPTY
        self._arena_end = 0
        self._awaits_plan = False
        # Nothing is held, worked on or unsent: of what comes next nothing has to be looked at but
        # itself.
        self._is_quiet = True
        # The last request was Produce: while quiet, what comes next is received and planned with
        # other connections.
        self._produces = False
        # The last turn's plan took more than half of an ordinary share.
        self._is_bulk = False
        self._rest = _NOTHING
        self._large: LargeFrame | None = None
        self._waits_for_memory = False
        self._replies: deque[ReplySlot] = deque()
        self._queued_bytes = 0
        self._outstanding = 0
        # Of these so many are held: what follows waits for them.
        self._held = 0
        self._outgoing = OutgoingParts()
        self._reading_ahead = False
        self._flush_scheduled = False
        self._resume_scheduled = False
        self._turn = -1
        self._requests = 0
        self._end_of_stream = False
        self._stopped = Stopped.NEEDS_BYTES
        self._closing = False
        self._close_reason: str | None = None

    def __repr__(self) -> str:
        return f"Connection({self.connection_id})"

    @property
    def awaits_broker(self) -> bool:
        """Whether a request is being worked on: such a connection is not idle."""
        return self._outstanding > 0

    # -- receiving ----------------------------------------------------------------------------

    def on_ready(self, events: int) -> None:
        """The loop's callback."""
        if self._is_quiet and events == READABLE:
            if not (self._produces and self._socket.is_plain and self._server.join_plan(self)):
                self._receive_one()
            return
        if events & WRITABLE:
            self._schedule_flush()
        if events & BROKEN and not self._interest & READABLE:
            self.close("the peer is gone")
        elif events & READABLE and self._interest & READABLE:
            self.receive()

    def _receive_one(self) -> None:
        """Receives once while quiet, and begins what has most likely come: one small request."""
        server = self._server
        arena = server.arena
        start = arena.used_bytes
        end = start + RECEIVE_BYTES
        if self._is_bulk or end > arena.size_bytes:
            self.receive()
            return
        view = arena.view
        try:
            count = self._socket.recv_into(view[start:end])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"receive failed: {error}")
            return
        self._is_quiet = False
        end = start + count
        if count > _PEEK.size:
            size, api_key, _ = _PEEK.unpack_from(view, start)
            if MIN_REQUEST_BYTES <= size == count - 4 <= server.max_request_bytes and (
                api_key != _PRODUCE
            ):
                server.keep_arena(count)
                server.touch(self)
                self._turn = server.loop.turn
                self._requests = 0
                self._dispatch(view[start + 4 : end], api_key)
                return
        self._take_in(start, end)

    def _take_in(self, start: int, end: int) -> None:
        """What was received while quiet is parsed, whatever it is."""
        if start == end:
            self._end_of_stream = True
            self._parse()
            return
        server = self._server
        server.keep_arena(end - start)
        server.touch(self)
        self._arena_end = end
        self._unparsed = server.arena.view[start:end]
        server.keep_at_turn_end(self)
        if not self._is_offered_to_a_plan():
            self._parse()

    def receive(self) -> None:
        """Receives once and parses what there is."""
        self._is_quiet = False
        if not self.is_open or self._end_of_stream or self._closing or self._awaits_plan:
            return
        try:
            if self._large is not None:
                count = self._large.receive(self._socket)
            elif self._stopped_by_replies() or (
                self._unparsed and self._stopped is not Stopped.NEEDS_BYTES
            ):
                count = self._receive_aside()
            else:
                count = self._receive_into_arena()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"receive failed: {error}")
            return
        if count < 0:
            self.put_off()
            return
        if count == 0:
            self._end_of_stream = True
        else:
            self._server.touch(self)
            if self._is_offered_to_a_plan():
                return
        self._parse()

    def put_off(self) -> None:
        """The arena is full: this connection is first in the next turn."""
        self._is_quiet = False
        self._server.loop.call_soon(self.receive)

    def _receive_into_arena(self) -> int:
        arena = self._server.arena
        self._move_rest()
        rest = self._rest
        share = self._server.bulk_share_bytes() if self._is_bulk else RECEIVE_BYTES
        room = min(arena.free_bytes() - len(rest), share)
        if room < LEAST_RECEIVE_BYTES:
            return -1
        start = arena.used_bytes
        received_at = start + len(rest)
        count = self._socket.recv_into(arena.view[received_at : received_at + room])
        if rest:
            arena.view[start:received_at] = rest
            self._rest = _NOTHING
        arena.take(len(rest) + count)
        self._arena_end = received_at + count
        self._unparsed = arena.view[start : self._arena_end]
        self._server.keep_at_turn_end(self)
        return count

    def _receive_aside(self) -> int:
        """While it may not be parsed: into a buffer of its own, up to a bound."""
        self._move_rest()
        room = RECEIVE_BYTES - len(self._rest)
        if room <= 0:
            return 1
        buffer = bytearray(room)
        count = self._socket.recv_into(memoryview(buffer))
        self._rest = self._rest + buffer[:count]
        return count

    def keep_rest(self) -> None:
        """At the end of the turn, when the arena is given up, what is unparsed moves out of it."""
        if not self.is_open:
            return
        self._move_rest()
        if self._large is None and len(self._rest) >= 4 and not (self._closing or self._held):
            size = _SIZE.unpack_from(self._rest)[0]
            if RECEIVE_BYTES <= size + 4 <= self._server.max_request_bytes + 4 and (
                len(self._rest) < size + 4
            ):
                self._begin_large_frame(size + 4)
        self._update_interest()
        self._is_quiet = self._has_nothing_to_do()

    def _has_nothing_to_do(self) -> bool:
        return (
            self._interest == READABLE
            and self._stopped is Stopped.NEEDS_BYTES
            and not (
                self._unparsed
                or self._rest
                or self._large is not None
                or self._replies
                or self._outgoing
                or self._awaits_plan
                or self._flush_scheduled
                or self._resume_scheduled
                or self._end_of_stream
            )
        )

    def _move_rest(self) -> None:
        if self._unparsed:
            self._rest = bytearray(self._unparsed)
            self._unparsed = _EMPTY

    def _begin_large_frame(self, frame_bytes: int) -> None:
        if not self._server.may_lend_memory():
            if not self._waits_for_memory:
                self._waits_for_memory = True
                self._server.wait_for_memory(self)
            return
        self._waits_for_memory = False
        self._large = LargeFrame(self._server, frame_bytes, self._rest)
        self._rest = _NOTHING

    def on_memory(self) -> None:
        """Large buffers came back: the frame that waits for one may be begun."""
        if self.is_open and self._waits_for_memory:
            self._waits_for_memory = False
            self.keep_rest()

    # -- planned produce ----------------------------------------------------------------------

    def _move_rest_into_arena(self) -> None:
        """So that what an earlier turn left can be planned."""
        rest, arena = self._rest, self._server.arena
        if (
            len(rest) < _PEEK.size
            or self._unparsed
            or self._large is not None
            or not self._server.is_planning
            or arena.free_bytes() < len(rest)
        ):
            return
        start = arena.used_bytes
        arena.take(len(rest))
        self._arena_end = arena.used_bytes
        arena.view[start : self._arena_end] = rest
        self._unparsed = arena.view[start : self._arena_end]
        self._rest = _NOTHING
        self._server.keep_at_turn_end(self)

    def _is_offered_to_a_plan(self) -> bool:
        """Whether a plan begins with what was received: ``planned`` then parses on."""
        view = self._unparsed
        if len(view) < _PEEK.size or self._end_of_stream:
            return False
        size, api_key, _ = _PEEK.unpack_from(view)
        if api_key != _PRODUCE or view.obj is not self._server.arena.view.obj:
            return False
        self._awaits_plan = self._server.offer_to_plan(self, size + 4, len(view))
        return self._awaits_plan

    def plannable(self) -> tuple[int, int] | None:
        """From where to where in the arena its unparsed bytes lie; None if none of them may be
        planned, because requests before them are still worked on."""
        view = self._unparsed
        if (
            not self.is_open
            or self._closing
            or self._outstanding
            or not view
            or view.obj is not self._server.arena.view.obj
            or self._stopped_by_replies()
        ):
            return None
        return self._arena_end - len(view), self._arena_end

    def take_over(self, start: int, end: int, taken_bytes: int, replies: list[bytes]) -> None:
        """What it joined a plan for is over: this was received into the arena, and of it so much
        was served, with these answers still to be sent."""
        self._is_quiet = False
        if self.is_open:
            self._arena_end = end
            self._unparsed = self._server.arena.view[start:end]
            self._server.keep_at_turn_end(self)
            self.planned(taken_bytes, replies)

    def planned(self, taken_bytes: int, replies: list[bytes]) -> None:
        """The plan is over: it has served so many bytes of requests, with these answers."""
        self._awaits_plan = False
        if not self.is_open:
            return
        self._is_bulk = 2 * taken_bytes > RECEIVE_BYTES
        if taken_bytes:
            self._produces = True
            left = self._unparsed[taken_bytes:]
            self._unparsed = left or _EMPTY
        if replies:
            slot = ReplySlot(self, _PRODUCE)
            self._replies.append(slot)
            self._outstanding += 1
            slot.complete(replies)
        self._parse()

    # -- parsing ------------------------------------------------------------------------------

    def resume(self) -> None:
        """Parses on after what it waited for has happened."""
        self._resume_scheduled = False
        if self.is_open and not self._awaits_plan:
            self._move_rest_into_arena()
            if not self._is_offered_to_a_plan():
                self._parse()

    def _parse(self) -> None:
        if self._large is not None:
            stopped = self._parse_large()
        else:
            if not self._unparsed and self._rest:
                self._unparsed = memoryview(self._rest)
                self._rest = _NOTHING
                self._server.keep_at_turn_end(self)
            stopped = self._parse_frames()
        if not self.is_open:
            return
        self._stopped = stopped
        if stopped is Stopped.TURN_IS_OVER and not self._resume_scheduled:
            self._resume_scheduled = True
            self._server.loop.call_soon(self.resume)
        if self._end_of_stream and stopped is not Stopped.TURN_IS_OVER:
            self._finish_after_end_of_stream(stopped)
        self._update_interest()

    def _parse_frames(self) -> Stopped:
        view = self._unparsed
        position = 0
        end = len(view)
        stopped = Stopped.NEEDS_BYTES
        while self.is_open and not self._closing and end - position >= 4:
            size = _SIZE.unpack_from(view, position)[0]
            if not MIN_REQUEST_BYTES <= size <= self._server.max_request_bytes:
                self._refuse_size(size)
                break
            if size > end - position - 4:
                if end - position >= 6:
                    self._check_metadata_size(size, _API_KEY.unpack_from(view, position + 4)[0])
                break
            api_key = _API_KEY.unpack_from(view, position + 4)[0]
            stop = self._stop_before(api_key)
            if stop is not None:
                stopped = stop
                break
            frame = view[position + 4 : position + 4 + size]
            position += 4 + size
            self._dispatch(frame, api_key)
        self._unparsed = view[position:] if position < end and self.is_open else _EMPTY
        return stopped

    def _parse_large(self) -> Stopped:
        large = self._large
        assert large is not None
        if not large.is_complete:
            return Stopped.NEEDS_BYTES
        frame = large.frame()
        api_key = _API_KEY.unpack_from(frame)[0]
        if not self._check_metadata_size(len(frame), api_key):
            return Stopped.NEEDS_BYTES
        stop = self._stop_before(api_key)
        if stop is not None:
            return stop
        self._large = None
        self._dispatch(frame, api_key, large)
        return Stopped.NEEDS_BYTES

    def _dispatch(self, frame: memoryview, api_key: int, large: LargeFrame | None = None) -> None:
        self._produces = api_key == _PRODUCE
        slot = ReplySlot(self, api_key)
        if large is not None:
            # The records are views of the buffer until the turn's appends are over.
            slot.frame = large
            self._server.loop.call_at_turn_end(slot.end_turn)
        self._replies.append(slot)
        self._outstanding += 1
        self._requests += 1
        self._server.handle_frame(frame, slot, self)

    def _stop_before(self, api_key: int) -> Stopped | None:
        if self._turn != self._server.loop.turn:
            self._turn = self._server.loop.turn
            self._requests = 0
        if self._stopped_by_replies():
            return Stopped.WAITS_FOR_REPLY
        if self._outstanding and not (
            api_key in self._server.pipelined_apis and self._replies[-1].api_key == api_key
        ):
            return Stopped.WAITS_FOR_REPLY
        if self._requests >= REQUESTS_PER_TURN:
            return Stopped.TURN_IS_OVER
        return None

    def _stopped_by_replies(self) -> bool:
        """Whether no request whatever may be begun now."""
        if self._held:
            return True
        if len(self._replies) >= PENDING_REPLIES:
            return True
        if self._queued_bytes + self._outgoing.bytes_in_memory >= PENDING_REPLY_BYTES:
            return True
        if not self._outstanding:
            return False
        return self._replies[-1].api_key not in self._server.pipelined_apis

    def _refuse_size(self, size: int) -> None:
        limit = self._server.max_request_bytes
        self._server.refuse(
            self,
            f"a request announces {size} bytes; from {MIN_REQUEST_BYTES} to {limit}"
            " (socket.request.max.bytes) are allowed",
        )

    def _check_metadata_size(self, size: int, api_key: int) -> bool:
        """Only Produce may be larger than what can be decoded into objects."""
        if size <= METADATA_REQUEST_BYTES or api_key == _PRODUCE:
            return True
        self._server.refuse(
            self,
            f"a request of API key {api_key} announces {size} bytes; only Produce may have more"
            f" than {METADATA_REQUEST_BYTES}",
        )
        return False

    def _finish_after_end_of_stream(self, stopped: Stopped) -> None:
        """The client sends no more. What it sent is served; nobody may be left to be answered."""
        if self._outstanding:
            if self._replies[-1].api_key in self._server.pipelined_apis:
                return
            self.close("the client left while it waited")
        elif not self._replies and not self._outgoing and stopped is Stopped.NEEDS_BYTES:
            self.close("closed by the client")

    # -- replies ------------------------------------------------------------------------------

    def on_slot_filled(self, slot: ReplySlot) -> None:
        """See SlotOwner."""
        self._outstanding -= 1
        if slot.keeps_frame:
            self._server.loop.call_at_turn_end(slot.give_back_frame)
        was_held = slot.is_held
        if was_held:
            self._held -= 1
        if not self.is_open:
            return
        self._queued_bytes += slot.size_bytes
        if slot.state is SlotState.CLOSES:
            self._closing = True
        if not self._flush_scheduled and self._replies and slot is self._replies[0]:
            self._schedule_flush()
        if was_held or self._stopped is not Stopped.NEEDS_BYTES or self._end_of_stream:
            # A frame that is not here whole may have waited for this, too.
            self._schedule_resume(was_held and not self._held)

    def on_slot_held(self) -> None:
        """See SlotOwner."""
        self._held += 1

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._server.loop.call_at_send(self._flush)

    def _schedule_resume(self, was_held: bool = False) -> None:
        stopped = was_held or self._stopped is Stopped.WAITS_FOR_REPLY
        if not self._resume_scheduled and (stopped or self._end_of_stream):
            self._resume_scheduled = True
            self._server.loop.call_at_append(self.resume)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if not self.is_open:
            return
        replies = self._replies
        if len(replies) == 1 and not self._outgoing:
            slot = replies[0]
            if slot.state is SlotState.ANSWERED and slot.fits_one_send:
                replies.popleft()
                self._queued_bytes -= slot.size_bytes
                self._send_at_once(slot)
                if self._has_nothing_to_do():
                    self._is_quiet = True
                    return
        while replies and replies[0].state is not SlotState.WAITING:
            slot = replies.popleft()
            self._queued_bytes -= slot.size_bytes
            if slot.state is SlotState.CLOSES:
                self._close_reason = slot.close_reason
                replies.clear()
                break
            if slot.state is SlotState.ANSWERED:
                self._outgoing.add(slot)
        if not self._reading_ahead:
            self._send()
        if not self.is_open:
            return
        if self._close_reason is not None and not self._outgoing:
            self._server.refuse(self, self._close_reason)
            return
        self._schedule_resume()
        self._update_interest()

    def _send_at_once(self, slot: ReplySlot) -> None:
        """The only answer there is; what the socket does not take waits as any other."""
        try:
            count = self._socket.send(slot.parts)
        except (BlockingIOError, InterruptedError):
            count = 0
        except OSError as error:
            self.close(f"send failed: {error}")
            return
        if count < slot.size_bytes:
            self._outgoing.add(slot)
            self._outgoing.advance_bytes(count)
        if count:
            self._server.touch(self)

    def _send(self) -> None:
        try:
            how, sent_bytes = self._outgoing.send(self._socket, SEND_BYTES)
        except OSError as error:
            self.close(f"send failed: {error}")
            return
        if sent_bytes:
            self._server.touch(self)
        if how is Sent.COLD:
            self._read_ahead()

    def _read_ahead(self) -> None:
        file, position, size = self._outgoing.cold_region()
        self._reading_ahead = True
        self._server.count("cold-reads")

        def done(_: None, error: BaseException | None) -> None:
            self._reading_ahead = False
            if not self.is_open:
                return
            if error is not None:
                self.close(f"read-ahead failed: {error}")
                return
            self._outgoing.warmed(size)
            self._schedule_flush()

        self._server.helpers.submit(lambda: file.read_ahead(position, size), done)

    # -- the end ------------------------------------------------------------------------------

    def _update_interest(self) -> None:
        if not self.is_open:
            return
        interest = 0
        held = len(self._rest) + len(self._unparsed)
        if not (
            self._end_of_stream
            or self._closing
            or self._waits_for_memory
            or held >= RECEIVE_BYTES
            or (self._large is not None and self._large.is_complete)
        ):
            interest = READABLE
        if self._outgoing and not self._reading_ahead:
            interest |= WRITABLE
        if interest != self._interest:
            self._interest = interest
            self._server.loop.modify(self.descriptor, interest)

    def close(self, reason: str) -> None:
        """Ends the connection at once; answers that still come are dropped."""
        if not self.is_open:
            return
        self.is_open = False
        self._server.loop.unregister(self.descriptor)
        self._socket.close()
        abandoned, self._replies = self._replies, deque()
        self._outgoing.clear()
        self._rest = _NOTHING
        if self._large is not None:
            self._server.loop.call_at_turn_end(self._large.give_back)
            self._large = None
        self._server.on_closed(self, reason)
        for slot in abandoned:
            slot.connection_closed()
