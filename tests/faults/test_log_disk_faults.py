"""A full disk, short writes, failed writes and failed truncations: what is refused, what works."""

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from klog_broker.log.errors import LogStorageError
from klog_broker.log.partition_log import PartitionLog
from pyspark_klog.ids import LeaderEpoch
from tests.support.log.harness import (
    DATA,
    PARTITION,
    SMALL,
    TOPIC_ID,
    append,
    batch,
    open_log,
    open_manager,
    read_all,
)
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

BYTES = len(batch())
SMALLEST = batch(value=b"", key=None, timestamp_ms=-1)
CONFIG = replace(SMALL, retention_ms=-1, index_interval_bytes=0, segment_bytes=20 * BYTES)


def world() -> tuple[MemoryFiles, PartitionLog, list[str]]:
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    offline: list[str] = []
    manager.on_directory_offline = lambda path, _: offline.append(str(path))
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    for number in range(3):
        append(log, batch(producer_id=1, base_sequence=number))
    return files, log, offline


def check_log_works(files: MemoryFiles, log: PartitionLog, next_sequence: int) -> None:
    """Check that state, file and indexes have nothing of the refused append."""
    end_offset = log.log_end_offset
    segment = log.segments[-1]
    assert segment.log_file.size() == segment.size_bytes
    info = append(log, batch(producer_id=1, base_sequence=next_sequence))
    assert (info.first_offset, info.is_duplicate) == (end_offset, False)
    assert [record.offset for record in read_all(log)] == list(range(end_offset + 1))
    reopened = open_log(files.killed(), CONFIG)
    assert [record.offset for record in read_all(reopened)] == list(range(end_offset + 1))


@pytest.mark.parametrize("free_bytes", [0, 1, 60, BYTES - 1])
def test_a_full_disk_refuses_the_append_and_the_log_goes_on(free_bytes: int) -> None:
    files, log, offline = world()
    files.free_bytes = free_bytes
    for _ in range(2):
        with pytest.raises(LogStorageError, match="make room on the disk"):
            append(log, batch(producer_id=1, base_sequence=3))
        assert (log.log_end_offset, log.high_watermark) == (3, 3)
    files.free_bytes = None
    check_log_works(files, log, 3)
    assert offline == []


def test_a_full_disk_is_said_once_in_a_while_with_the_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files, clock = MemoryFiles(), ManualClock()
    manager = open_manager(files, config=CONFIG, clock=clock)
    logs = [manager.create(PARTITION._replace(partition=n), TOPIC_ID, CONFIG) for n in range(2)]
    files.free_bytes = 0

    def refused(times: int) -> list[str]:
        caplog.clear()
        for number in range(times):
            with pytest.raises(LogStorageError, match=r"no space left .*/data for topic-[01]: "):
                append(logs[number % 2])
        return caplog.messages

    line = (
        "log_dir=/data no space left to write partition or file topic-0: "
        "[Errno 28] no space left on the memory disk"
    )
    assert refused(617) == [line]
    clock.advance(9_999)
    assert refused(3) == []
    clock.advance(1)
    assert refused(9) == [f"{line} (619 similar ones since the last line)"]


@pytest.mark.parametrize("written", [0, 1, 61, BYTES - 1])
def test_a_short_write_is_cut_back(written: int) -> None:
    files, log, offline = world()
    files.short_write_bytes = written
    with pytest.raises(LogStorageError, match=f"only {written} of {BYTES} bytes"):
        append(log, batch(producer_id=1, base_sequence=3))
    check_log_works(files, log, 3)
    assert offline == []


def test_a_full_disk_at_a_roll() -> None:
    files, log, offline = world()
    while log.segments[-1].size_bytes + BYTES <= CONFIG.segment_bytes:
        append(log, batch())
    end_offset = log.log_end_offset
    files.free_bytes = 0
    with pytest.raises(LogStorageError):
        append(log, batch(producer_id=1, base_sequence=3))
    assert log.log_end_offset == end_offset
    files.free_bytes = None
    check_log_works(files, log, 3)
    assert len(log.segments) == 2
    assert offline == []


