"""Memory that the machine has: held, and let go of as somebody else needs it.

A virtual machine may give pages that were free for some seconds back to its host. The next one to
touch them waits until the machine is given them again, for several times as long as a copy takes.
A run that fills memory measures that, unless it gets pages that were in use until just before.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_PIECE = bytes(1 << 20)
_BLOCK_BYTES = 512


class HeldMemory:
    """Pages in use, which can only become fewer."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def held_bytes(self) -> int:
        """How much it is now."""
        return os.fstat(self._descriptor).st_blocks * _BLOCK_BYTES

    def keep(self, size_bytes: int) -> None:
        """Lets go of all but so many bytes."""
        size_bytes = max(size_bytes, 0)
        if size_bytes < os.fstat(self._descriptor).st_size:
            os.ftruncate(self._descriptor, size_bytes)


@contextmanager
def held_memory(size_bytes: int) -> Iterator[HeldMemory]:
    """So many bytes of memory, rounded up to whole MB, each page of it touched. Linux."""
    descriptor = os.memfd_create("held-memory")
    try:
        for _ in range(-(-size_bytes // len(_PIECE))):
            os.write(descriptor, _PIECE)
        yield HeldMemory(descriptor)
    finally:
        os.close(descriptor)
