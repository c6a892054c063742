"""Memory that requests are received into: one arena for a turn, a pool for large frames.

Both are reused when the turn is over, so that nothing may hold a view of them longer.
"""

from klog_broker.network.bounds import ARENA_BYTES, POOLED_BYTES, RECEIVE_BYTES


class ReceiveArena:
    """One block that all connections of a turn receive into, one after the other."""

    def __init__(self, size_bytes: int = ARENA_BYTES) -> None:
        self.view = memoryview(bytearray(size_bytes))
        self.size_bytes = size_bytes
        self.used_bytes = 0
        self.first_window = self.view[:RECEIVE_BYTES]
        """What ``window`` returns while nothing is used, as in most turns of small requests."""

    def window(self) -> memoryview | None:
        """The next RECEIVE_BYTES, which stay free until ``take``; None if so many are not left."""
        start = self.used_bytes
        end = start + RECEIVE_BYTES
        return self.view[start:end] if end <= self.size_bytes else None

    def free_bytes(self) -> int:
        """How many bytes are left for this turn."""
        return self.size_bytes - self.used_bytes

    def take(self, size_bytes: int) -> None:
        """Counts the next ``size_bytes`` as used until ``reset``."""
        self.used_bytes += size_bytes

    def take_back(self, before_bytes: int, after_bytes: int) -> None:
        """Free what was taken when ``used_bytes`` went from ``before_bytes`` to ``after_bytes``,
        unless more has been taken since."""
        if self.used_bytes == after_bytes:
            self.used_bytes = before_bytes

    def reset(self) -> None:
        """The turn is over: everything is free again."""
        self.used_bytes = 0


class BufferPool:
    """Buffers of powers of two for frames that are too large for the arena.

    A fresh buffer costs a page fault for each 4 KiB, more than receiving into it; so returned ones
    are kept, up to ``keep_bytes`` altogether.
    """

    def __init__(self, keep_bytes: int = POOLED_BYTES) -> None:
        self._keep_bytes = keep_bytes
        self._free: dict[int, list[bytearray]] = {}
        self.kept_bytes = 0
        self.lent_bytes = 0

    def take(self, at_least_bytes: int) -> bytearray:
        """A buffer of the next power of two. Its content is whatever was there before."""
        size = 1 << (at_least_bytes - 1).bit_length()
        self.lent_bytes += size
        free = self._free.get(size)
        if free:
            self.kept_bytes -= size
            return free.pop()
        return bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        """Returns a buffer that nobody looks at any more."""
        size = len(buffer)
        self.lent_bytes -= size
        if self.kept_bytes + size <= self._keep_bytes:
            self.kept_bytes += size
            self._free.setdefault(size, []).append(buffer)
