"""The disk as the log sees it: RealFiles keeps the contract of its interface."""

import errno
import gc
import os
from pathlib import Path

import pytest

from klog_broker.runtime.disk.files import FileLockHeld, RealFiles

FILES = RealFiles()


def test_reading_and_writing_at_positions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(FileNotFoundError):
        FILES.open(path)
    file = FILES.open(path, create=True)
    assert file.pwrite(b"hello", 3) == 5
    assert file.size() == 8
    assert file.pread(100, 0) == file.pread_now(100, 0) == b"\x00\x00\x00hello"
    assert file.pread(2, 4) == file.pread_now(2, 4) == b"el"
    assert file.pread(5, 8) == file.pread_now(5, 8) == b""
    file.truncate(4)
    assert FILES.open(path, writable=False).pread(9, 0) == b"\x00\x00\x00h"
    file.sync()
    assert file.is_warm(0, 4)
    assert file.is_warm(0, 0)
    file.read_ahead(0, 10**7)
    assert abs(file.modified_ms() - path.stat().st_mtime_ns // 1_000_000) <= 1


def test_a_read_only_file_cannot_be_written(tmp_path: Path) -> None:
    FILES.open(tmp_path / "file", create=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        FILES.open(tmp_path / "file", writable=False).pwrite(b"x", 0)


def test_a_file_stays_open_as_long_as_somebody_holds_it(tmp_path: Path) -> None:
    file = FILES.open(tmp_path / "file", create=True)
    file.pwrite(b"abc", 0)
    descriptor = file.get().number
    FILES.remove(tmp_path / "file")
    assert file.pread(3, 0) == b"abc"
    del file
    gc.collect()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(descriptor)


def test_mappings_and_files_are_one(tmp_path: Path) -> None:
    file = FILES.open(tmp_path / "file", create=True)
    file.truncate(10_000)
    mapping = file.map(10_000)
    mapping.view[5_000:5_003] = b"xyz"
    assert file.pread(5, 4_999) == b"\x00xyz\x00"
    file.pwrite(b"A", 0)
    assert mapping.view[0] == ord("A")
    mapping.sync()
    mapping.close()
    with pytest.raises(ValueError, match="released"):
        mapping.view[0] = 1


def test_allocated_space_is_on_the_disk(tmp_path: Path) -> None:
    file = FILES.open(tmp_path / "file", create=True)
    file.truncate(1 << 20)
    sparse = (tmp_path / "file").stat().st_blocks
    file.allocate(0, 1 << 16)
    assert (tmp_path / "file").stat().st_blocks >= sparse + (1 << 16) // 512
    assert file.size() == 1 << 20
    assert file.pread(10, 0) == bytes(10)
    file.allocate(1 << 20, 100)
    assert file.size() == (1 << 20) + 100


def test_names(tmp_path: Path) -> None:
    FILES.make_dirs(tmp_path / "a" / "b")
    FILES.make_dirs(tmp_path / "a" / "b")
    FILES.open(tmp_path / "a" / "z", create=True)
    assert FILES.list_dir(tmp_path / "a") == ["b", "z"]
    assert FILES.is_dir(tmp_path / "a" / "b")
    assert not FILES.is_dir(tmp_path / "a" / "z")
    FILES.open(tmp_path / "a" / "y", create=True).pwrite(b"y", 0)
    FILES.rename(tmp_path / "a" / "y", tmp_path / "a" / "z")
    assert FILES.read_bytes(tmp_path / "a" / "z") == b"y"
    FILES.sync_dir(tmp_path / "a")
    FILES.remove(tmp_path / "a" / "z")
    FILES.remove(tmp_path / "a" / "z")
    FILES.remove_tree(tmp_path / "a")
    FILES.remove_tree(tmp_path / "a")
    assert not FILES.exists(tmp_path / "a")


def test_files_are_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    FILES.write_atomically(path, b"a long first text")
    FILES.write_atomically(path, b"short")
    assert path.read_bytes() == b"short"
    assert FILES.list_dir(tmp_path) == ["checkpoint"]
    # A temporary file that a crash has left does no harm.
    (tmp_path / "checkpoint.tmp").write_bytes(b"a long rest of an earlier try")
    FILES.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_lock_has_one_holder_until_it_is_released(tmp_path: Path) -> None:
    lock = FILES.lock(tmp_path / ".lock")
    with pytest.raises(FileLockHeld, match="is locked by another process"):
        FILES.lock(tmp_path / ".lock")
    lock.release()
    lock.release()
    FILES.lock(tmp_path / ".lock").release()
