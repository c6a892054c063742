"""Windows on files that hold no descriptor, neither the file's nor, as `mmap` does, one of their
own.

The kernel keeps the file open for a window. So a file whose descriptor is given back does not leave
memory, with the writes that have not reached the disk or have failed to (docs/decisions/0016).
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
# Not in the mmap module; the numbers of Linux and of macOS.
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0x40
_MS_SYNC = 0x4 if sys.platform == "linux" else 0x10


class Window:
    """The first ``size`` (> 0) bytes of the file behind a writable descriptor, which may be closed
    afterwards. The window goes with the last reference to it and to views of its ``pages``."""

    def __init__(self, descriptor: int, size: int) -> None:
        # The object is mmap's, so that it lives as long as views of it; its pages are exchanged
        # for the file's.
        self.pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANON | _MAP_NORESERVE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self.pages))
        self._size = size
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        flags = mmap.MAP_SHARED | _MAP_FIXED
        if _LIBC.mmap(self._address, size, protection, flags, descriptor, 0) == _FAILED:
            raise _last_error()
        # Else the first byte that is touched of a new index brings as much of the file into memory
        # as the disk reads ahead, which may be all of its 10 MB: zeros.
        self.pages.madvise(mmap.MADV_RANDOM)

    def sync(self) -> None:
        """Make what was written to the file durable, as far as the window reaches. Blocks, without
        the GIL."""
        if _LIBC.msync(self._address, self._size, _MS_SYNC):
            raise _last_error()


class RealMapping:
    """A window and the view of its bytes: see files.Mapping."""

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
