"""What all connections of a broker receive into: the turn's arena, and buffers for large frames."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from klog_broker.network.buffers import BufferPool, ReceiveArena
from klog_broker.runtime.event_loop.loop import Loop


class ReceiveMemory:
    """The receive memory of one broker. Loop thread only."""

    def __init__(self, loop: Loop, queued_max_request_bytes: int) -> None:
        self.arena = ReceiveArena()
        self.buffers = BufferPool()
        self._loop = loop
        self._queued_max_request_bytes = queued_max_request_bytes
        self._keepers: list[Callable[[], None]] = []
        self._ends_turn = False
        self._waiting: deque[Callable[[], None]] = deque()

    def keep_arena(self, size_bytes: int) -> None:
        """The arena's next ``size_bytes`` are used until the turn is over."""
        self.arena.used_bytes += size_bytes
        if not self._ends_turn:
            self._ends_turn = True
            self._loop.call_at_turn_end(self._end_turn)

    def keep_at_turn_end(self, keep: Callable[[], None]) -> None:
        """Calls ``keep`` when the turn is over, before the arena is reused."""
        self.keep_arena(0)
        self._keepers.append(keep)

    def _end_turn(self) -> None:
        self._ends_turn = False
        keepers, self._keepers = self._keepers, []
        for keep in keepers:
            keep()
        self.arena.reset()

    def may_lend(self) -> bool:
        """Whether a further large frame may be begun (queued.max.request.bytes)."""
        limit = self._queued_max_request_bytes
        return limit <= 0 or self.buffers.lent_bytes < limit

    def when_returned(self, callback: Callable[[], None]) -> None:
        """Calls ``callback`` when a further large frame may be begun."""
        self._waiting.append(callback)

    def give_back(self, buffer: bytearray) -> None:
        """A frame's buffer has come back: the frames that wait for memory can be begun."""
        self.buffers.give_back(buffer)
        while self._waiting and self.may_lend():
            self._waiting.popleft()()
