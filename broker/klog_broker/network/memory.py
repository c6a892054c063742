"""Memory into which all connections receive: the arena, which each event-loop turn reuses, and
buffers for large frames (RECEIVE_BYTES or more)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from klog_broker.network.buffers import FrameBufferPool, ReceiveArena
from klog_broker.runtime.event_loop.loop import Loop


class ReceiveMemory:
    """The memory into which all connections of one broker receive. Loop thread only."""

    def __init__(self, loop: Loop, queued_max_request_bytes: int) -> None:
        self.arena = ReceiveArena()
        self.buffers = FrameBufferPool()
        self._loop = loop
        self._queued_max_request_bytes = queued_max_request_bytes
        self._keepers: list[Callable[[], None]] = []
        self._ends_turn = False
        self._waiting: deque[Callable[[], None]] = deque()

    def keep_arena(self, size_bytes: int) -> None:
        """Mark the receive arena's next ``size_bytes`` as used until the event-loop turn ends."""
        self.arena.used_bytes += size_bytes
        if not self._ends_turn:
            self._ends_turn = True
            self._loop.call_at_turn_end(self._end_turn)

    def keep_at_turn_end(self, keep: Callable[[], None]) -> None:
        """Call ``keep`` when the event-loop turn ends, before the receive arena is reused."""
        self.keep_arena(0)
        self._keepers.append(keep)

    def _end_turn(self) -> None:
        self._ends_turn = False
        keepers, self._keepers = self._keepers, []
        for keep in keepers:
            keep()
        self.arena.reset()

    def may_lend(self) -> bool:
        """Whether a further large frame (RECEIVE_BYTES or more) may get a buffer of its own: the
        lent buffers have fewer bytes than queued.max.request.bytes allows."""
        limit = self._queued_max_request_bytes
        return limit <= 0 or self.buffers.lent_bytes < limit

    def when_returned(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once a further large frame (RECEIVE_BYTES or more) may get a buffer of
        its own (``may_lend``)."""
        self._waiting.append(callback)

    def give_back(self, buffer: bytearray) -> None:
        """Take back the buffer of a large frame (RECEIVE_BYTES or more), and call the callbacks of
        other large frames that wait for a buffer, one by one, as long as ``may_lend`` is true."""
        self.buffers.return_buffer(buffer)
        while self._waiting and self.may_lend():
            self._waiting.popleft()()
