"""Files that close their descriptors while unused, and open their paths again for the next use.

No written bytes are lost by closing: a mapping keeps an unsynced file in memory, and the next sync
goes through the mapping (docs/decisions/0016). The loop and helper threads use the same files. A
descriptor is closed when the last thread that uses it drops its reference.
"""

import errno
import fcntl
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from weakref import ref

from klog_broker.runtime.disk.mappings import RealMapping, Window
from klog_broker.runtime.system import descriptors
from klog_broker.runtime.system.rate_limit import RateLimit

_log = logging.getLogger("klog.files")
_ON_LINUX = sys.platform == "linux"
_NOWAIT = getattr(os, "RWF_NOWAIT", None)
# The size of one read of `read_ahead`, which only fills the page cache and drops the bytes.
_READ_AHEAD_BYTES = 1 << 20

T = TypeVar("T")


class Descriptor:
    """A file descriptor that is closed when the last reference to this object is dropped."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class OpenFiles:
    """The open files of the process. If too many files are open, closes some, preferably files that
    were not used for long.

    Chooses by the clock algorithm: each use only sets a flag (`RealFile.is_used`); a file with the
    flag is skipped once, and its flag is reset.
    """

    def __init__(self, most: Callable[[], int] = descriptors.file_limit) -> None:
        self._most = most
        self._lock = threading.Lock()
        # The open files by id(), in the order in which they are tried for closing. A single dict
        # operation is atomic and needs no lock.
        self._open: dict[int, ref[RealFile]] = {}
        self._warnings = RateLimit()

    def __len__(self) -> int:
        return len(self._open)

    def call(self, opens: Callable[[], T]) -> T:
        """Call ``opens``, which opens a file or a directory, and return its result. If no
        descriptor is left, close an unused file and call ``opens`` again; raise the error if no
        file can be closed."""
        while True:
            try:
                return opens()
            except OSError as error:
                if not descriptors.is_exhausted(error):
                    raise
                if not self.close_one_unused():
                    self._warn(error)
                    raise

    def _warn(self, error: OSError) -> None:
        if self._warnings.allows(int(time.monotonic() * 1000)):
            left_out = self._warnings.pop_suppressed_count()
            more = f" ({left_out} similar ones since the last line)" if left_out else ""
            _log.warning(
                "a file cannot be opened: %s%s", descriptors.describe_exhaustion(error), more
            )

    def add(self, file: "RealFile", descriptor: Descriptor) -> Descriptor:
        """Register an opened file; return the descriptor to use.

        If another thread has opened the file meanwhile, returns the descriptor of that thread.
        Closes other files if too many are open.
        """
        with self._lock:
            if file.descriptor is None:
                file.descriptor = descriptor
            self._open[id(file)] = ref(file)
            descriptor = file.descriptor
        while len(self._open) > self._most() and self.close_one_unused():
            pass
        return descriptor

    def forget(self, file: "RealFile") -> None:
        """Remove the file from the open files: the file is closed or has no descriptor."""
        self._open.pop(id(file), None)

    def hold(self, file: "RealFile") -> None:
        """Keep the file open until :meth:`release_file`. Raises OSError if the file cannot be
        opened."""
        while True:
            file.get()
            with self._lock:
                if file.descriptor is not None:
                    file.holders += 1
                    return

    def release_file(self, file: "RealFile") -> None:
        """Undo one :meth:`hold`."""
        with self._lock:
            file.holders -= 1

    def close_one_unused(self) -> bool:
        """Close the descriptor of the file that the clock algorithm chooses; False if none can be
        closed, for example because all files are held (`hold`)."""
        with self._lock:
            for _ in range(2 * len(self._open)):
                found = self._next()
                if found is None:
                    return False
                key, file = found
                if file.holders or file.is_used:
                    file.is_used = False
                elif file.drop_descriptor():
                    return True
                self._open[key] = ref(file)
        return False

    def close_unused(self) -> None:
        """Close the descriptors of all files that are neither held (`hold`) nor marked as used
        (`RealFile.is_used`), and remove the marks of the others. So a second call closes the files
        not used since the first."""
        with self._lock:
            for key in list(self._open):
                weak = self._open.get(key)
                file = None if weak is None else weak()
                if file is None:
                    self._open.pop(key, None)
                elif file.is_used or file.holders:
                    file.is_used = False
                elif file.drop_descriptor():
                    self._open.pop(key, None)

    def _next(self) -> "tuple[int, RealFile] | None":
        while self._open:
            try:
                key = next(iter(self._open))
            except (StopIteration, RuntimeError):  # another thread has opened or dropped a file
                continue
            weak = self._open.pop(key, None)
            file = None if weak is None else weak()
            if file is not None and file.descriptor is not None:
                return key, file
        return None


class RealFile:
    """Implements files.File on the machine's disk."""

    __slots__ = (
        "__weakref__",
        "_flags",
        "_identity",
        "_is_closed",
        "_is_mapped",
        "_is_unsynced",
        "_open_files",
        "_pin",
        "descriptor",
        "holders",
        "is_used",
        "path",
    )

    def __init__(self, path: Path, flags: int, open_files: OpenFiles) -> None:
        self.path = path
        self.descriptor: Descriptor | None = None
        self.is_used = True
        self.holders = 0
        self._open_files = open_files
        self._flags = flags | os.O_CLOEXEC
        self._is_closed = False
        self._is_unsynced = False
        self._is_mapped = False
        # A mapping of the file, or None. While it exists, `sync` needs no descriptor on Linux. Set
        # by `map`, and when the descriptor is dropped before the written bytes are synced.
        self._pin: Window | None = None
        self._identity: tuple[int, int] | None = None
        self._open()
        self._flags &= ~os.O_CREAT

    def __del__(self) -> None:
        self._open_files.forget(self)

    def __repr__(self) -> str:
        return f"RealFile({str(self.path)!r})"

    # --- opening and closing the file's descriptor -----------------------------------------------
    def get(self) -> Descriptor:
        """Return the file's descriptor; open the file again if its descriptor was closed.

        Keep the result in a variable while its number is used: the descriptor is closed when the
        last reference to the result is dropped.
        """
        self.is_used = True
        return self.descriptor or self._open()

    def _open(self) -> Descriptor:
        if self._is_closed:
            raise OSError(errno.EBADF, "the file was closed", str(self.path))
        number = self._open_files.call(lambda: os.open(self.path, self._flags, 0o644))
        descriptor = Descriptor(number)
        status = os.fstat(number)
        identity = (status.st_dev, status.st_ino)
        if self._identity is None:
            self._identity = identity
        elif identity != self._identity:
            raise OSError(errno.ESTALE, "another file now has this file's path", str(self.path))
        return self._open_files.add(self, descriptor)

    def drop_descriptor(self) -> bool:
        """Drop the file's reference to its descriptor. Return False, and keep the reference, if the
        file has unsynced bytes and cannot be mapped.

        The descriptor is closed when no thread uses it any more. The next use of the file opens a
        new one. Only OpenFiles and `release_descriptor` call this method.
        """
        descriptor, self.descriptor = self.descriptor, None
        # Drop the descriptor first, then read `_is_unsynced`. A writing thread works in the
        # opposite order: it sets `_is_unsynced`, then checks whether the file still has the
        # descriptor. So at least one of both threads maps the file (`_pin_down`), which keeps the
        # unsynced bytes in memory.
        if descriptor is None or self._is_mapped or not self._is_unsynced:
            return True
        return self._pin_down(descriptor)

    def _pin_down(self, descriptor: Descriptor) -> bool:
        """Map the file, so that its unsynced bytes stay in memory without the descriptor.

        Returns False if the file cannot be mapped: the file then keeps the descriptor.
        """
        try:
            size = os.fstat(descriptor.number).st_size
            if size:
                self._pin = Window(descriptor.number, size)
        except OSError:
            self.descriptor = self.descriptor or descriptor
            return False
        return True

    def _wrote(self, descriptor: Descriptor) -> None:
        self._is_unsynced = True
        if self.descriptor is descriptor or self._is_mapped:
            return
        # Another thread dropped the descriptor while this thread was writing through it. If that
        # happened before `_is_unsynced` was set, that thread did not map the file: map it here.
        if not self._pin_down(descriptor):
            self._open_files.add(self, descriptor)

    def release_descriptor(self) -> None:
        if self.holders == 0 and self.drop_descriptor():
            self._open_files.forget(self)

    @contextmanager
    def held(self) -> Iterator[None]:
        self._open_files.hold(self)
        try:
            yield
        finally:
            self._open_files.release_file(self)

    def close(self) -> None:
        self._is_closed = True
        self._open_files.forget(self)
        self.descriptor = self._pin = None

    # --- reading and writing ---------------------------------------------------------------------
    def size(self) -> int:
        return self._status().st_size

    def modified_ms(self) -> int:
        return self._status().st_mtime_ns // 1_000_000

    def set_modified_ms(self, time_ms: int) -> None:
        descriptor = self.get()
        os.utime(descriptor.number, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def _status(self) -> os.stat_result:
        descriptor = self.descriptor
        # Do not open the file for its size or time: stat needs only the path.
        return self.path.stat() if descriptor is None else os.fstat(descriptor.number)

    def pread(self, size: int, position: int) -> bytes:
        descriptor = self.get()
        data = os.pread(descriptor.number, size, position)
        while 0 < len(data) < size:
            more = os.pread(descriptor.number, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def pread_into(self, buffer: memoryview, position: int) -> int:
        descriptor = self.get()
        filled = 0
        while filled < len(buffer):
            count = os.preadv(descriptor.number, [buffer[filled:]], position + filled)
            if not count:
                break
            filled += count
        return filled

    def pread_now(self, size: int, position: int) -> bytes | None:
        if _NOWAIT is None:
            return self.pread(size, position)
        self.is_used = True
        descriptor = self.descriptor or self._open()
        buffer = bytearray(size)
        try:
            filled = count = os.preadv(descriptor.number, [buffer], position, _NOWAIT)
            while count and filled < size:
                with memoryview(buffer) as view:
                    rest = [view[filled:]]
                    count = os.preadv(descriptor.number, rest, position + filled, _NOWAIT)
                filled += count
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return self.pread(size, position)
        return bytes(buffer) if filled == size else bytes(buffer[:filled])

    def is_warm(self, position: int, size: int) -> bool:
        if _NOWAIT is None or size <= 0:
            return True
        self.is_used = True
        number = (self.descriptor or self._open()).number
        byte = [bytearray(1)]
        try:
            os.preadv(number, byte, position, _NOWAIT)
            if size > 1:
                os.preadv(number, byte, position + size - 1, _NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
        return True

    def read_ahead(self, position: int, size: int) -> None:
        descriptor = self.get()
        end = position + size
        while position < end:
            wanted = min(end - position, _READ_AHEAD_BYTES)
            count = len(os.pread(descriptor.number, wanted, position))
            if count == 0:
                return
            position += count

    def send_to(self, socket_descriptor: int, position: int, size: int) -> int:
        self.is_used = True
        descriptor = self.descriptor or self._open()
        return os.sendfile(socket_descriptor, descriptor.number, position, size)

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        # Every append calls this method, so the bodies of get and _wrote are repeated here, without
        # the cost of the calls.
        self.is_used = True
        descriptor = self.descriptor or self._open()
        written = os.pwrite(descriptor.number, data, position)
        self._is_unsynced = True
        if self.descriptor is not descriptor:
            self._wrote(descriptor)
        return written

    def allocate(self, position: int, size: int) -> None:
        descriptor = self.get()
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor.number, position, size)
            self._wrote(descriptor)
            return
        # macOS has no posix_fallocate: write zeros instead. The zeros overwrite no records,
        # because callers allocate only regions behind the last written byte.
        written = os.pwrite(descriptor.number, bytes(size), position)
        self._wrote(descriptor)
        if written != size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def truncate(self, size: int) -> None:
        descriptor = self.get()
        os.ftruncate(descriptor.number, size)
        self._wrote(descriptor)

    def map(self, size: int) -> RealMapping:
        descriptor = self.get()
        if size > os.fstat(descriptor.number).st_size:
            raise ValueError(f"{self.path} cannot be mapped: the file has fewer than {size} bytes")
        # This object does not notice writes through the mapping. So it keeps the mapping until
        # close(), even when the caller has stopped using it, and `sync` always syncs through it.
        window = self._pin = Window(descriptor.number, size)
        self._is_mapped = True
        return RealMapping(window)

    def sync(self) -> None:
        self.is_used = True
        # Read the descriptor before `_is_unsynced` is reset below: a thread that drops the
        # descriptor before the reset still finds the file unsynced, and maps it (`_pin_down`).
        descriptor, pin = self.descriptor, self._pin
        if descriptor is None and (pin is None or not _ON_LINUX):
            try:
                descriptor = self.get()
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ESTALE):
                    return
                raise
        self._is_unsynced = False
        if descriptor is not None:
            _sync(descriptor.number)
        if pin is not None:
            # Sync through the mapping as well as through the descriptor: Linux 4.13 to 4.16 may
            # report a failed write only to descriptors and mappings that existed when it failed.
            pin.sync()
            if self._pin is pin and not self._is_mapped:
                self._pin = None


def _sync(descriptor: int) -> None:
    if _ON_LINUX:
        os.fdatasync(descriptor)
    elif hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone stops at the drive's cache
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)
