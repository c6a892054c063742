"""A follower's log that drops everything and starts elsewhere."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from klog_broker.log.errors import LogStorageError
from klog_broker.log.partition_log import PartitionLog
from pyspark_klog.ids import LeaderEpoch
from tests.support.cluster.helpers import Helpers
from tests.support.log.harness import (
    PARTITION,
    SMALL,
    TOPIC_ID,
    append_in,
    batch,
    open_log,
    open_manager,
    read_all,
    start_over,
    truncate,
)
from tests.support.runtime.memory_files import Crashed, MemoryFiles


@pytest.mark.parametrize("offset", [0, 3, 5, 20, 4_000])
def test_all_is_dropped_and_the_log_goes_on_from_the_offset(offset: int) -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    append_in(log, 3, batch(5, producer_id=7, base_sequence=0))
    log.roll(1)
    append_in(log, 4, batch(5, producer_id=7, base_sequence=5))
    start_over(log, offset)
    assert (log.log_start_offset, log.log_end_offset) == (offset, offset)
    assert (log.high_watermark, log.flushed_offset, log.recovery_point) == (offset, offset, offset)
    assert (log.latest_epoch, log.leader_epoch) == (-1, 4)
    assert log.producer(7) is None
    assert log.last_stable_offset == offset
    assert not log.has_unflushed
    append_in(log, 4, batch(2))
    log.flush()
    manager = open_manager(files.killed())
    again = manager.get(PARTITION)
    assert again is not None
    assert [each.offset for each in read_all(again)] == [offset, offset + 1]
    assert (again.log_start_offset, again.latest_epoch) == (offset, 4)


def four_segments() -> tuple[MemoryFiles, PartitionLog]:
    """Return a log with four segments of five records each, all flushed."""
    files = MemoryFiles()
    log = open_manager(files).create(PARTITION, TOPIC_ID, SMALL)
    for number in range(4):
        log.roll(1)
        append_in(log, 3, batch(5))
        assert log.log_end_offset == 5 * (number + 1)
    log.flush()
    return files, log


@pytest.mark.parametrize("shorten", [truncate, start_over])
def test_a_kill_at_any_moment_leaves_a_log_without_a_hole(
    shorten: Callable[[PartitionLog, int], None],
) -> None:
    files, log = four_segments()
    before = files.steps
    shorten(log, 3)
    ends = set()
    for step in range(before + 1, files.steps + 1):
        files_then, log = four_segments()
        files_then.crash_at_step = step
        with suppress(Crashed):
            shorten(log, 3)
        again = open_manager(files_then.killed()).get(PARTITION)
        assert again is not None
        end = int(again.log_end_offset)
        assert [each.offset for each in read_all(again)] == list(range(end if end != 3 else 0))
        ends.add(end)
    assert {20, 15, 10, 5} <= ends


def test_the_log_is_not_used_before_it_exists() -> None:
    helpers = Helpers.held()
    log = open_log(MemoryFiles(), helpers=helpers)
    helpers.run_all()
    append_in(log, 0, batch(2))
    told: list[object] = []
    log.when_flushed(2, told.append)
    helpers.run_all()
    append_in(log, 0, batch(2))
    log.when_flushed(4, lambda error: told.append(type(error)))
    log.start_over_async(9, 0, lambda error: told.append(("done", error)))
    # The records that the second callback waits for are gone.
    assert told == [None, LogStorageError]
    log.after_cut(lambda: told.append("over"))
    assert log.is_being_cut
    with pytest.raises(LogStorageError, match="is being cut"):
        log.begin_epoch(LeaderEpoch(5))
    helpers.run_all()
    assert told[2:] == [("done", None), "over"]
    assert not log.is_being_cut
    append_in(log, 5, batch(1))
    assert log.log_end_offset == 10


def test_a_wait_for_a_flush_of_dropped_records_does_not_hold_up_others() -> None:
    helpers = Helpers.held()
    log = open_log(MemoryFiles(), helpers=helpers)
    helpers.run_all()
    append_in(log, 0, batch(1))
    append_in(log, 0, batch(1))
    told: list[object] = []
    log.when_flushed(1, lambda error: told.append((1, error)))
    log.when_flushed(2, lambda error: told.append((2, type(error))))
    log.truncate_async(1, lambda error: None)
    assert told == [(2, LogStorageError)]
    helpers.run_all()
    log.start_flush()
    helpers.run_all()
    assert told[1:] == [(1, None)]


def test_a_flush_from_before_a_cut_says_nothing_of_what_came_after_it() -> None:
    """The helper of the flush reports late."""
    files = MemoryFiles()
    helpers = Helpers.held()
    log = open_log(files, helpers=helpers)
    helpers.run_all()
    append_in(log, 0, batch(5))
    log.start_flush()
    log.truncate_async(0, lambda error: None)
    flush = helpers.waiting.popleft()
    helpers.run_all()
    append_in(log, 1, batch(2))
    told: list[object] = []
    log.when_flushed(2, told.append)
    helpers.waiting.append(flush)
    helpers.run_one()
    assert (told, log.flushed_offset) == ([], 0)
    helpers.run_all()
    assert (told, log.flushed_offset) == ([None], 2)


def test_a_flush_that_finds_no_descriptor_does_not_end_a_cut() -> None:
    files = MemoryFiles()
    helpers = Helpers.held()
    log = open_log(files, helpers=helpers)
    helpers.run_all()
    append_in(log, 0, batch(5))
    log.start_flush()
    told: list[object] = []
    log.truncate_async(0, told.append)
    files.has_descriptors = False
    helpers.run_one()
    files.has_descriptors = True
    helpers.run_all()
    assert (told, log.is_offline, log.log_end_offset) == ([None], False, 0)
    append_in(log, 1, batch(2))
    log.start_flush()
    helpers.run_all()
    assert log.flushed_offset == 2


def test_a_failed_disk_takes_the_log_offline_and_fails_all_callbacks() -> None:
    files = MemoryFiles()
    helpers = Helpers.held()
    log = open_log(files, helpers=helpers)
    helpers.run_all()
    append_in(log, 0, batch(3))
    told: list[object] = []
    log.start_over_async(9, 0, lambda error: told.append(type(error)))
    log.after_cut(lambda: told.append(log.is_offline))
    files.fail_sync_at = files.syncs + 1
    helpers.run_all()
    assert told == [LogStorageError, True]
    with pytest.raises(LogStorageError):
        log.begin_epoch(LeaderEpoch(5))
