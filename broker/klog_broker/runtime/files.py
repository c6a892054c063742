"""Files as a parameter: all of the broker's disk access goes through here.

`RealFiles` is the machine's disk. Tests put in its place one that forgets what was not synced,
tears writes, fails the n-th fsync or blocks on cold pages (tests/support/memory_files.py).

What is durable, as POSIX has it: a file's bytes after `File.sync`; a name (created, renamed,
removed) after `Files.sync_dir` of its directory. Nothing else is.
"""

import errno
import fcntl
import mmap
import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

from pyspark_klog.errors import KlogError

# Read-ahead goes by pieces of this size, which are thrown away: the pages are what counts.
_READ_AHEAD_BYTES = 1 << 20
_NOWAIT = getattr(os, "RWF_NOWAIT", None)
_ON_LINUX = sys.platform == "linux"


class FileLockHeld(KlogError):
    """Another process (or another broker in this one) holds the lock."""


class Mapping(Protocol):
    """A writable window on the start of a file. Written bytes reach the file by themselves, and the
    disk with :meth:`File.sync` or :meth:`sync`."""

    @property
    def view(self) -> memoryview:
        """The bytes; not to be used after :meth:`close`."""

    def sync(self) -> None:
        """Make what was written through the window durable. Blocks; for helper threads."""

    def close(self) -> None:
        """Give the window back. The file keeps the bytes."""


class File(Protocol):
    """An open file. It is closed by :meth:`close`, or when the last reference to it goes: a reader
    that holds a region of a file which was deleted goes on reading."""

    path: Path

    def fileno(self) -> int:
        """The descriptor for sendfile; -1 where there is none (then pread and send)."""

    def size(self) -> int: ...

    def modified_ms(self) -> int:
        """When it was last written to, by the wall's clock."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the file's end. May block on a cold page."""

    def pread_now(self, size: int, position: int) -> bytes | None:
        """As :meth:`pread`, but None where that would have to wait for the disk."""

    def is_warm(self, position: int, size: int) -> bool:
        """Whether both ends of the region are in the page cache. Never blocks.

        True where the system cannot tell.
        """

    def read_ahead(self, position: int, size: int) -> None:
        """Bring the region into the page cache. Blocks; for helper threads."""

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        """Write and return how many bytes were written: fewer than given when the disk is full."""

    def allocate(self, position: int, size: int) -> None:
        """Make room on the disk, growing the file if need be.

        OSError (ENOSPC) if there is none. A store into a mapping of a sparse file on a full disk
        would kill the process instead.
        """

    def truncate(self, size: int) -> None:
        """Cut, or grow with zeros that take no room yet."""

    def map(self, size: int) -> Mapping:
        """A window on the first ``size`` (> 0) bytes, which the file must have."""

    def sync(self) -> None:
        """Make the bytes and the size durable. Blocks; for helper threads.

        After it failed nothing is known about the bytes since the last good one, and a second try
        can succeed without having written them: never retry.
        """

    def close(self) -> None: ...


class FileRegion(NamedTuple):
    """``size`` bytes at ``position``: what sendfile takes. Keeps the file open while it lives."""

    file: File
    position: int
    size: int


class FileLock(Protocol):
    """A lock that is held until it is released or the process ends."""

    def release(self) -> None: ...


class Files(Protocol):
    """A disk. Errors are OSError, as the system gives them."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        """Open; with ``create`` make an empty file if there is none, else FileNotFoundError."""

    def exists(self, path: Path) -> bool: ...

    def is_dir(self, path: Path) -> bool: ...

    def list_dir(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""

    def make_dirs(self, path: Path) -> None:
        """Make the directory and those above it; not an error if it is there."""

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or directory a new name, in one step, in place of a file of that name."""

    def remove(self, path: Path) -> None:
        """Remove the file; not an error if there is none."""

    def remove_tree(self, path: Path) -> None:
        """Remove the directory and what is in it; not an error if there is none."""

    def read_bytes(self, path: Path) -> bytes: ...

    def write_atomically(self, path: Path, data: bytes) -> None:
        """Put ``data`` in place of the file, durably: a crash leaves the old bytes or the new ones.

        Temporary file, fsync, rename, fsync of the directory. Blocks.
        """

    def sync_dir(self, path: Path) -> None:
        """Make the names in a directory durable. Blocks."""

    def lock(self, path: Path) -> FileLock:
        """Take the lock of this file, making it if need be; FileLockHeld if another has it."""


