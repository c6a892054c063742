"""No acknowledged record is lost after a roll during which files of the new segment, or its
producer snapshot, could be neither completed nor removed."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from klog_broker.log.errors import LogStorageError
from klog_broker.log.partition_log import PartitionLog
from tests.support.log.harness import SMALL, append, batch, open_log, read_all
from tests.support.runtime.memory_files import MemoryFile, MemoryFiles

# Without index entries, a small append still fits into the segment after a large one did not.
UNINDEXED = replace(SMALL, index_interval_bytes=1 << 20)
LARGE = batch(value=b"v" * 6_000)


class FullDisk(MemoryFiles):
    """A disk that can be too full to create files, and to remove files, as copy-on-write file
    systems need space for a removal, too."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses_new = ""  # the suffix of files that cannot be created
        self.refuses_removal = False  # of all files

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> MemoryFile:
        if create and self.refuses_new and path.suffix == self.refuses_new:
            raise OSError(errno.ENOSPC, "no space left", str(path))
        return super().open(path, create=create, writable=writable)

    def remove(self, path: Path) -> None:
        if self.refuses_removal and (self.exists(path) or path.suffix == ".snapshot"):
            raise OSError(errno.ENOSPC, "no space left", str(path))
        super().remove(path)


def append_all(log: PartitionLog, *batches: bytes) -> int:
    """Append the batches, each of one record; return how many the log acknowledged."""
    acknowledged = 0
    for each in batches:
        try:
            append(log, each)
        except LogStorageError:
            continue
        acknowledged += 1
    return acknowledged


def test_a_log_rolls_though_its_snapshot_can_be_neither_written_nor_removed() -> None:
    files = FullDisk()
    log = open_log(files, UNINDEXED)
    append_all(log, LARGE, LARGE)
    files.refuses_new, files.refuses_removal = ".snapshot", True
    assert append_all(log, LARGE, batch()) == 2
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert len(read_all(open_log(files.killed(), UNINDEXED))) == 4


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_no_record_is_lost_though_the_files_of_a_failed_roll_stay(suffix: str) -> None:
    files = FullDisk()
    log = open_log(files, UNINDEXED)
    acknowledged = append_all(log, LARGE, LARGE)
    files.refuses_new, files.refuses_removal = suffix, True
    acknowledged += append_all(log, LARGE, batch())
    files.refuses_new, files.refuses_removal = "", False
    acknowledged += append_all(log, batch(), LARGE)
    assert len(read_all(open_log(files.killed(), UNINDEXED))) == acknowledged
