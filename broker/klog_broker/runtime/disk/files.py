"""The interface for all disk access of the broker. Code that uses files gets an implementation as a
parameter.

`RealFiles` is the machine's disk. Tests replace it by a disk in memory that loses unsynced bytes,
tears writes, fails the n-th fsync or blocks on reads of pages that are not in the page cache
(tests/support/runtime/memory_files.py).

POSIX makes two things durable: the bytes of a file by `File.sync`, and a changed name (created,
renamed, removed) by `Files.sync_dir` of its directory. A crash can lose everything else.
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
    """Another process, or another broker in this process, holds the lock of a file."""


class Mapping(Protocol):
    """A writable memory mapping of the first bytes of a file.

    Bytes that are stored into the mapping are in the file at once. :meth:`File.sync` and
    :meth:`sync` make them durable.
    """

    @property
    def view(self) -> memoryview:
        """The mapped bytes. Do not use the view after :meth:`close`."""

    def sync(self) -> None:
        """Make bytes that were written through the mapping durable. Blocks; for helper threads."""

    def close(self) -> None:
        """Release the view of the mapped bytes. The file keeps the bytes."""


class File(Protocol):
    """A file for use until :meth:`close`, or until the last reference to it is dropped.

    An unused file may lose its descriptor: the next use opens the path again. So each method except
    release_descriptor, size, modified_ms and close can raise OSError EMFILE, and has changed
    nothing then. A removed file can be read only while it keeps its descriptor.
    """

    path: Path
    """The path of the file. Code that renames the file must set the new path."""

    def release_descriptor(self) -> None:
        """Close the file's descriptor until the next use, because the file will be unused for a
        while. A file that is :meth:`held` keeps its descriptor."""

    def held(self) -> AbstractContextManager[None]:
        """Return a context in which the file keeps its descriptor and no method raises EMFILE.

        Entering the context raises OSError if the file cannot be opened.
        """

    def send_to(self, socket_descriptor: int, position: int, size: int) -> int:
        """Send ``size`` bytes of the file, from ``position`` on, to a socket by sendfile; return
        how many bytes the socket accepted.

        Call only on systems that have sendfile.
        """

    def size(self) -> int: ...

    def modified_ms(self) -> int:
        """Return the wall-clock time of the last write to the file."""

    def set_modified_ms(self, time_ms: int) -> None:
        """Set the wall-clock time of the last write (mtime)."""

    def pread(self, size: int, position: int) -> bytes:
        """Read ``size`` bytes; fewer only at the end of the file. May block if a page is not in the
        page cache."""

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Fill ``buffer`` like :meth:`pread`; return how many bytes were read."""

    def pread_now(self, size: int, position: int) -> bytes | None:
        """Read from the page cache like :meth:`pread`; None if any part of the read would wait
        for the disk.

        Blocks on systems that cannot read without waiting.
        """

    def is_warm(self, position: int, size: int) -> bool:
        """Return whether the first and the last byte of the region (``size`` bytes from
        ``position`` on) are in the page cache.

        Never blocks. Returns True on systems that cannot check the page cache.
        """

    def read_ahead(self, position: int, size: int) -> None:
        """Read the region (``size`` bytes from ``position`` on) into the page cache. Blocks; for
        helper threads."""

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        """Write ``data`` and return how many bytes were written: fewer if the disk is full."""

    def allocate(self, position: int, size: int) -> None:
        """Reserve disk space for the region (``size`` bytes from ``position`` on), and grow the
        file to the region's end if necessary.

        Raises OSError (ENOSPC) if the disk is full. Reserve space before mapping: storing into a
        mapping of a sparse file on a full disk kills the process.
        """

    def truncate(self, size: int) -> None:
        """Set the file's size. Added bytes are zeros that take no disk space yet."""

    def map(self, size: int) -> Mapping:
        """Map the first ``size`` (> 0) bytes. Raises ValueError if the file is shorter."""

    def sync(self) -> None:
        """Make the bytes and the size durable. Blocks; for helper threads.

        After an error the bytes since the last successful sync may be lost. A second call can
        succeed without having written these bytes, so never call again after an error other than
        EMFILE or ENFILE. The call succeeds without effect for a file that was removed and has
        neither a descriptor nor a mapping.
        """

    def close(self) -> None: ...


