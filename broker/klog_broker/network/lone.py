"""Requests that come alone: the short way from a quiet connection to its answer and back.

A quiet connection has no answer that a new one could overtake. Most of its requests are answered in
the turn in which they came, by a few bytes: these answers need no queue. The answers of a turn are
sent in a row, one send each. A request that waits, whose answer has a region of a file, or that
closes the connection is given an ordinary place in the connection's outbox.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from klog_broker.network.outbox import Outbox
from klog_broker.network.replies import QueuedReply
from klog_broker.runtime.event_loop.loop import Loop

_IN_MEMORY = (bytes, bytearray)


class LoneConnection(Protocol):
    """The connection, as far as the turn's lone requests know it."""

    def settle(self, slot: LoneReply) -> None:
        """The turn's appends are over: sends the answer if there is one by now, or gives the
        request its place in the outbox."""


class LoneReply:
    """The place of a lone request's answer, used as a QueuedReply: exactly one of ``complete``,
    ``skip`` and ``close`` is called."""

    __slots__ = ("_outbox", "answer", "connection", "head", "ordinary")

    def __init__(self, connection: LoneConnection, outbox: Outbox, head: int) -> None:
        self.connection = connection
        self.head = head
        """API key and version, as in metrics/requests.py."""
        self.answer: list[Any] | None = None
        """An answer that needs no ordinary place: its one part."""
        self._outbox = outbox
        self.ordinary: QueuedReply | None = None
        """The request's place in the outbox, if it has one."""

    @property
    def is_open(self) -> bool:
        """Whether the connection still is."""
        return self._outbox.is_open

    @property
    def is_filled(self) -> bool:
        """See QueuedReply."""
        return self.answer is not None or (self.ordinary is not None and self.ordinary.is_filled)

    def place(self) -> QueuedReply:
        """The request's place in the outbox, from now on if it had none."""
        place = self.ordinary
        if place is None:
            place = self.ordinary = self._outbox.begin(self.head >> 16, self.head)
            if self.answer is not None:
                place.complete(self.answer)
        return place

    def complete(self, parts: list[Any]) -> None:
        """See QueuedReply."""
        if (
            self.ordinary is None
            and self.answer is None
            and len(parts) == 1
            and type(parts[0]) in _IN_MEMORY
        ):
            self.answer = parts
        else:
            self.place().complete(parts)

    def leave_now(self) -> None:
        """See QueuedReply. An answer without a place leaves with the others of its turn."""
        if self.ordinary is not None:
            self.ordinary.leave_now()

    def skip(self) -> None:
        """See QueuedReply."""
        self.place().skip()

    def close(self, reason: str) -> None:
        """See QueuedReply."""
        self.place().close(reason)

    def when_closed(self, callback: Callable[[], None]) -> None:
        """See QueuedReply."""
        self.place().when_closed(callback)

    def hold(self) -> bool:
        """See QueuedReply."""
        return self.place().hold()


class LoneRequests:
    """The lone requests of a turn. Loop thread only."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.slots: list[LoneReply] = []
        """The places of this turn's requests. Before the first one is put in, call ``begin``."""

    def begin(self) -> None:
        """Settle this turn's requests when its appends are over."""
        self._loop.call_at_send(self._settle)

    def _settle(self) -> None:
        slots, self.slots = self.slots, []
        for slot in slots:
            slot.connection.settle(slot)
