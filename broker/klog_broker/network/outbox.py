"""The responses of one connection, sent in the order of their requests as the socket permits.

The outbox also decides whether the next request may be begun (passed to its handler). While a
response is outstanding, only a Produce request may follow Produce requests; no request may be begun
while too many responses are outstanding or unsent.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from klog_broker.metrics.requests import RequestTimes
from klog_broker.network.bounds import PENDING_RESPONSE_BYTES, PENDING_RESPONSES, SEND_BYTES
from klog_broker.network.connection_states import ConnectionState
from klog_broker.network.responses import (
    COUNTED_ELSEWHERE,
    OutgoingParts,
    QueuedResponse,
    Sent,
    SlotState,
)
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net.sockets import StreamSocket
from klog_broker.runtime.threads.helpers import Helpers


class OutboxHost(Protocol):
    """The methods of the broker's network that an outbox uses."""

    @property
    def loop(self) -> Loop: ...

    @property
    def helpers(self) -> Helpers: ...

    @property
    def requests(self) -> RequestTimes: ...

    @property
    def pipelined_apis(self) -> frozenset[int]: ...

    def count(self, name: str) -> None:
        """Add one to ``name``, one of the network's counters that the metrics show."""


class OutboxOwner(Protocol):
    """The methods of a connection that its outbox uses."""

    @property
    def state(self) -> ConnectionState: ...

    def schedule_resume(self) -> None:
        """Continue to parse the connection's received bytes, later in this event-loop turn: a
        response was completed, so the next request may be passed to its handler."""

    def on_close_queued(self) -> None:
        """Pass no more requests to handlers: the connection closes once all earlier responses are
        sent."""

    def on_all_sent(self) -> bool:
        """Called when all responses are sent. Returns whether the connection became QUIET: it also
        has no unparsed bytes and no unanswered request."""

    def on_sent(self) -> None:
        """Called after the responses were sent as far as the socket and SEND_BYTES permit, unless
        the connection became QUIET or was closed."""

    def touch(self) -> None:
        """Record that bytes were sent, so that the connection is not idle."""

    def refuse(self, reason: str) -> None:
        """Close the connection because of an error in its requests."""

    def close(self, reason: str) -> None:
        """Close the connection."""


