"""A disk in memory that forgets unsynced data, tears writes, fails and blocks on demand.

Durable is what POSIX promises: a file's bytes after the file's sync, a name after the sync of its
directory. A crash keeps these; random choices decide about the rest: sectors of 512 bytes may be
old or new, zeroed or garbage, and a directory has its changes up to some point.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from weakref import WeakSet

from klog_broker.runtime.disk.files import DiskUsage, FileLockHeld, write_atomically

SECTOR_BYTES = 512
PAGE_BYTES = 4096
DISK_BYTES = 1 << 40


class Crashed(BaseException):
    """The power failed at the chosen operation. No `except Exception` catches this."""


class _Inode:
    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""
        # Sectors that a failed sync has dropped: marked clean, never written.
        self.lost: set[int] = set()
        self.modified_ms = 0
        self.warm_pages: set[int] = set()
        self.is_removed = False

    def grow(self, size: int) -> None:
        """Append zeros up to ``size`` bytes."""
        if self.content:
            self.content += bytes(size - len(self.content))
        else:  # The system makes the zeros when a page is read: an index file has 10 MB of them.
            self.content = bytearray(size)

    def sync(self) -> None:
        if not self.lost:
            self.durable = bytes(self.content)
            return
        synced = bytearray(self.content)
        for sector in self.lost:
            at = slice(sector * SECTOR_BYTES, min((sector + 1) * SECTOR_BYTES, len(synced)))
            old = self.durable[at]
            synced[at] = old + bytes(len(synced[at]) - len(old))
        self.durable = bytes(synced)

    def fail_sync(self) -> None:
        self.lost |= {sector for sector, old, new in self._sectors() if old != new}

    def _sectors(self) -> list[tuple[int, bytes, bytes]]:
        longest = max(len(self.content), len(self.durable))
        return [
            (
                at // SECTOR_BYTES,
                self.durable[at : at + SECTOR_BYTES],
                bytes(self.content[at : at + SECTOR_BYTES]),
            )
            for at in range(0, longest, SECTOR_BYTES)
        ]

    def after_kill(self) -> "_Inode":
        twin = _Inode()
        twin.content, twin.durable = bytearray(self.content), self.durable
        twin.lost, twin.modified_ms = set(self.lost), self.modified_ms
        return twin

    def all_content(self) -> tuple[object, ...]:
        return (bytes(self.content), self.modified_ms)

    def after_crash(self, random: Random) -> "_Inode":
        survivor = _Inode()
        survivor.modified_ms = self.modified_ms
        fate = random.random()
        if fate < 0.25 or self.content == self.durable:
            content = bytearray(self.durable)
        elif fate < 0.4 and not self.lost:
            content = bytearray(self.content)
        else:
            content = bytearray()
            for sector, old, new in self._sectors():
                kept = new if random.random() < 0.6 and sector not in self.lost else old
                if len(kept) < SECTOR_BYTES:
                    kept = kept + bytes(max(len(old), len(new)) - len(kept))
                if kept != old and random.random() < 0.15:
                    # New blocks that were never written: whatever lay there before.
                    start = len(old)
                    kept = kept[:start] + random.randbytes(len(kept) - start)
                content += kept
            size = random.choice(
                (len(self.durable), len(self.content), random.randint(0, len(content)))
            )
            del content[max(size, min(len(self.durable), len(self.content))) :]
        survivor.content = content
        survivor.durable = bytes(content)
        return survivor


class _Directory:
    def __init__(self) -> None:
        self.entries: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}
        # Changes since the last sync, each one all or nothing: names to nodes, None is removed.
        self.changes: list[dict[str, _Inode | _Directory | None]] = []

    def change(self, names: dict[str, "_Inode | _Directory | None"]) -> None:
        self.changes.append(names)
        _apply(self.entries, names)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.changes.clear()

    def after_crash(
        self, random: Random, done: dict[int, "_Inode | _Directory"], keeps_order: bool
    ) -> "_Directory":
        names = dict(self.durable)
        if keeps_order:
            kept = self.changes[: random.randint(0, len(self.changes))]
        else:
            kept = [change for change in self.changes if random.random() < 0.5]
        for change in kept:
            _apply(names, change)
        survivor = _Directory()
        for name, node in sorted(names.items()):
            if id(node) not in done:
                if isinstance(node, _Directory):
                    done[id(node)] = node.after_crash(random, done, keeps_order)
                else:
                    done[id(node)] = node.after_crash(random)
            survivor.entries[name] = done[id(node)]
        survivor.durable = dict(survivor.entries)
        return survivor

    def after_kill(self, done: dict[int, "_Inode | _Directory"]) -> "_Directory":
        """Return the disk for the next process if only the old one died: no data are lost yet."""

        def twin_of(node: "_Inode | _Directory") -> "_Inode | _Directory":
            if id(node) not in done:
                done[id(node)] = (
                    node.after_kill(done) if isinstance(node, _Directory) else node.after_kill()
                )
            return done[id(node)]

        twin = _Directory()
        twin.entries = {name: twin_of(node) for name, node in self.entries.items()}
        twin.durable = {name: twin_of(node) for name, node in self.durable.items()}
        twin.changes = [
            {name: None if node is None else twin_of(node) for name, node in change.items()}
            for change in self.changes
        ]
        return twin

    def all_content(self) -> tuple[object, ...]:
        return tuple((name, node.all_content()) for name, node in sorted(self.entries.items()))


def _apply(
    entries: dict[str, "_Inode | _Directory"],
    names: dict[str, "_Inode | _Directory | None"],
) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _mark_removed(node: "_Inode | _Directory") -> None:
    if isinstance(node, _Inode):
        node.is_removed = True
        return
    for child in node.entries.values():
        _mark_removed(child)


class MemoryMapping:
    """A window on an inode's bytes."""

    def __init__(self, files: "MemoryFiles", inode: _Inode, size: int) -> None:
        self._inode = inode
        self._files = files
        self.view = memoryview(inode.content)[:size]
        self._is_open = True
        files.open_mappings += 1

    def sync(self) -> None:
        self._files.sync_inode(self._inode)

    def close(self) -> None:
        self.view.release()
        self._gone()

    def _gone(self) -> None:
        if self._is_open:
            self._is_open = False
            self._files.open_mappings -= 1

    def __del__(self) -> None:
        self._gone()


