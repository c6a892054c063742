"""Memory that is held, and released as other processes need it.

A virtual machine may give pages that were free for some seconds back to its host. The next process
to touch them waits until the machine gets them again, several times longer than a copy takes. A run
that fills memory would measure that wait, unless it gets pages that were in use until just before.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_PIECE = bytes(1 << 20)
_BLOCK_BYTES = 512


class HeldMemory:
    """Pages in use, whose number can only decrease."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def held_bytes(self) -> int:
        """How many bytes of memory are in use now."""
        return os.fstat(self._descriptor).st_blocks * _BLOCK_BYTES

    def keep(self, size_bytes: int) -> None:
        """Release all but ``size_bytes`` bytes."""
        size_bytes = max(size_bytes, 0)
        if size_bytes < os.fstat(self._descriptor).st_size:
            os.ftruncate(self._descriptor, size_bytes)


@contextmanager
def held_memory(size_bytes: int) -> Iterator[HeldMemory]:
    """Hold ``size_bytes`` of memory, rounded up to whole MB, with each page touched. Linux only."""
    descriptor = os.memfd_create("held-memory")
    try:
        for _ in range(-(-size_bytes // len(_PIECE))):
            os.write(descriptor, _PIECE)
        yield HeldMemory(descriptor)
    finally:
        os.close(descriptor)
