"""Memory for large things that come one after the other, used again once nobody looks at it.

New memory is cleared twice, by the system and by Python, page after page at its first use: that
costs more than receiving into it, or encoding into it.
"""

_SLACK_BYTES = 64 * 1024


class KeptMemory:
    """Keeps the last ``count`` pieces of memory that it gave. For one thread."""

    def __init__(self, count: int, max_bytes: int) -> None:
        """Pieces of more than ``max_bytes`` are not kept."""
        self._count = count
        self._max_bytes = max_bytes
        self._kept: list[bytearray] = []

    def take(self, size_bytes: int) -> bytearray:
        """At least so many bytes, which may hold anything.

        They are the caller's as long as there is a view of them (a memoryview, a numpy array); the
        first one has to be made before this is called again.
        """
        for place, kept in enumerate(self._kept):
            fits = size_bytes <= len(kept) <= 2 * size_bytes + _SLACK_BYTES
            if fits and _is_free(kept):
                self._kept.append(self._kept.pop(place))
                return kept
        fresh = bytearray(size_bytes)
        if size_bytes <= self._max_bytes:
            self._kept = [*self._kept, fresh][-self._count :]
        return fresh


def _is_free(memory: bytearray) -> bool:
    """Whether no view is left: while there is one, the size can't be changed."""
    try:
        memory.append(memory.pop())
    except BufferError:
        return False
    return True