class Outbox:
    """The queue of responses of one connection. Loop thread only."""

    __slots__ = (
        "_close_reason",
        "_flush_scheduled",
        "_host",
        "_is_reading_ahead",
        "_loop",
        "_outgoing",
        "_owner",
        "_pipelined_apis",
        "_queued_bytes",
        "_requests",
        "_responses",
        "_stream",
        "held",
        "is_open",
        "outstanding",
        "planned",
    )

    def __init__(self, owner: OutboxOwner, host: OutboxHost, stream: StreamSocket) -> None:
        self.is_open = True
        """Whether the connection is open, so that responses can be sent."""
        self.outstanding = 0
        """The number of places in the queue of responses that have no response yet. A place is for
        one request, or for several Produce requests of the connection that one produce plan has
        served (the compiled kernel serves many connections together)."""
        self.planned = 0
        """How many of the ``outstanding`` places in the queue of responses are for Produce requests
        that a produce plan has served (the compiled kernel serves many connections together), such
        as acks=all requests that wait for the followers. While only such places are outstanding, a
        plan may serve the connection's next requests, too."""
        self.held = 0
        """How many of the ``outstanding`` places in the queue of responses stop the parsing of
        later requests. A handler calls a place's ``hold`` for this while a helper thread or the
        transaction coordinator checks the request."""
        self._owner = owner
        self._host = host
        self._loop = host.loop
        self._pipelined_apis = host.pipelined_apis
        self._requests = host.requests
        self._stream = stream
        self._responses: deque[QueuedResponse] = deque()
        self._queued_bytes = 0
        self._outgoing = OutgoingParts()
        self._is_reading_ahead = False
        self._flush_scheduled = False
        self._close_reason: str | None = None

    def __bool__(self) -> bool:
        return bool(self._responses or self._outgoing) or self._flush_scheduled

    @property
    def waits_for_socket(self) -> bool:
        """Whether unsent bytes wait for the socket to become writable."""
        return bool(self._outgoing) and not self._is_reading_ahead

    # -- whether the next request may begin, and places for responses -------------------------

    def reserve_slot(self, api_key: int, head: int = COUNTED_ELSEWHERE) -> QueuedResponse:
        """Add a place at the end of the queue of responses, to be filled with the response of a
        request."""
        slot = QueuedResponse(self, api_key, head, self._loop.time_ns)
        self._responses.append(slot)
        self.outstanding += 1
        return slot

    def begin_planned(self, api_key: int) -> QueuedResponse:
        """Add a place to the queue of responses, for the responses to Produce requests that the
        event-loop turn's produce plan has served (the compiled kernel serves many connections
        together).

        A plan may serve later requests of the connection before this place is filled.
        """
        self.planned += 1
        return self.reserve_slot(api_key)

    def may_begin(self, api_key: int) -> bool:
        """Whether a request of this API may be passed to its handler now. While a response is
        outstanding, only a Produce request after Produce requests may be."""
        if self.may_begin_none():
            return False
        return not self.outstanding or (
            api_key in self._pipelined_apis and self._responses[-1].api_key == api_key
        )

    def may_begin_none(self) -> bool:
        """Whether no request of any API may be passed to its handler now: too many responses are
        outstanding or unsent, an outstanding request is of an API without pipelining, or its
        handler has called ``hold``."""
        if self.held:
            return True
        if len(self._responses) >= PENDING_RESPONSES:
            return True
        if self._queued_bytes + self._outgoing.bytes_in_memory >= PENDING_RESPONSE_BYTES:
            return True
        return not self.is_pipelined if self.outstanding else False

    @property
    def is_pipelined(self) -> bool:
        """Whether a further request of the last request's API may be passed to its handler before
        the last request is answered. Only valid while a response is outstanding."""
        return self._responses[-1].api_key in self._pipelined_apis

    # -- sending responses in the order of their requests -------------------------------------

    def on_slot_filled(self, slot: QueuedResponse) -> None:
        """Count the place as filled. Count its request as answered, unless the request closes the
        connection, or produce/planner.py counts it. Schedule the sending of responses if the place
        is the first in the queue of responses."""
        self.outstanding -= 1
        if slot.keeps_frame:
            self._loop.call_at_turn_end(slot.give_back_frame)
        was_held = slot.is_held
        if was_held:
            self.held -= 1
        if not self.is_open:
            return
        self._queued_bytes += slot.size_bytes
        if slot.state is SlotState.CLOSES:
            self._owner.on_close_queued()
        elif slot.head == COUNTED_ELSEWHERE:
            self.planned -= 1
        elif slot.began_ns != self._loop.time_ns:
            self._requests.answered_later.append((slot.head, 1, slot.began_ns))
        else:
            self._requests.answered.append(slot.head)
        responses = self._responses
        if not self._flush_scheduled and responses and slot is responses[0]:
            self._flush_scheduled = True
            self._loop.call_at_send(self._flush)
        # While a place is held (its handler has called ``hold``), the connection gets no buffer for
        # a large request, so it does not receive the rest of such a request. So the connection
        # resumes when the last held place is filled, even if its state does not say so
        # (``resumes``).
        if (was_held and not self.held) or self._owner.state.resumes:
            self._owner.schedule_resume()

    def on_slot_held(self) -> None:
        """Pass no more requests of the connection to handlers until the request whose handler has
        called ``hold`` is answered."""
        self.held += 1

    def schedule_flush(self) -> None:
        """Schedule the sending of responses for this event-loop turn's send phase."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_at_send(self._flush)

    def flush_now(self) -> None:
        """Send the scheduled responses now, before the event-loop turn's send phase."""
        self._flush()

    def _flush(self) -> None:
        if not self._flush_scheduled:
            return
        self._flush_scheduled = False
        if not self.is_open:
            return
        responses = self._responses
        if (
            len(responses) == 1
            and not self._outgoing
            and responses[0].state is SlotState.ANSWERED
            and not self._is_reading_ahead
        ):
            self._send_single(responses.popleft())
            if not self.is_open or (not self._outgoing and self._owner.on_all_sent()):
                return
        else:
            self._queue_responses()
            if not self._is_reading_ahead:
                self._send()
            if not self.is_open:
                return
            if self._close_reason is not None and not self._outgoing:
                self._owner.refuse(self._close_reason)
                return
        self._owner.on_sent()

    def _queue_responses(self) -> None:
        """Move the responses at the head of the queue, up to the first place that has no response
        yet, to the outgoing parts: the byte strings and file regions that are sent next."""
        responses = self._responses
        while responses and responses[0].state is not SlotState.WAITING:
            slot = responses.popleft()
            self._queued_bytes -= slot.size_bytes
            if slot.state is SlotState.CLOSES:
                self._close_reason = slot.close_reason
                responses.clear()
                return
            if slot.state is SlotState.ANSWERED:
                self._outgoing.add(slot)

    def _send_single(self, slot: QueuedResponse) -> None:
        """Send the response of ``slot``, the only one in the queue; bytes that the socket does not
        accept become outgoing parts (byte strings and file regions), which are sent when the socket
        is writable again."""
        self._queued_bytes -= slot.size_bytes
        if not slot.fits_one_send:
            self._outgoing.add(slot)
            self._send(is_fresh=True)
            return
        try:
            count = self._stream.send(slot.parts)
        except (BlockingIOError, InterruptedError):
            count = 0
        except OSError as error:
            self._owner.close(f"send failed: {error}")
            return
        if count < slot.size_bytes:
            self._outgoing.add(slot)
            self._outgoing.advance_bytes(count)
        if count:
            self._owner.touch()

    def _send(self, *, is_fresh: bool = False) -> None:
        """Send outgoing parts (the responses' byte strings and file regions) until SEND_BYTES are
        sent, the socket accepts no more bytes, or a helper thread must first read a piece of a file
        into the page cache."""
        try:
            how, sent_bytes = self._outgoing.send(self._stream, SEND_BYTES, is_fresh=is_fresh)
        except OSError as error:
            self._owner.close(f"send failed: {error}")
            return
        if sent_bytes:
            self._owner.touch()
        if how is Sent.COLD:
            self._read_ahead()

    def _read_ahead(self) -> None:
        file, position, size = self._outgoing.cold_region()
        self._is_reading_ahead = True
        self._host.count("cold-reads")

        def on_read_ahead(_: None, error: BaseException | None) -> None:
            self._is_reading_ahead = False
            if not self.is_open:
                return
            if error is not None:
                self._owner.close(f"read-ahead failed: {error}")
                return
            self._outgoing.warmed(size)
            self.schedule_flush()

        self._host.helpers.submit(lambda: file.read_ahead(position, size), on_read_ahead)

    def drop(self) -> deque[QueuedResponse]:
        """Drop the queued responses and all later ones, because the connection is closed.

        Returns the places that are still in the queue of responses. Responses of which sending has
        begun are not among them.
        """
        self.is_open = False
        abandoned, self._responses = self._responses, deque()
        self._outgoing.clear()
        return abandoned
