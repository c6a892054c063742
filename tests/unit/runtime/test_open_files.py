"""Files of which only some have a descriptor, and descriptors that are all taken."""

import ctypes
import errno
import mmap
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from klog_broker.runtime.disk.files import RealFiles
from klog_broker.runtime.disk.open_files import OpenFiles
from klog_broker.runtime.system import descriptors


def files_of(most: int) -> RealFiles:
    return RealFiles(OpenFiles(lambda: most))


def open_descriptors(folder: Path) -> int:
    """Return the number of this process's descriptors for files in the folder."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            found += folder in descriptor.readlink().parents
    return found


@contextmanager
def soft_limit(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The next open of this process fails."""
    taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]
    try:
        with soft_limit(max(taken) + 1):
            yield
    finally:
        for number in taken:
            os.close(number)


def test_more_files_than_descriptors_are_written_synced_and_read(tmp_path: Path) -> None:
    files = files_of(3)
    opened = [files.open(tmp_path / f"{number}", create=True) for number in range(20)]
    for turn in range(3):
        for number, file in enumerate(opened):
            assert file.pwrite(b"%4d" % number, 4 * turn) == 4
    assert open_descriptors(tmp_path) == 3
    for file in opened:
        file.sync()
    assert open_descriptors(tmp_path) == 3
    for number, file in enumerate(opened):
        assert file.pread(100, 0) == file.pread_now(100, 0) == 3 * (b"%4d" % number)
        assert file.size() == 12
    del file
    opened.clear()
    assert open_descriptors(tmp_path) == 0


def test_a_mapping_and_a_resting_file_hold_no_descriptor(tmp_path: Path) -> None:
    file = RealFiles().open(tmp_path / "file", create=True)
    file.truncate(10_000)
    mapping = file.map(10_000)
    file.release_descriptor()
    assert open_descriptors(tmp_path) == 0
    mapping.view[9_000:9_003] = b"abc"
    file.sync()
    assert open_descriptors(tmp_path) == 0
    assert (tmp_path / "file").read_bytes()[9_000:9_003] == b"abc"
    mapping.close()
    with pytest.raises(ValueError, match="has fewer than 10001 bytes"):
        file.map(10_001)


def test_a_mapped_file_is_in_memory_only_where_it_was_touched(tmp_path: Path) -> None:
    """A new index is 10 MB of which a few rows are written; disks may read ahead as much."""
    size = 10 << 20
    file = files_of(3).open(tmp_path / "index", create=True)
    file.truncate(size)
    mapping = file.map(size)
    mapping.view[:8] = b"a row..."
    mapping.view[size // 2] = 1
    pages = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
    begin = ctypes.addressof(ctypes.c_char.from_buffer(mapping.view))
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(begin), ctypes.c_size_t(size), pages) == 0
    assert sum(page & 1 for page in pages) == 2


def test_without_a_descriptor_others_are_given_back_first(tmp_path: Path) -> None:
    files = files_of(100)
    resting = [files.open(tmp_path / f"{number}", create=True) for number in range(4)]
    with no_descriptor_left():
        # The directory and the temporary file: two of the four are given back.
        files.write_atomically(tmp_path / "checkpoint", b"text")
        assert files.list_dir(tmp_path) == ["0", "1", "2", "3", "checkpoint"]
        for file in resting:
            file.pwrite(b"x", 0)
    assert (tmp_path / "checkpoint").read_bytes() == b"text"


def test_when_all_are_taken_nothing_has_happened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = files_of(100)
    written = files.open(tmp_path / "written", create=True)
    written.pwrite(b"before", 0)
    written.release_descriptor()
    files.write_atomically(tmp_path / "checkpoint", b"old")
    with no_descriptor_left():
        for _ in range(3):
            with pytest.raises(OSError, match=os.strerror(errno.EMFILE)) as caught:
                written.pwrite(b"after!", 0)
            assert descriptors.is_exhausted(caught.value)
            assert "`ulimit -n`" in descriptors.describe_exhaustion(caught.value)
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            files.write_atomically(tmp_path / "checkpoint", b"new")
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            files.open(tmp_path / "new", create=True)
        # Data written before can still be made durable.
        written.sync()
        assert (written.size(), files.exists(tmp_path / "new")) == (6, False)
    assert files.list_dir(tmp_path) == ["checkpoint", "written"]
    assert files.read_bytes(tmp_path / "checkpoint") == b"old"
    assert written.pread(10, 0) == b"before"
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "`ulimit -n`" in lines[0]


def test_what_is_held_stays_open(tmp_path: Path) -> None:
    files = files_of(2)
    held = files.open(tmp_path / "held", create=True)
    with held.held():
        others = [files.open(tmp_path / f"{number}", create=True) for number in range(5)]
        held.release_descriptor()
        with no_descriptor_left():
            held.truncate(5)
            held.map(5).close()
    assert [file.size() for file in (held, *others)] == [5, 0, 0, 0, 0, 0]


def test_another_file_in_its_place_is_not_taken_for_it(tmp_path: Path) -> None:
    file = RealFiles().open(tmp_path / "file", create=True)
    file.release_descriptor()
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "other").replace(tmp_path / "file")
    with pytest.raises(OSError, match="another file now has this file's path"):
        file.pwrite(b"x", 0)
    assert (tmp_path / "file").read_bytes() == b"other"


def test_a_file_is_found_under_its_new_name_and_one_that_is_gone_needs_no_sync(
    tmp_path: Path,
) -> None:
    file = RealFiles().open(tmp_path / "file", create=True)
    file.release_descriptor()
    file.path = tmp_path / "renamed"
    (tmp_path / "file").rename(file.path)
    assert file.pwrite(b"x", 0) == 1
    file.sync()
    file.release_descriptor()
    file.path.unlink()
    file.sync()
    with pytest.raises(FileNotFoundError):
        file.pread(1, 0)


def test_descriptors_without_use_since_the_last_call_are_closed(tmp_path: Path) -> None:
    files = files_of(100)
    idle, used = (files.open(tmp_path / name, create=True) for name in ("idle", "used"))
    files.close_unused()
    assert open_descriptors(tmp_path) == 2
    used.pwrite(b"x", 0)
    files.close_unused()
    assert open_descriptors(tmp_path) == 1
    assert idle.pread(1, 0) == b""
    assert used.pread(1, 0) == b"x"


def test_threads_share_files_that_are_given_back_all_the_time(tmp_path: Path) -> None:
    files = files_of(1)
    opened = [files.open(tmp_path / f"{number}", create=True) for number in range(4)]
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for turn in range(500):
                for number in (first, first + 1):
                    opened[number].pwrite(b"%d:%4d" % (number, turn), 0)
                    opened[number - first].sync()
                    assert opened[number].pread(6, 0) == b"%d:%4d" % (number, turn)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with soft_limit(1024):
        assert descriptors.limit() == 1024
        assert descriptors.file_limit() + descriptors.connection_limit() + 64 == 1024
        raised = descriptors.raise_limit()
        assert raised == descriptors.limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert raised == hard or hard == resource.RLIM_INFINITY
        assert descriptors.raise_limit() == raised
