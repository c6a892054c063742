"""The fast path for single requests of quiet connections.

A quiet connection has no outstanding response, so the order of responses needs no care. Most of its
requests are answered with a few bytes in the event-loop turn in which they arrive; such responses
need no queue. After the turn's appends, each of them is sent with one send call. A request whose
response comes later, has several parts or a file region, or closes the connection gets a place in
the connection's outbox.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from klog_broker.network.outbox import Outbox
from klog_broker.network.responses import QueuedResponse
from klog_broker.runtime.event_loop.loop import Loop

_IN_MEMORY = (bytes, bytearray)


class SingleRequestConnection(Protocol):
    """The methods of a connection that the fast path for single requests uses."""

    def settle(self, slot: SingleResponse) -> None:
        """Send the response to a single request; if there is no response yet, give the request a
        place in the outbox (the connection's queue of responses).

        Called after the event-loop turn's appends.
        """


class SingleResponse:
    """The place of the response to a single request, which came while its connection had no
    outstanding response. Has those methods of QueuedResponse that handlers call.

    Only one of ``complete``, ``skip`` and ``close`` is called, and none of them if the request is
    canceled because the connection has closed.
    """

    __slots__ = ("_outbox", "connection", "head", "ordinary", "response")

    def __init__(self, connection: SingleRequestConnection, outbox: Outbox, head: int) -> None:
        self.connection = connection
        self.head = head
        """The request's API key (upper 16 bits) and version (lower 16 bits), under which the
        metrics count it as answered."""
        self.response: list[Any] | None = None
        """The response as a list of one part, if it needs no place in the outbox (the connection's
        queue of responses); otherwise None."""
        self._outbox = outbox
        self.ordinary: QueuedResponse | None = None
        """The request's place in the outbox (the connection's queue of responses); None while it
        has none."""

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return self._outbox.is_open

    @property
    def is_filled(self) -> bool:
        """Whether complete, skip or close was called."""
        return self.response is not None or (self.ordinary is not None and self.ordinary.is_filled)

    def place(self) -> QueuedResponse:
        """Return the request's place in the outbox (the connection's queue of responses); create
        the place if there is none."""
        place = self.ordinary
        if place is None:
            place = self.ordinary = self._outbox.reserve_slot(self.head >> 16, self.head)
            if self.response is not None:
                place.complete(self.response)
        return place

    def complete(self, parts: list[Any]) -> None:
        """Answer with a whole frame in ``parts``: byte strings and file regions. A response of one
        part in memory needs no place in the outbox (the connection's queue of responses), because
        no other response has to be sent before it."""
        if (
            self.ordinary is None
            and self.response is None
            and len(parts) == 1
            and type(parts[0]) in _IN_MEMORY
        ):
            self.response = parts
        else:
            self.place().complete(parts)

    def send_early(self) -> None:
        """Send the response before the event-loop turn's send phase if it has a place in the outbox
        (the connection's queue of responses). A response without a place is sent in the send
        phase."""
        if self.ordinary is not None:
            self.ordinary.send_early()

    def skip(self) -> None:
        """End the request without a response, as for Produce with acks=0."""
        self.place().skip()

    def close(self, reason: str) -> None:
        """Close the connection after earlier responses are sent."""
        self.place().close(reason)

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` if the connection closes before the request is answered."""
        self.place().when_closed(callback)

    def hold(self) -> bool:
        """Stop parsing the connection until the request is answered.

        Returns whether the request's bytes stay valid until then.
        """
        return self.place().hold()


class SingleRequests:
    """The single requests of an event-loop turn: each came while its connection had no outstanding
    response. Loop thread only."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.slots: list[SingleResponse] = []
        """The places for the responses to this event-loop turn's single requests (each request came
        while its connection had no outstanding response). Call ``schedule_responses`` before adding
        the first place."""

    def schedule_responses(self) -> None:
        """Schedule the sending of the responses to this event-loop turn's single requests for the
        time after the turn's appends."""
        self._loop.call_at_send(self._settle)

    def _settle(self) -> None:
        slots, self.slots = self.slots, []
        for slot in slots:
            slot.connection.settle(slot)