class ClosedFile:
    """Stands for a File after its owner has stopped using it. Every method except
    `release_descriptor` and `close` raises OSError (EBADF).

    The owner replaces its reference to the file by a ClosedFile, and does not call ``File.close``,
    because a reader or a helper thread may be in the middle of a call. The file closes when its
    last reference is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise OSError(errno.EBADF, "the file was closed", str(self.path))

    held = send_to = size = modified_ms = set_modified_ms = _refuse
    pread = pread_into = pread_now = is_warm = read_ahead = _refuse
    pwrite = allocate = truncate = map = sync = _refuse

    def release_descriptor(self) -> None:
        """Do nothing: a closed file has no descriptor."""

    def close(self) -> None:
        """Do nothing: the file is closed."""


class ReadRegion(NamedTuple):
    """A region of a file to be read: ``size`` bytes at ``position``."""

    file: File
    position: int
    size: int


class ProbedRegion(ReadRegion):
    """A region of a file whose first and last byte were found in the page cache just now."""

    __slots__ = ()


class DiskUsage(NamedTuple):
    """The size of a path's volume, and its free disk space that the broker's user may fill."""

    total_bytes: int
    usable_bytes: int


class FileLock(Protocol):
    """A lock that is held until it is released or the process ends."""

    def release(self) -> None: ...


class OpenDirectory(Protocol):
    """A directory that is kept open, so that `sync` needs no further file descriptor."""

    def sync(self) -> None:
        """Make changes of the names in the directory (created, renamed, removed) durable.
        Blocks."""

    def close(self) -> None: ...


class Files(Protocol):
    """The operations on the files and directories of a disk. Methods raise the system's OSError."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        """Open a file. A missing file is created if ``create``, or raises FileNotFoundError."""

    def exists(self, path: Path) -> bool: ...

    def is_dir(self, path: Path) -> bool: ...

    def list_dir(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""

    def make_dirs(self, path: Path) -> None:
        """Make the directory and its missing parents; do nothing if the directory exists."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file or directory atomically. A file named ``new`` is replaced."""

    def remove(self, path: Path) -> None:
        """Remove the file; do nothing if the file is missing."""

    def remove_tree(self, path: Path) -> None:
        """Remove the directory with its contents; do nothing if the directory is missing."""

    def read_bytes(self, path: Path) -> bytes: ...

    def write_atomically(self, path: Path, data: bytes) -> None:
        """Replace the file's bytes by ``data``, durably: a crash leaves the old or the new bytes.

        Writes and syncs a temporary file, renames the file, and syncs the directory. Blocks. If no
        descriptor is left, raises OSError and leaves the old file unchanged.
        """

    def open_dir(self, path: Path) -> OpenDirectory: ...

    def sync_dir(self, path: Path) -> None:
        """Make changes of the names in the directory ``path`` (created, renamed, removed) durable.
        Blocks."""

    def lock(self, path: Path) -> FileLock:
        """Lock the file ``path``, creating it if missing; FileLockHeld if it is already locked."""

    def disk_usage(self, path: Path) -> DiskUsage:
        """Return the size and the free space of the path's volume.

        Blocks if the disk does not respond; for helper threads.
        """

    def close_unused(self) -> None:
        """Close the descriptors of files that were not used since the last call. The next use of
        such a file opens it again."""


def write_atomically(files: Files, path: Path, data: bytes) -> None:
    """Implement `Files.write_atomically` with the other methods of ``files``."""
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
    """Holds two locks of a file: flock and lockf.

    flock also excludes another broker of this process. Kafka's brokers take the lockf lock.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise FileLockHeld(
                f"{path} is locked by another process, or by another broker of this process"
            ) from None

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealDirectory:
    """A directory's descriptor. A running sync keeps the descriptor open, even after close()."""

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
    """Implements Files on the machine's disk."""

    # All brokers of the process share the list of open files, because the limit of descriptors is
    # per process.
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

    def close_unused(self) -> None:
        self.open_files.close_unused()