def write_atomically(files: Files, path: Path, data: bytes) -> None:
    """`Files.write_atomically` out of the other methods."""
    temporary = path.with_name(path.name + ".tmp")
    file = files.open(temporary, create=True)
    try:
        file.truncate(0)
        written = file.pwrite(data, 0)
        if written != len(data):
            raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes written", str(path))
        file.sync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_dir(path.parent)


class RealMapping:
    """mmap."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._mmap = mmap.mmap(descriptor, size)
        self.view = memoryview(self._mmap)

    def sync(self) -> None:
        self._mmap.flush()

    def close(self) -> None:
        self.view.release()
        self._mmap.close()


class RealFile:
    """A descriptor, closed with the last reference at the latest."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path, flags: int) -> None:
        self._descriptor = -1
        self.path = path
        self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RealFile({str(self.path)!r}, descriptor={self._descriptor})"

    def fileno(self) -> int:
        return self._descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def modified_ms(self) -> int:
        return os.fstat(self._descriptor).st_mtime_ns // 1_000_000

    def pread(self, size: int, position: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        while 0 < len(data) < size:
            more = os.pread(self._descriptor, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def pread_now(self, size: int, position: int) -> bytes | None:
        if _NOWAIT is None:
            return self.pread(size, position)
        buffer = bytearray(size)
        filled = 0
        with memoryview(buffer) as view:
            while filled < size:
                try:
                    count = os.preadv(self._descriptor, [view[filled:]], position + filled, _NOWAIT)
                except BlockingIOError:
                    return None
                except OSError as error:
                    if error.errno != errno.EOPNOTSUPP:
                        raise
                    return self.pread(size, position)
                if count == 0:
                    break
                filled += count
        return bytes(buffer) if filled == size else bytes(buffer[:filled])

    def is_warm(self, position: int, size: int) -> bool:
        if _NOWAIT is None or size <= 0:
            return True
        return (
            self.pread_now(1, position) is not None
            and self.pread_now(1, position + size - 1) is not None
        )

    def read_ahead(self, position: int, size: int) -> None:
        end = position + size
        while position < end:
            wanted = min(end - position, _READ_AHEAD_BYTES)
            count = len(os.pread(self._descriptor, wanted, position))
            if count == 0:
                return
            position += count

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        return os.pwrite(self._descriptor, data, position)

    def allocate(self, position: int, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, position, size)
            return
        # Without the call (macOS) zeros are written where the file has nothing else yet.
        written = os.pwrite(self._descriptor, bytes(size), position)
        if written != size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def map(self, size: int) -> RealMapping:
        return RealMapping(self._descriptor, size)

    def sync(self) -> None:
        if _ON_LINUX:
            os.fdatasync(self._descriptor)
        elif hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone stops at the drive's cache
            fcntl.fcntl(self._descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fsync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealFileLock:
    """flock, which also keeps out another broker of this process, and lockf, which Kafka takes."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise FileLockHeld(f"{path} is locked by another process") from None

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealFiles:
    """The machine's disk."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> RealFile:
        flags = os.O_RDWR if writable else os.O_RDONLY
        return RealFile(path, flags | (os.O_CREAT if create else 0))

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_dir(self, path: Path) -> bool:
        return path.is_dir()

    def list_dir(self, path: Path) -> list[str]:
        return sorted(entry.name for entry in path.iterdir())

    def make_dirs(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def read_bytes(self, path: Path) -> bytes:
        return path.read_bytes()

    def write_atomically(self, path: Path, data: bytes) -> None:
        write_atomically(self, path, data)

    def sync_dir(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> RealFileLock:
        return RealFileLock(path)
