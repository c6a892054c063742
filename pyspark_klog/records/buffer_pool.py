"""Reuses large buffers for received or encoded data, once no view of a buffer is left.

New memory is cleared twice, page by page: by the operating system at the first use of a page, and
by Python. Clearing takes longer than receiving or encoding data into the buffer.
"""

_SLACK_BYTES = 64 * 1024


class BufferPool:
    """A pool of the last ``count`` buffers of at most ``max_bytes`` bytes that :meth:`get_buffer`
    returned. Not thread-safe."""

    def __init__(self, count: int, max_bytes: int) -> None:
        """Create an empty pool; buffers of more than ``max_bytes`` are never pooled."""
        self._count = count
        self._max_bytes = max_bytes
        self._buffers: list[bytearray] = []

    def get_buffer(self, size_bytes: int) -> bytearray:
        """Return a buffer of at least ``size_bytes`` bytes with arbitrary contents.

        The buffer belongs to the caller as long as a view of it exists (a memoryview or a numpy
        array). The caller must create the first view before the next call of ``get_buffer``.
        """
        for place, pooled in enumerate(self._buffers):
            fits = size_bytes <= len(pooled) <= 2 * size_bytes + _SLACK_BYTES
            if fits and _has_no_view(pooled):
                self._buffers.append(self._buffers.pop(place))
                return pooled
        fresh = bytearray(size_bytes)
        if size_bytes <= self._max_bytes:
            self._buffers = [*self._buffers, fresh][-self._count :]
        return fresh


def _has_no_view(memory: bytearray) -> bool:
    """Whether no view of ``memory`` is left: a bytearray with a view refuses to change its size."""
    try:
        memory.append(memory.pop())
    except BufferError:
        return False
    return True