class MemoryFile:
    """An open file of a MemoryFiles."""

    def __init__(self, files: "MemoryFiles", path: Path, inode: _Inode) -> None:
        self.path = path
        self._files = files
        self._inode = inode
        self._holders = 0
        files.opened.add(self)

    def _use(self) -> None:
        """Open a descriptor, as if the file had just given its own back."""
        if not self._holders:
            self._files.open_descriptor()

    def release_descriptor(self) -> None:
        """Do nothing: a MemoryFile is always at rest."""

    @contextmanager
    def held(self) -> Iterator[None]:
        self._use()
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1

    def send_to(self, socket_descriptor: int, position: int, size: int) -> int:
        return os.write(socket_descriptor, self.pread(size, position))

    def size(self) -> int:
        return len(self._inode.content)

    def modified_ms(self) -> int:
        return self._inode.modified_ms

    def set_modified_ms(self, time_ms: int) -> None:
        self._use()
        self._inode.modified_ms = time_ms

    def pread(self, size: int, position: int) -> bytes:
        self._use()
        self._files.wait_if_cold(self, position, size)
        return bytes(self._inode.content[position : position + size])

    def pread_into(self, room: memoryview, position: int) -> int:
        data = self.pread(len(room), position)
        room[: len(data)] = data
        return len(data)

    def pread_now(self, size: int, position: int) -> bytes | None:
        self._use()
        if not self._files.is_warm(self, position, size):
            return None
        self._files.check_readable(self.path)
        return bytes(self._inode.content[position : position + size])

    def is_warm(self, position: int, size: int) -> bool:
        self._use()
        return self._files.is_warm(self, position, size)

    def read_ahead(self, position: int, size: int) -> None:
        self._use()
        self._files.wait_if_cold(self, position, size)

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        self._use()
        return self._files.write_inode(self._inode, bytes(data), position)

    def allocate(self, position: int, size: int) -> None:
        self._use()
        self._files.step()
        if self._files.free_bytes is not None and self._files.free_bytes < size:
            raise OSError(errno.ENOSPC, "no space left on the memory disk")
        self._files.allocate_bytes(size)
        missing = position + size - len(self._inode.content)
        if missing > 0:
            self._inode.grow(position + size)

    def truncate(self, size: int) -> None:
        self._use()
        self._files.step()
        if self._files.fail_truncates:
            raise OSError(errno.EIO, "truncate fails on the memory disk")
        content = self._inode.content
        if size < len(content):
            self._files.allocate_bytes(size - len(content))
            del content[size:]
            # Sectors behind the new end are gone, and the cut sector is written again.
            self._inode.lost -= {at for at in self._inode.lost if at >= size // SECTOR_BYTES}
        elif size > len(content):
            self._inode.grow(size)

    def map(self, size: int) -> MemoryMapping:
        self._use()
        if size > len(self._inode.content):
            raise ValueError(f"a mapping of {size} bytes of {len(self._inode.content)}")
        return MemoryMapping(self._files, self._inode, size)

    def sync(self) -> None:
        self._use()
        self._files.sync_inode(self._inode)

    def close(self) -> None:
        """Gives the space of a removed file back, also where somebody still refers to the file."""
        self._files.opened.discard(self)


class MemoryDirectory:
    """A directory that is held open."""

    def __init__(self, files: "MemoryFiles", path: Path) -> None:
        self._files = files
        self._path = path

    def sync(self) -> None:
        with self._files.no_opens():
            self._files.sync_dir(self._path)

    def close(self) -> None:
        """Do nothing: no descriptor is open."""


class MemoryLock:
    def __init__(self, files: "MemoryFiles", path: Path) -> None:
        self._files = files
        self._path = path

    def release(self) -> None:
        self._files.locks.discard(self._path)


class MemoryFiles:
    """A disk (see the module). Faults are attributes that a test may set at any time."""

    def __init__(self, root: _Directory | None = None) -> None:
        self._root = root or _Directory()
        self.locks: set[Path] = set()
        self.syncs = 0  # of files, failed ones too
        self.directory_syncs = 0
        self.steps = 0
        self.crash_at_step: int | None = None
        self.is_crashed = False
        self.before_step: Callable[[], None] = lambda: None
        self.open_mappings = 0
        self.opened: WeakSet[MemoryFile] = WeakSet()  # files that are still referenced
        self.fail_sync_at: int | None = None  # the sync with this number, from 1
        self.has_failed_sync = False
        self.failed_sync_kills = False  # the process dies before it sees the error
        self.free_bytes: int | None = None
        self.short_write_bytes: int | None = None  # the next write stops after this many bytes
        self.fail_truncates = False
        self.bad_files: Callable[[Path], bool] = lambda _: False  # reading them fails with EIO
        self.opens = 0  # number of requests for a descriptor
        self.fail_open_at: int | None = None  # the request with this number fails, from 1
        self.has_descriptors = True  # False: all requests fail
        self.now_ms = 0
        # Cold pages: what is read waits for `thaw`, once `freeze` was called.
        self.is_frozen = False
        self.thaw = threading.Event()
        self.cold_waits: list[str] = []  # names of the threads that waited

    # --- crashes ---------------------------------------------------------------------------------
    def step(self) -> None:
        """Counts an operation that changes the disk; crashes at the one that is to crash."""
        if self.is_crashed:
            raise Crashed
        self.before_step()
        self.steps += 1
        if self.crash_at_step is not None and self.steps >= self.crash_at_step:
            self.is_crashed = True
            raise Crashed

    def crash(self, random: Random, *, keeps_order: bool = True) -> "MemoryFiles":
        """The disk after a power cut: what was synced, and of the rest what the dice say; of names
        the first ones that changed, or without ``keeps_order`` any."""
        self.is_crashed = True
        return MemoryFiles(self._root.after_crash(random, {}, keeps_order))

    def killed(self) -> "MemoryFiles":
        """The disk as the next process finds it when only the process died."""
        self.is_crashed = True
        return self.copy()

    def copy(self) -> "MemoryFiles":
        """Return the disk that a kill at this moment would leave; this one stays in use."""
        return MemoryFiles(self._root.after_kill({}))

    def content(self) -> tuple[object, ...]:
        """Return all that a process can read: names, bytes and times. Disks with equal content
        differ only in what a later power cut may lose."""
        return self._root.all_content()

    # --- cold pages ------------------------------------------------------------------------------
    def freeze(self) -> None:
        """All pages are cold from now on, and reading one waits until ``thaw`` is set."""
        self.is_frozen = True
        self.thaw.clear()

    def is_warm(self, file: MemoryFile, position: int, size: int) -> bool:
        if not self.is_frozen:
            return True
        ends = {position // PAGE_BYTES, max(position, position + size - 1) // PAGE_BYTES}
        return ends <= file._inode.warm_pages

    def check_readable(self, path: Path) -> None:
        """Fails with EIO where that is wanted."""
        if self.bad_files(path):
            raise OSError(errno.EIO, "a bad sector on the memory disk", str(path))

    def wait_if_cold(self, file: MemoryFile, position: int, size: int) -> None:
        self.check_readable(file.path)
        pages = range(position // PAGE_BYTES, (position + max(size, 1) - 1) // PAGE_BYTES + 1)
        if self.is_frozen and not set(pages) <= file._inode.warm_pages:
            self.cold_waits.append(threading.current_thread().name)
            self.thaw.wait()
            file._inode.warm_pages |= set(pages)

    # --- descriptors -----------------------------------------------------------------------------
    def open_descriptor(self) -> None:
        """Counts; fails with EMFILE where that is wanted."""
        self.opens += 1
        if not self.has_descriptors or self.opens == self.fail_open_at:
            raise OSError(errno.EMFILE, "too many open files on the memory disk")

    @contextmanager
    def no_opens(self) -> Iterator[None]:
        """Opens in the with block are not counted, and they never fail."""
        opens, fail_open_at, has = self.opens, self.fail_open_at, self.has_descriptors
        self.fail_open_at, self.has_descriptors = None, True
        try:
            yield
        finally:
            self.opens, self.fail_open_at, self.has_descriptors = opens, fail_open_at, has

    def close_unused(self) -> None:
        """Do nothing: no unused descriptors are cached."""

    # --- bytes -----------------------------------------------------------------------------------
    def allocate_bytes(self, size: int) -> None:
        if self.free_bytes is not None:
            self.free_bytes -= size

    def write_inode(self, inode: _Inode, data: bytes, position: int) -> int:
        self.step()
        growth = max(position + len(data) - len(inode.content), 0)
        if self.short_write_bytes is not None:
            data, self.short_write_bytes = data[: self.short_write_bytes], None
        elif self.free_bytes is not None and growth > self.free_bytes:
            data = data[: max(len(data) - (growth - self.free_bytes), 0)]
            if not data:
                raise OSError(errno.ENOSPC, "no space left on the memory disk")
        end = position + len(data)
        self.allocate_bytes(max(end - len(inode.content), 0))
        if end > len(inode.content):
            inode.content += bytes(end - len(inode.content))
        inode.content[position:end] = data
        inode.modified_ms = self.now_ms
        inode.lost -= set(range(position // SECTOR_BYTES, end // SECTOR_BYTES + 1))
        return len(data)

    def sync_inode(self, inode: _Inode) -> None:
        self.step()
        self.syncs += 1
        if self.syncs == self.fail_sync_at:
            self.has_failed_sync = True
            inode.fail_sync()
            if self.failed_sync_kills:
                self.is_crashed = True
                raise Crashed
            raise OSError(errno.EIO, "the sync fails on the memory disk")
        inode.sync()

    def disk_usage(self, path: Path) -> DiskUsage:
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return DiskUsage(DISK_BYTES, DISK_BYTES if self.free_bytes is None else self.free_bytes)

    def removed_files_held(self) -> list[Path]:
        """The paths of open files without a name: on a real disk they would still take space."""
        return sorted(file.path for file in self.opened if file._inode.is_removed)

    # --- names -----------------------------------------------------------------------------------
    def _find(self, path: Path) -> "_Inode | _Directory | None":
        node: _Inode | _Directory | None = self._root
        for part in path.parts[1:]:
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(part)
        return node

    def _directory(self, path: Path) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
        return node

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> MemoryFile:
        self.open_descriptor()
        node = self._find(path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            parent = self._directory(path.parent)
            self.step()
            node = _Inode()
            node.modified_ms = self.now_ms
            parent.change({path.name: node})
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "a directory", str(path))
        return MemoryFile(self, path, node)

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: Path) -> bool:
        return isinstance(self._find(path), _Directory)

    def list_dir(self, path: Path) -> list[str]:
        self.open_descriptor()
        return sorted(self._directory(path).entries)

    def make_dirs(self, path: Path) -> None:
        node = self._root
        for part in path.parts[1:]:
            child = node.entries.get(part)
            if child is None:
                self.step()
                child = _Directory()
                node.change({part: child})
            if not isinstance(child, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
            node = child

    def rename(self, old: Path, new: Path) -> None:
        self.step()
        node = self._find(old)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(old))
        if old.parent != new.parent:
            raise ValueError("the memory disk renames within one directory only")
        replaced = self._find(new)
        if isinstance(replaced, _Inode) and replaced is not node:
            replaced.is_removed = True
        self._directory(old.parent).change({old.name: None, new.name: node})

    def remove(self, path: Path) -> None:
        self.step()
        node = self._find(path)
        if isinstance(node, _Inode):
            node.is_removed = True
            self.allocate_bytes(-len(node.content))
            self._directory(path.parent).change({path.name: None})

    def remove_tree(self, path: Path) -> None:
        self.open_descriptor()
        self.step()
        node = self._find(path)
        if node is not None:
            _mark_removed(node)
            self._directory(path.parent).change({path.name: None})

    def read_bytes(self, path: Path) -> bytes:
        file = self.open(path)
        return file.pread(file.size(), 0)

    def write_atomically(self, path: Path, data: bytes) -> None:
        write_atomically(self, path, data)

    def open_dir(self, path: Path) -> MemoryDirectory:
        self.open_descriptor()
        return MemoryDirectory(self, path)

    def sync_dir(self, path: Path) -> None:
        self.open_descriptor()
        self.step()
        self.directory_syncs += 1
        self._directory(path).sync()

    def lock(self, path: Path) -> MemoryLock:
        if path in self.locks:
            raise FileLockHeld(f"{path} is locked")
        self.open(path, create=True)
        self.locks.add(path)
        return MemoryLock(self, path)
