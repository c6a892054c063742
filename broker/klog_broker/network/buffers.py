"""Memory for received requests: one arena, into which all connections receive, and a pool of
buffers for large frames (RECEIVE_BYTES or more).

Each event-loop turn reuses the arena from its start, and the pool may lend a returned buffer at any
time. So no view of the arena may be used after the turn in which the bytes were received, and no
view of a buffer after the buffer is returned.
"""

from klog_broker.network.bounds import ARENA_BYTES, POOLED_BYTES, RECEIVE_BYTES


class ReceiveArena:
    """One block of memory into which all connections receive during an event-loop turn, one after
    the other."""

    def __init__(self, size_bytes: int = ARENA_BYTES) -> None:
        self.view = memoryview(bytearray(size_bytes))
        self.size_bytes = size_bytes
        self.used_bytes = 0
        self.first_window = self.view[:RECEIVE_BYTES]
        """A view of the receive arena's first RECEIVE_BYTES bytes, which callers use instead of
        ``window`` while no byte is used. Most event-loop turns need no other view, so this one is
        made only once."""

    def window(self) -> memoryview | None:
        """Return a view of the receive arena's next RECEIVE_BYTES bytes; None if fewer are free.
        The bytes are not reserved until ``mark_used`` is called."""
        start = self.used_bytes
        end = start + RECEIVE_BYTES
        return self.view[start:end] if end <= self.size_bytes else None

    def free_bytes(self) -> int:
        """The number of bytes of the receive arena that are free in this event-loop turn."""
        return self.size_bytes - self.used_bytes

    def mark_used(self, size_bytes: int) -> None:
        """Mark the next ``size_bytes`` of the arena (the buffer into which all connections receive)
        as used until ``reset``."""
        self.used_bytes += size_bytes

    def unmark(self, before_bytes: int, after_bytes: int) -> None:
        """Undo the `mark_used` that raised ``used_bytes`` from ``before_bytes`` to ``after_bytes``,
        unless other bytes have been marked as used since."""
        if self.used_bytes == after_bytes:
            self.used_bytes = before_bytes

    def reset(self) -> None:
        """Free all bytes of the receive arena at the end of the event-loop turn."""
        self.used_bytes = 0


class FrameBufferPool:
    """Reusable buffers for large frames (RECEIVE_BYTES or more) that arrive over several event-loop
    turns. The buffers' sizes are powers of two.

    A new buffer costs a page fault for each 4 KiB, which takes longer than receiving 4 KiB. So the
    pool keeps returned buffers, up to ``keep_bytes`` altogether.
    """

    def __init__(self, keep_bytes: int = POOLED_BYTES) -> None:
        self._keep_bytes = keep_bytes
        self._free: dict[int, list[bytearray]] = {}
        self.pooled_bytes = 0
        self.lent_bytes = 0

    def lend(self, at_least_bytes: int) -> bytearray:
        """Lend a buffer, whose content is arbitrary. Its size is the smallest power of two that is
        not below ``at_least_bytes``."""
        size = 1 << (at_least_bytes - 1).bit_length()
        self.lent_bytes += size
        free = self._free.get(size)
        if free:
            self.pooled_bytes -= size
            return free.pop()
        return bytearray(size)

    def return_buffer(self, buffer: bytearray) -> None:
        """Take back a lent buffer whose bytes are no longer used."""
        size = len(buffer)
        self.lent_bytes -= size
        if self.pooled_bytes + size <= self._keep_bytes:
            self.pooled_bytes += size
            self._free.setdefault(size, []).append(buffer)
