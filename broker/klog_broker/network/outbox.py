"""One connection's answers: in the order of their requests, sent as far as the socket takes them.

The outbox also says which request may be begun: while an answer is outstanding none, except that
Produce may follow Produce; and none while too many answers wait or are unsent.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from klog_broker.metrics.requests import RequestTimes
from klog_broker.network.bounds import PENDING_REPLIES, PENDING_REPLY_BYTES, SEND_BYTES
from klog_broker.network.replies import (
    COUNTED_ELSEWHERE,
    OutgoingParts,
    QueuedReply,
    Sent,
    SlotState,
)
from klog_broker.network.states import State
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net.sockets import StreamSocket
from klog_broker.runtime.threads.helpers import Helpers


class OutboxHost(Protocol):
    """What an outbox asks of the broker's network."""

    @property
    def loop(self) -> Loop: ...

    @property
    def helpers(self) -> Helpers: ...

    @property
    def requests(self) -> RequestTimes: ...

    @property
    def pipelined_apis(self) -> frozenset[int]: ...

    def count(self, name: str) -> None:
        """Adds one to a counter."""


class OutboxOwner(Protocol):
    """The connection, as far as its outbox knows it."""

    @property
    def state(self) -> State: ...

    def schedule_resume(self) -> None:
        """Requests may be begun again, later in this turn."""

    def on_closing_answer(self) -> None:
        """An answer closes the connection once it is its turn."""

    def on_all_sent(self) -> bool:
        """No answer is left. Returns whether the connection has nothing else to do either."""

    def on_sent(self) -> None:
        """Answers have been sent, as far as they could be."""

    def touch(self) -> None:
        """The connection is used."""

    def refuse(self, reason: str) -> None:
        """Closes the connection for what its client did."""

    def close(self, reason: str) -> None:
        """Closes the connection."""


class Outbox:
    """Of one connection. Loop thread only."""

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
        "_replies",
        "_requests",
        "_stream",
        "held",
        "is_open",
        "outstanding",
        "planned",
    )

    def __init__(self, owner: OutboxOwner, host: OutboxHost, stream: StreamSocket) -> None:
        self.is_open = True
        """False once the connection is gone: then nobody can be answered."""
        self.outstanding = 0
        """Requests that were begun and are not answered."""
        self.planned = 0
        """Of these so many were served by plans, which go on behind them."""
        self.held = 0
        """Of these so many are held: what follows waits for them."""
        self._owner = owner
        self._host = host
        self._loop = host.loop
        self._pipelined_apis = host.pipelined_apis
        self._requests = host.requests
        self._stream = stream
        self._replies: deque[QueuedReply] = deque()
        self._queued_bytes = 0
        self._outgoing = OutgoingParts()
        self._is_reading_ahead = False
        self._flush_scheduled = False
        self._close_reason: str | None = None

    def __bool__(self) -> bool:
        return bool(self._replies or self._outgoing) or self._flush_scheduled

    @property
    def wants_room(self) -> bool:
        """Whether there are bytes that wait for the socket to take more."""
        return bool(self._outgoing) and not self._is_reading_ahead

    # -- requests -----------------------------------------------------------------------------

    def begin(self, api_key: int, head: int = COUNTED_ELSEWHERE) -> QueuedReply:
        """A request's place behind the others."""
        slot = QueuedReply(self, api_key, head, self._loop.time_ns)
        self._replies.append(slot)
        self.outstanding += 1
        return slot

    def begin_planned(self, api_key: int) -> QueuedReply:
        """The place of answers whose requests a plan has served, behind the others. Requests that
        follow may be planned before these are answered."""
        self.planned += 1
        return self.begin(api_key)

    def takes(self, api_key: int) -> bool:
        """Whether a request of this API may be begun now."""
        if self.takes_nothing():
            return False
        return not self.outstanding or (
            api_key in self._pipelined_apis and self._replies[-1].api_key == api_key
        )

    def takes_nothing(self) -> bool:
        """Whether no request whatever may be begun now."""
        if self.held:
            return True
        if len(self._replies) >= PENDING_REPLIES:
            return True
        if self._queued_bytes + self._outgoing.bytes_in_memory >= PENDING_REPLY_BYTES:
            return True
        return not self.is_pipelined if self.outstanding else False

    @property
    def is_pipelined(self) -> bool:
        """While answers are outstanding: whether requests may follow the last one."""
        return self._replies[-1].api_key in self._pipelined_apis

    # -- answers ------------------------------------------------------------------------------

    def on_slot_filled(self, slot: QueuedReply) -> None:
        """See SlotOwner."""
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
            self._owner.on_closing_answer()
        elif slot.head == COUNTED_ELSEWHERE:
            self.planned -= 1
        elif slot.began_ns != self._loop.time_ns:
            self._requests.others.append((slot.head, 1, slot.began_ns))
        else:
            self._requests.answered.append(slot.head)
        replies = self._replies
        if not self._flush_scheduled and replies and slot is replies[0]:
            self._flush_scheduled = True
            self._loop.call_at_send(self._flush)
        # A frame that is not here whole may have waited for what was held, too.
        if (was_held and not self.held) or self._owner.state.resumes:
            self._owner.schedule_resume()

    def on_slot_held(self) -> None:
        """See SlotOwner."""
        self.held += 1

    def schedule_flush(self) -> None:
        """Sends in this turn what can be sent."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_at_send(self._flush)

    def flush_now(self) -> None:
        """See SlotOwner."""
        self._flush()

    def _flush(self) -> None:
        if not self._flush_scheduled:
            return
        self._flush_scheduled = False
        if not self.is_open:
            return
        replies = self._replies
        if (
            len(replies) == 1
            and not self._outgoing
            and replies[0].state is SlotState.ANSWERED
            and not self._is_reading_ahead
        ):
            self._send_single(replies.popleft())
            if not self.is_open or (not self._outgoing and self._owner.on_all_sent()):
                return
        else:
            self._queue_answers()
            if not self._is_reading_ahead:
                self._send()
            if not self.is_open:
                return
            if self._close_reason is not None and not self._outgoing:
                self._owner.refuse(self._close_reason)
                return
        self._owner.on_sent()

    def _queue_answers(self) -> None:
        """The answers that no other one has to leave before become parts to be sent."""
        replies = self._replies
        while replies and replies[0].state is not SlotState.WAITING:
            slot = replies.popleft()
            self._queued_bytes -= slot.size_bytes
            if slot.state is SlotState.CLOSES:
                self._close_reason = slot.close_reason
                replies.clear()
                return
            if slot.state is SlotState.ANSWERED:
                self._outgoing.add(slot)

    def _send_single(self, slot: QueuedReply) -> None:
        """Sends the only answer there is; what the socket does not take waits as any other."""
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
        """Sends what there is, as far as the turn's share and the socket allow."""
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

        def done(_: None, error: BaseException | None) -> None:
            self._is_reading_ahead = False
            if not self.is_open:
                return
            if error is not None:
                self._owner.close(f"read-ahead failed: {error}")
                return
            self._outgoing.warmed(size)
            self.schedule_flush()

        self._host.helpers.submit(lambda: file.read_ahead(position, size), done)

    def drop(self) -> deque[QueuedReply]:
        """The connection is gone: answers that still come are dropped. Returns the places of those
        that have not left."""
        self.is_open = False
        abandoned, self._replies = self._replies, deque()
        self._outgoing.clear()
        return abandoned
