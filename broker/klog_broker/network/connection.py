"""One client's connection: passes requests from its inbox to handlers, responses to its outbox.

connection_states.py has the states of a connection, and what may happen in each. Parsing stops
while the outbox (the connection's queue of responses) permits no further request, and after
REQUESTS_PER_TURN requests in one event-loop turn. Receiving continues until RECEIVE_BYTES are
unparsed, so that the broker notices when a client disconnects.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import Any

from klog_broker.metrics.requests import head_of
from klog_broker.network.bounds import MIN_REQUEST_BYTES, RECEIVE_BYTES, REQUESTS_PER_TURN
from klog_broker.network.connection_states import (
    CLOSED,
    CLOSING,
    ENDED,
    ENDING,
    FIRST,
    PLANNED,
    QUIET,
    READING,
    WAITING,
    YIELDED,
    ConnectionState,
)
from klog_broker.network.host import Host
from klog_broker.network.inbox import FRAME_HEAD, NO_REQUEST, PRODUCE, BadFrame, Inbox
from klog_broker.network.outbox import Outbox
from klog_broker.network.responses import PendingResponse
from klog_broker.network.single_requests import SingleResponse
from klog_broker.runtime.net.poller import BROKEN, READABLE, WRITABLE
from klog_broker.runtime.net.sockets import StreamSocket
from klog_broker.security.principal import ANONYMOUS, KafkaPrincipal
from klog_broker.security.principal_numbers import ANONYMOUS_NUMBER

_READ_OFF_BYTES = 65_536
_READ_OFF_TIMES = 16
# Unpacks a frame's size, and its head: one number, with the API key in the upper 16 bits and the
# version in the lower 16 bits.
_unpack_size_and_head = Struct(">iI").unpack_from
_unpack_head = Struct(">I").unpack_from
# Produce has API key 0, so a request whose head is below this number is a Produce request.
_BEHIND_PRODUCE = head_of(PRODUCE + 1, 0)


class Connection:
    """A client's connection, from accept to ``close``. Loop thread only."""

    __slots__ = (
        "_answered",
        "_host",
        "_inbox",
        "_interest",
        "_is_bulk",
        "_joins",
        "_loop",
        "_memory",
        "_outbox",
        "_recv_into",
        "_requests",
        "_resume_scheduled",
        "_send",
        "_socket",
        "_turn",
        "cached_requests",
        "client_address",
        "connection_id",
        "descriptor",
        "last_used_ms",
        "listener",
        "principal",
        "principal_number",
        "rules_version",
        "state",
    )

    def __init__(
        self, host: Host[Connection], stream: StreamSocket, listener: str, connection_id: str
    ) -> None:
        self.state: ConnectionState = FIRST
        """The connection's state; only this class changes it."""
        self.descriptor = stream.fileno()
        self.client_address = stream.remote_address()[0]
        self.connection_id = connection_id
        self.listener = listener
        self.principal: KafkaPrincipal = ANONYMOUS
        self.principal_number = ANONYMOUS_NUMBER
        """A small number for ``principal``, by which the compiled produce kernel knows to which
        topics the connection may write (security/principal_numbers.py). Changes together with
        ``principal``."""
        self.cached_requests: dict[int, Any] = {}
        """By API key: an object that serves the connection's next requests of this API without
        decoding, if only fields that usually change, such as the correlation id, differ from the
        cached request (dispatch/cached_requests.py). Valid only for the present principal."""
        self.rules_version = 0
        """The version of the authorizer's rules under which ``cached_requests`` were allowed. If
        the authorizer has a newer version, the dispatcher drops them."""
        self.last_used_ms = host.loop.now_ms()
        self._host = host
        self._answered = host.requests.answered
        self._loop = host.loop
        self._memory = host.memory
        self._socket = stream
        self._recv_into = stream.recv_into
        self._send = stream.send
        self._inbox = Inbox(stream, host.memory, host.max_request_bytes, self.keep_rest)
        self._outbox = Outbox(self, host, stream)
        self._interest = READABLE
        # True after a produce plan (which serves the Produce requests of many connections together)
        # has served this connection, until a request of another API comes or
        # ``forget_cached_requests`` is called. While True, the connection does not receive by
        # itself when it is readable in the state QUIET (no open request, no unsent response), if
        # the event-loop turn's plan takes it: the plan receives for many connections in one call.
        # Only plain (non-TLS) connections join.
        self._joins = False
        # Whether the client sends in bulk: when a produce plan last called `on_planned`, it had
        # served more than RECEIVE_BYTES / 2 of this connection's received bytes. The connection may
        # then receive more bytes at once.
        self._is_bulk = False
        self._resume_scheduled = False
        # The last event-loop turn that passed requests of this connection to handlers, and the
        # number of these requests.
        self._turn = -1
        self._requests = 0

    @property
    def is_open(self) -> bool:
        """Whether ``close`` was not called yet."""
        return self.state is not CLOSED

    @property
    def awaits_broker(self) -> bool:
        """Whether a request is outstanding, so that the connection does not count as idle."""
        return self._outbox.outstanding > 0

    def forget_cached_requests(self) -> None:
        """Drop ``cached_requests``, by which repeated requests are served without decoding. So the
        next request of each API is decoded, and its access is checked.

        Authentication must call this when the principal changes, because a cached request acts for
        the principal that sent it.
        """
        self.cached_requests.clear()
        self._joins = False

    # -- receiving bytes from the client ------------------------------------------------------

    def on_ready(self, events: int) -> None:
        """Handle the socket events that the loop reports. The fast path is for one small request on
        a connection in the state QUIET, which has no open request and no unsent response."""
        if self.state is not QUIET or events != READABLE:
            self._on_events(events)
            return
        if self._joins and self._host.join_plan(self):
            return
        arena = self._memory.arena
        window = arena.window() if arena.used_bytes else arena.first_window
        if window is None or self._is_bulk:
            self.receive()
            return
        try:
            count = self._recv_into(window)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"receive failed: {error}")
            return
        self.state = READING
        if count == 0:
            self.state = ENDED
            self._parse()
            return
        host, loop = self._host, self._loop
        if self.last_used_ms != loop.time_ms:
            host.touch(self)
        if count > FRAME_HEAD.size:
            size, head = _unpack_size_and_head(window)
            is_whole = MIN_REQUEST_BYTES <= size == count - 4 <= host.max_request_bytes
            if is_whole and head >= _BEHIND_PRODUCE:
                self._turn = loop.turn
                self._requests = 1
                self._joins = False
                slot = SingleResponse(self, self._outbox, head)
                slots = host.single_requests.slots
                if not slots:
                    host.single_requests.schedule_responses()
                slots.append(slot)
                if not host.handle_frame(window[4:count], slot, self):
                    self._memory.keep_arena(count)
                return
        start = arena.used_bytes
        self._memory.keep_arena(count)
        self._inbox.add_received_bytes(start, start + count)
        if not self._is_offered_to_a_plan():
            self._parse()

    def _on_events(self, events: int) -> None:
        if events & WRITABLE:
            self._outbox.schedule_flush()
        if events & BROKEN and not self._interest & READABLE:
            self.close("the client has disconnected")
        elif events & READABLE and self._interest & READABLE:
            self.receive()

    def settle(self, slot: SingleResponse) -> None:
        """Send the response to a single request (one that came while the connection was QUIET), or
        give the request a place in the outbox (the connection's queue of responses).

        A request without a response yet gets a place, and so do the bytes of a response that the
        socket does not accept.
        """
        answer = slot.response
        if answer is None or self.state is not READING or slot.ordinary is not None:
            if self.state is not CLOSED:
                slot.place()
            return
        try:
            count = self._send(answer)
        except (BlockingIOError, InterruptedError):
            count = 0
        except OSError as error:
            self.close(f"send failed: {error}")
            return
        if count == len(answer[0]):
            self.state = QUIET
            self._answered.append(slot.head)
        else:
            slot.response = [answer[0][count:]]
            slot.place()

    def receive(self) -> None:
        """Receive from the socket, then parse the received requests, unless the event-loop turn's
        produce plan takes them."""
        if self.state is QUIET:
            self.state = READING
        state = self.state
        if not state.receives:
            return
        inbox = self._inbox
        try:
            if self._outbox.may_begin_none() or (state.sets_aside and inbox.has_unparsed):
                count = inbox.receive_into_rest()
            else:
                share = self._host.bulk_share_bytes() if self._is_bulk else RECEIVE_BYTES
                count = inbox.receive(share)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"receive failed: {error}")
            return
        if count < 0:
            self.put_off()
            return
        if count == 0:
            self.state = ENDED
        else:
            self._host.touch(self)
            if self._is_offered_to_a_plan():
                return
        self._parse()

    def put_off(self) -> None:
        """Receive early in the next event-loop turn, because the receive arena is full."""
        if self.state is QUIET:
            self.state = READING
        self._loop.call_soon(self.receive)

    def keep_rest(self) -> None:
        """Move unparsed bytes out of the receive arena when the event-loop turn ends, because the
        arena is reused."""
        state = self.state
        if state is CLOSED:
            return
        self._inbox.keep_rest(may_begin_large=state.receives and not self._outbox.held)
        self._update_interest()
        if not self._outbox:
            self.on_all_sent()

    # -- produce plans, which serve Produce requests of many connections together --------------

    def _is_offered_to_a_plan(self) -> bool:
        """Offer the received bytes to the event-loop turn's produce plan, which serves the Produce
        requests of many connections together; return whether the plan takes them.

        If the plan takes them, the parsing continues when the plan calls ``on_planned``.
        """
        if not self.state.receives:
            return False
        produce = self._inbox.begins_with_produce()
        if produce is None or not self._host.offer_to_plan(self, *produce):
            return False
        self.state = PLANNED
        return True

    def plannable(self) -> tuple[int, int] | None:
        """Return start and end of the unparsed bytes in the receive arena, or None if the
        event-loop turn's produce plan may not serve them, such as while earlier requests of the
        connection that no plan has served are unanswered."""
        outbox = self._outbox
        if self.state is not PLANNED or outbox.outstanding > outbox.planned:
            return None
        if outbox.may_begin_none():
            return None
        return self._inbox.arena_range()

    def continue_after_plan(
        self, start: int, end: int, taken_bytes: int, responses: Sequence[bytes | PendingResponse]
    ) -> None:
        """Continue with the receive arena's bytes from ``start`` to ``end``, which a produce plan
        (it serves many connections together) received for this connection in the state QUIET. The
        plan has served the Produce requests in the first ``taken_bytes`` of them; ``responses`` are
        the responses to these requests."""
        if self.state is QUIET:
            self.state = READING
            self._inbox.add_received_bytes(start, end)
            self.on_planned(taken_bytes, responses)

    def on_planned(self, taken_bytes: int, responses: Sequence[bytes | PendingResponse]) -> None:
        """Continue after a produce plan, which serves the Produce requests of many connections
        together, has served the first ``taken_bytes`` of this connection's unparsed bytes: queue
        the responses to them, ``responses``, and parse the other bytes."""
        if self.state is PLANNED:
            self.state = READING
        if self.state is not READING:
            return
        self._is_bulk = 2 * taken_bytes > RECEIVE_BYTES
        if taken_bytes:
            self._joins = self._socket.is_plain
            self._inbox.pass_over(taken_bytes)
        for response in responses:
            place = self._outbox.begin_planned(PRODUCE)
            if isinstance(response, bytes):
                place.complete([response])
            else:
                response.wait(place)
        self._parse()

    # -- cutting the received bytes into requests ---------------------------------------------

    def resume(self) -> None:
        """Continue the parsing that stopped because the outbox (the connection's queue of
        responses) permitted no further request, or because REQUESTS_PER_TURN requests were passed
        to handlers."""
        self._resume_scheduled = False
        if self.state.parses:
            if self._host.is_planning:
                self._inbox.move_rest_into_arena()
            if not self._is_offered_to_a_plan():
                self._parse()

    def _parse(self) -> None:
        self._inbox.parse_rest_next()
        try:
            stopped = self._begin_requests()
        except BadFrame as error:
            self.refuse(str(error))
            return
        if self.state.parses:
            if stopped is YIELDED and not self._resume_scheduled:
                self._resume_scheduled = True
                self._loop.call_soon(self.resume)
            if self.state is not ENDED and self.state is not ENDING:
                self.state = stopped
            elif stopped is not YIELDED:
                self._finish(stopped)
        self._update_interest()

    def _begin_requests(self) -> ConnectionState:
        """Pass the received requests to their handlers as long as the outbox (the connection's
        queue of responses) permits, up to REQUESTS_PER_TURN in the event-loop turn; return the next
        state.

        :raises BadFrame: if the received bytes cannot be cut into requests
        """
        inbox, outbox = self._inbox, self._outbox
        if self._turn != self._loop.turn:
            self._turn = self._loop.turn
            self._requests = 0
        while self.state.parses:
            api_key = inbox.next_api_key()
            if api_key == NO_REQUEST:
                break
            if not outbox.may_begin(api_key):
                return WAITING
            if self._requests >= REQUESTS_PER_TURN:
                return YIELDED
            if api_key != PRODUCE:
                self._joins = False
            self._requests += 1
            frame, large = inbox.pop_request()
            slot = outbox.reserve_slot(api_key, _unpack_head(frame)[0])
            if large is not None:
                # The request's records are views of the large frame's buffer, so the buffer is
                # returned to its pool when the event-loop turn, with its appends, ends, or later.
                slot.frame = large
                self._loop.call_at_turn_end(slot.end_turn)
            self._host.handle_frame(frame, slot, self)
        return READING

    def _finish(self, stopped: ConnectionState) -> None:
        """Close the connection, which receives no more bytes, if no request or response is left.

        If the client has ended its stream while a request other than Produce is outstanding, close
        the connection at once: the client does not wait for the response. While a Produce request
        is outstanding, the connection stays open, because further Produce requests that it has
        received may have to be served.
        """
        is_ours = self.state is ENDING
        if self._outbox.outstanding:
            if not (is_ours or self._outbox.is_pipelined):
                self.close("the client closed its side before it got its response")
        elif stopped is READING and not self._outbox:
            if is_ours:
                self._read_off()
            self.close("the broker stops" if is_ours else "closed by the client")

    def drain_and_close(self) -> None:
        """Receive no more bytes, serve the received requests, then close. Has no effect while the
        connection waits for a produce plan (PLANNED) or already closes (CLOSING)."""
        if self.state is PLANNED or self.state is CLOSING or self.state is CLOSED:
            return
        self.state = ENDING
        self._update_interest()
        self.resume()

    def _read_off(self) -> None:
        """Read and discard further bytes of the client before the close.

        If unread bytes were left, the operating system would reset the connection, perhaps before
        the client has read its responses.
        """
        room = memoryview(bytearray(_READ_OFF_BYTES))
        with suppress(OSError):
            for _ in range(_READ_OFF_TIMES):
                if not self._recv_into(room):
                    return

    # -- continuing after responses, and closing after the last one ---------------------------

    def schedule_resume(self) -> None:
        """Schedule ``resume``, which continues the parsing, for later in this event-loop turn."""
        if not self._resume_scheduled:
            self._resume_scheduled = True
            self._loop.call_at_append(self.resume)

    def on_close_queued(self) -> None:
        """Pass no more requests to handlers, because a queued response closes the connection."""
        self.state = CLOSING
        self._update_interest()

    def on_all_sent(self) -> bool:
        """Enter the state QUIET if the state is READING and no received byte is left; return
        whether it was entered. The caller has sent the responses to all requests."""
        if (
            self.state is READING
            and self._interest == READABLE
            and not (self._resume_scheduled or self._inbox)
        ):
            self.state = QUIET
            return True
        return False

    def on_sent(self) -> None:
        """Continue parsing the received requests if the connection waited for responses to be
        sent."""
        if self.state.resumes:
            self.schedule_resume()
        self._update_interest()

    def touch(self) -> None:
        """Record that bytes were sent, so that the connection is not idle."""
        if self.last_used_ms != self._loop.now_ms():
            self._host.touch(self)

    # -- events to wait for on the socket, and closing it -------------------------------------

    def _update_interest(self) -> None:
        state = self.state
        if state is CLOSED:
            return
        interest = READABLE if state.receives and not self._inbox.is_full else 0
        if self._outbox.waits_for_socket:
            interest |= WRITABLE
        if interest != self._interest:
            self._interest = interest
            self._loop.modify(self.descriptor, interest)

    def refuse(self, reason: str) -> None:
        """Close the connection because of an error in its requests."""
        self._host.refuse(self, reason)

    def close(self, reason: str) -> None:
        """Close the connection immediately; later responses are dropped."""
        if self.state is CLOSED:
            return
        self.state = CLOSED
        self._loop.unregister(self.descriptor)
        self._socket.close()
        abandoned = self._outbox.drop()
        large = self._inbox.drop()
        if large is not None:
            self._loop.call_at_turn_end(large.give_back)
        self._host.on_closed(self, reason)
        for slot in abandoned:
            slot.connection_closed()
