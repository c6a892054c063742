"""Memory mappings of files that hold no file descriptor (Python's `mmap` keeps a duplicate of one).

The system keeps a mapped file's inode in memory. So after the file's descriptor is closed, its
unsynced pages and the errors of failed writes are not forgotten (docs/decisions/0016).
"""

import ctypes
import mmap
import os
import sys

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_LIBC.msync.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FAILED = ctypes.c_void_p(-1).value
# Constants of Linux and macOS that Python's mmap module lacks.
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0x40
_MS_SYNC = 0x4 if sys.platform == "linux" else 0x10


class Window:
    """A shared, writable mapping of the first ``size`` (> 0) bytes of a file.

    The caller may close the descriptor afterwards. The mapping ends with the last reference to the
    window and to views of its ``pages``.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        # Reserve anonymous pages through Python's mmap object, which lives as long as its views.
        # Below, MAP_FIXED replaces the pages by those of the file.
        self.pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANON | _MAP_NORESERVE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self.pages))
        self._size = size
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        flags = mmap.MAP_SHARED | _MAP_FIXED
        if _LIBC.mmap(self._address, size, protection, flags, descriptor, 0) == _FAILED:
            raise _last_error()
        # No read-ahead: the first access to a new index file would read up to all of its 10 MB of
        # zeros into memory.
        self.pages.madvise(mmap.MADV_RANDOM)

    def sync(self) -> None:
        """Make bytes that were written to the mapped part of the file durable (msync).

        Blocks, without holding the GIL.
        """
        if _LIBC.msync(self._address, self._size, _MS_SYNC):
            raise _last_error()


class RealMapping:
    """Implements files.Mapping with a `Window`, which maps the file, and a memoryview of its
    bytes."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self.view = memoryview(window.pages)

    def sync(self) -> None:
        self._window.sync()

    def close(self) -> None:
        self.view.release()


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