def test_an_index_without_free_disk_space_refuses_the_append() -> None:
    # A store into a memory-mapped file without disk space behind it would kill the process.
    files = MemoryFiles()
    config = replace(CONFIG, segment_bytes=1 << 20, segment_index_bytes=1 << 16)
    log = open_log(files, config)
    index = log.segments[-1].offset_index
    room, allocate = 3, index.file.allocate

    def limited(position: int, size: int) -> None:
        nonlocal room
        room -= 1
        if room < 0:
            raise OSError(errno.ENOSPC, "no space left on the memory disk")
        allocate(position, size)

    index.file.allocate = limited  # type: ignore[method-assign]
    appended = 0
    with pytest.raises(LogStorageError, match="make room on the disk"):
        for _ in range(20_000):
            append(log, SMALLEST)
            appended += 1
    assert index.entries == appended - 1 >= 3 * 2_048
    assert log.log_end_offset == appended
    room = 1
    append(log, SMALLEST)
    assert len(log.segments) == 1
    assert len(read_all(log)) == appended + 1


def test_a_full_disk_refuses_new_partitions_and_the_epochs_file_and_the_directory_stays() -> None:
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    append(log)
    files.free_bytes = 0
    other = PARTITION._replace(partition=1)
    with pytest.raises(LogStorageError, match="make room on the disk"):
        manager.create(other, TOPIC_ID, CONFIG)
    assert manager.get(other) is None
    assert not files.exists(DATA / "topic-1")
    log.begin_epoch(LeaderEpoch(5))
    before = log.recovery_point
    with pytest.raises(LogStorageError, match="make room on the disk"):
        log.flush()
    # The records are synced, but the recovery point must not pass an epoch that no file has.
    assert (log.flushed_offset, log.recovery_point) == (log.log_end_offset, before)
    files.free_bytes = None
    log.flush()
    assert log.recovery_point == log.log_end_offset
    assert manager.create(other, TOPIC_ID, CONFIG).log_end_offset == 0
    assert append(log).first_offset == 1
    manager.close()
    assert files.exists(DATA / ".kafka_cleanshutdown")


def test_a_full_disk_keeps_the_old_checkpoint() -> None:
    files, clock = MemoryFiles(), ManualClock()
    manager = open_manager(files, config=CONFIG, clock=clock)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    append(log)
    files.free_bytes = 0
    clock.advance(10**6)
    manager.run_due()
    assert not log.is_offline
    assert not files.exists(DATA / "replication-offset-checkpoint")
    files.free_bytes = None
    clock.advance(10**6)
    manager.run_due()
    assert files.exists(DATA / "replication-offset-checkpoint")


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_write_that_fails_otherwise_takes_the_directory_offline(number: int) -> None:
    files, log, offline = world()

    def fail(data: bytes, position: int) -> int:
        raise OSError(number, "the write fails")

    log.segments[-1].log_file.pwrite = fail  # type: ignore[method-assign]
    with pytest.raises(LogStorageError, match="is offline after"):
        append(log, batch(producer_id=1, base_sequence=3))
    assert offline == [str(DATA)]
    with pytest.raises(LogStorageError):
        append(log)
    reopened = open_log(files.killed(), CONFIG)
    assert [record.offset for record in read_all(reopened)] == [0, 1, 2]


def test_a_cut_back_that_fails_takes_the_directory_offline() -> None:
    files, log, offline = world()
    files.short_write_bytes = 20
    files.fail_truncates = True
    with pytest.raises(LogStorageError, match="is offline after"):
        append(log)
    assert offline == [str(DATA)]
    # The next start truncates the log.
    files.fail_truncates = False
    reopened = open_log(files.killed(), CONFIG)
    assert [record.offset for record in read_all(reopened)] == [0, 1, 2]


def test_a_failed_invariant_takes_the_partition_offline_and_no_other() -> None:
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    other = manager.create(PARTITION._replace(partition=1), TOPIC_ID, CONFIG)
    append(log)

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    log.segments[-1].commit = broken  # type: ignore[method-assign]
    with pytest.raises(LogStorageError, match="topic-0 is offline after: a bug"):
        append(log)
    assert log.is_offline
    acts: list[Callable[[], object]] = [lambda: append(log), lambda: log.read(0, 100)]
    for act in acts:
        with pytest.raises(LogStorageError):
            act()
    assert append(other).first_offset == 0
    assert not other.is_offline
