"""Files as a parameter: all of the broker's disk access goes through here.

`RealFiles` is the machine's disk. Tests put in its place one that forgets what was not synced,
tears writes, fails the n-th fsync or blocks on cold pages (tests/support/memory_files.py).

What is durable, as POSIX has it: a file's bytes after `File.sync`; a name (created, renamed,
removed) after `Files.sync_dir` of its directory. Nothing else is.
"""

import errno
import fcntl
import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

from klog_broker.runtime.disk.open_files import Descriptor, OpenFiles, RealFile
from pyspark_klog.errors import KlogError


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
    """A file that can be used until :meth:`close`, or until the last reference to it goes.

    Its descriptor may be given back in between and is taken again, by the path, when it is needed:
    each method but size, modified_ms and close can then raise OSError EMFILE, without any effect.
    A file that was removed can be read as long as it has its descriptor.
    """

    path: Path
    """To be set by whoever gives it another name."""

    def rest(self) -> None:
        """It will not be used for a while: give its descriptor back."""

    def held(self) -> AbstractContextManager[None]:
        """Within it the descriptor stays, and no method wants for one. OSError at its begin."""

    def send_to(self, socket_descriptor: int, position: int, size: int) -> int:
        """sendfile: returns how many bytes the socket took. Where the system has it."""

    def size(self) -> int: ...

    def modified_ms(self) -> int:
        """When it was last written to, by the wall's clock."""

    def set_modified_ms(self, time_ms: int) -> None:
        """As if it had been written to at that time last."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the file's end. May block on a cold page."""

    def pread_into(self, room: memoryview, position: int) -> int:
        """As :meth:`pread`, into writable memory of the caller's; returns how many bytes came."""

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
        can succeed without having written them: never retry, unless it wanted for a descriptor.
        A file that is gone needs no sync.
        """

    def close(self) -> None: ...


class ClosedFile:
    """Stands where an owner had a file until the owner closed it. Every use raises OSError (EBADF).

    The owner replaces its reference and does not close the file itself, because a reader or a
    helper thread may be in the middle of a call: the file closes with its last reference.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise OSError(errno.EBADF, "the file was closed", str(self.path))

    held = send_to = size = modified_ms = set_modified_ms = _refuse
    pread = pread_into = pread_now = is_warm = read_ahead = _refuse
    pwrite = allocate = truncate = map = sync = _refuse

    def rest(self) -> None:
        """Do nothing: a closed file has no descriptor."""

    def close(self) -> None:
        """Do nothing: the file is closed."""


class ReadRegion(NamedTuple):
    """``size`` bytes at ``position``, for a reader."""

    file: File
    position: int
    size: int


class ProbedRegion(ReadRegion):
    """A region both ends of which were in the page cache just before it was made."""

    __slots__ = ()


class DiskUsage(NamedTuple):
    """The size of the volume that a path lies on, and what of it this user may still write."""

    total_bytes: int
    usable_bytes: int


class FileLock(Protocol):
    """A lock that is held until it is released or the process ends."""

    def release(self) -> None: ...


class OpenDirectory(Protocol):
    """A directory whose names can be made durable without a descriptor having to be found."""

    def sync(self) -> None:
        """Make the names in it durable. Blocks."""

    def close(self) -> None: ...


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

        Temporary file, fsync, rename, fsync of the directory. Blocks. Without a descriptor nothing
        of that is done.
        """

    def open_dir(self, path: Path) -> OpenDirectory: ...

    def sync_dir(self, path: Path) -> None:
        """Make the names in a directory durable. Blocks."""

    def lock(self, path: Path) -> FileLock:
        """Take the lock of this file, making it if need be; FileLockHeld if another has it."""

    def disk_usage(self, path: Path) -> DiskUsage:
        """How large and how full the volume of this path is. Blocks where the disk does not
        answer; for helper threads."""

    def give_back_unused(self) -> None:
        """Let those files rest that were not used since the last call."""


def write_atomically(files: Files, path: Path, data: bytes) -> None:
    """`Files.write_atomically` out of the other methods."""
    temporary = path.with_name(path.name + ".tmp")
    directory = files.open_dir(path.parent)
    try:
        file = files.open(temporary, create=True)
        try:
            with file.held():
                file.truncate(0)
                written = file.pwrite(data, 0)
                if written != len(data):
                    text = f"only {written} of {len(data)} bytes written"
                    raise OSError(errno.ENOSPC, text, str(path))
                file.sync()
        finally:
            file.close()
        files.rename(temporary, path)
        directory.sync()
    finally:
        directory.close()


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


class RealDirectory:
    """A directory's descriptor. A sync that is under way keeps the descriptor open past close()."""

    def __init__(self, path: Path) -> None:
        self._path = path
        number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._descriptor: Descriptor | None = Descriptor(number)

    def sync(self) -> None:
        descriptor = self._descriptor
        if descriptor is None:
            raise OSError(errno.EBADF, "the directory was closed", str(self._path))
        os.fsync(descriptor.number)

    def close(self) -> None:
        self._descriptor = None


class RealFiles:
    """The machine's disk."""

    # Of the process, as the limit is.
    open_files = OpenFiles()

    def __init__(self, open_files: OpenFiles | None = None) -> None:
        if open_files is not None:
            self.open_files = open_files

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> RealFile:
        flags = os.O_RDWR if writable else os.O_RDONLY
        return RealFile(path, flags | (os.O_CREAT if create else 0), self.open_files)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_dir(self, path: Path) -> bool:
        return path.is_dir()

    def list_dir(self, path: Path) -> list[str]:
        return sorted(self.open_files.call(lambda: os.listdir(path)))  # noqa: PTH208 - a third of its time

    def make_dirs(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        try:
            self.open_files.call(lambda: shutil.rmtree(path))
        except FileNotFoundError:
            return

    def read_bytes(self, path: Path) -> bytes:
        return self.open_files.call(path.read_bytes)

    def write_atomically(self, path: Path, data: bytes) -> None:
        write_atomically(self, path, data)

    def open_dir(self, path: Path) -> RealDirectory:
        return self.open_files.call(lambda: RealDirectory(path))

    def sync_dir(self, path: Path) -> None:
        directory = self.open_dir(path)
        try:
            directory.sync()
        finally:
            directory.close()

    def lock(self, path: Path) -> RealFileLock:
        return self.open_files.call(lambda: RealFileLock(path))

    def disk_usage(self, path: Path) -> DiskUsage:
        found = os.statvfs(path)
        return DiskUsage(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def give_back_unused(self) -> None:
        self.open_files.give_back_unused()
