"""Files of which only some are open: descriptors that are not in use are given back.

A file is opened again, by its path, when it is used. Nothing of what was written gets lost in
between: a file that is given back before it was synced is kept in memory by a mapping, and synced
through that (docs/decisions/0016). Loop and helper threads use the same files; a descriptor is
closed when the last thread that works with it is done.
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
# Read-ahead goes by pieces of this size, which are thrown away: the pages are what counts.
_READ_AHEAD_BYTES = 1 << 20

T = TypeVar("T")


class Descriptor:
    """Closed with the last reference."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class OpenFiles:
    """Which files are open, and which of them is the next to be given back.

    A file that has been used since it was last looked at is passed over once (the clock rule), so
    that its use costs no more than to note it.
    """

    def __init__(self, most: Callable[[], int] = descriptors.for_files) -> None:
        self._most = most
        self._lock = threading.Lock()
        # By id, oldest first. Single operations on it need no lock.
        self._open: dict[int, ref[RealFile]] = {}
        self._warnings = RateLimit()

    def __len__(self) -> int:
        return len(self._open)

    def call(self, opens: Callable[[], T]) -> T:
        """What ``opens`` returns; files are given back for it if no descriptor is left."""
        while True:
            try:
                return opens()
            except OSError as error:
                if not descriptors.is_exhausted(error):
                    raise
                if not self.give_back_one():
                    self._warn(error)
                    raise

    def _warn(self, error: OSError) -> None:
        if self._warnings.allows(int(time.monotonic() * 1000)):
            left_out = self._warnings.take_left_out()
            more = f" ({left_out} similar ones since the last line)" if left_out else ""
            _log.warning("a file cannot be opened: %s%s", descriptors.why(error), more)

    def add(self, file: "RealFile", descriptor: Descriptor) -> Descriptor:
        """The file is open; returns the descriptor that it has now."""
        with self._lock:
            if file.descriptor is None:
                file.descriptor = descriptor
            self._open[id(file)] = ref(file)
            descriptor = file.descriptor
        while len(self._open) > self._most() and self.give_back_one():
            pass
        return descriptor

    def forget(self, file: "RealFile") -> None:
        """It is not to be given back any more."""
        self._open.pop(id(file), None)

    def hold(self, file: "RealFile") -> None:
        """Keep it open until :meth:`let_go`. OSError if it cannot be opened."""
        while True:
            file.get()
            with self._lock:
                if file.descriptor is not None:
                    file.holders += 1
                    return

    def let_go(self, file: "RealFile") -> None:
        """The end of one :meth:`hold`."""
        with self._lock:
            file.holders -= 1

    def give_back_one(self) -> bool:
        """Give back the file that was not used for longest; False if all are held."""
        with self._lock:
            for _ in range(2 * len(self._open)):
                found = self._next()
                if found is None:
                    return False
                key, file = found
                if file.holders or file.is_used:
                    file.is_used = False
                elif file.give_back():
                    return True
                self._open[key] = ref(file)
        return False

    def give_back_unused(self) -> None:
        """Give back all files that were not used since the last call."""
        with self._lock:
            for key in list(self._open):
                weak = self._open.get(key)
                file = None if weak is None else weak()
                if file is None:
                    self._open.pop(key, None)
                elif file.is_used or file.holders:
                    file.is_used = False
                elif file.give_back():
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
    """See File."""

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
        # Keeps the file in memory while it is mapped, or was given back before it was synced.
        self._pin: Window | None = None
        self._identity: tuple[int, int] | None = None
        self._open()
        self._flags &= ~os.O_CREAT

    def __del__(self) -> None:
        self._open_files.forget(self)

    def __repr__(self) -> str:
        return f"RealFile({str(self.path)!r})"

    # --- the descriptor --------------------------------------------------------------------------
    def get(self) -> Descriptor:
        """The descriptor, to be held in a variable as long as its number is used."""
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
            raise OSError(errno.ESTALE, "another file was put in its place", str(self.path))
        return self._open_files.add(self, descriptor)

    def give_back(self) -> bool:
        """Close the descriptor, when nobody uses it any more; it is opened anew when it is needed.
        False if it has to stay. For OpenFiles."""
        descriptor, self.descriptor = self.descriptor, None
        # In this order: who writes notes that only when it has written, then looks whether the
        # descriptor is still the file's.
        if descriptor is None or self._is_mapped or not self._is_unsynced:
            return True
        return self._pin_down(descriptor)

    def _pin_down(self, descriptor: Descriptor) -> bool:
        """Keep what was written in memory without the descriptor; False if that cannot be: then
        the descriptor stays."""
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
        # It was given back while it was written through.
        if not self._pin_down(descriptor):
            self._open_files.add(self, descriptor)

    def rest(self) -> None:
        if self.holders == 0 and self.give_back():
            self._open_files.forget(self)

    @contextmanager
    def held(self) -> Iterator[None]:
        self._open_files.hold(self)
        try:
            yield
        finally:
            self._open_files.let_go(self)

    def close(self) -> None:
        self._is_closed = True
        self._open_files.forget(self)
        self.descriptor = self._pin = None

    # --- what it is for --------------------------------------------------------------------------
    def size(self) -> int:
        return self._status().st_size

    def modified_ms(self) -> int:
        return self._status().st_mtime_ns // 1_000_000

    def set_modified_ms(self, time_ms: int) -> None:
        descriptor = self.get()
        os.utime(descriptor.number, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def _status(self) -> os.stat_result:
        descriptor = self.descriptor
        # Not worth a descriptor.
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

    def pread_into(self, room: memoryview, position: int) -> int:
        descriptor = self.get()
        filled = 0
        while filled < len(room):
            count = os.preadv(descriptor.number, [room[filled:]], position + filled)
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
        # As get and _wrote, without their calls: every append comes here.
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
        # Without the call (macOS) zeros are written where the file has nothing else yet.
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
            raise ValueError(f"{self.path} is shorter than {size} bytes, which were to be mapped")
        # Through it bytes come without a word: it stays, also when it is not looked through any
        # more.
        window = self._pin = Window(descriptor.number, size)
        self._is_mapped = True
        return RealMapping(window)

    def sync(self) -> None:
        self.is_used = True
        # In this order: whoever gives the descriptor back meanwhile finds it unsynced, and pins.
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
            # Also behind the other: a failure of the time when there was no descriptor may be told
            # to those alone who had the file open then (Linux 4.13 to 4.16).
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
