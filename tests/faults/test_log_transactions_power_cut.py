"""A log with transactions, cut off at each of its steps on the disk, and again in later starts.

Open transactions and transaction indexes must always agree with the batches that are left.
"""

from random import Random

import pytest

from klog_broker.log.log_config import LogConfig
from tests.support.log.harness import DATA, PARTITION, TOPIC_ID, append, open_manager, truncate
from tests.support.log.transactional_log import append_end_marker, said_by_batches, write
from tests.support.runtime.crash_points import CrashPoint, Restarts, crash_points
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

CONFIG = LogConfig(
    segment_bytes=700, segment_index_bytes=64, index_interval_bytes=100, retention_bytes=1_200
)
STARTS = 6
CLOSED_END = 11


def use_log(files: MemoryFiles, promised: list[int]) -> None:
    """Use a log; ``promised`` is the offset before which no record may be lost, at each moment."""
    manager = open_manager(files, config=CONFIG, clock=ManualClock())
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    write(log, 9, 0)
    for number in range(4):
        write(log, 1, number)
        write(log, 2, number)
        append_end_marker(log, 1, commit=number % 3 == 1)
        if number % 2:
            log.flush()
            promised[0] = log.log_end_offset
        if number == 2:
            manager.sync_recovery_points()
            log.apply_retention(5_000)
        append_end_marker(log, 2, commit=False)
    promised[0] = min(promised[0], log.log_end_offset - 2)
    truncate(log, log.log_end_offset - 2)
    append_end_marker(log, 2, commit=number % 2 == 0)
    append(log)
    log.flush()
    promised[0] = log.log_end_offset
    append_end_marker(log, 9, commit=False)
    manager.close()
    promised[0] = log.log_end_offset


def check(files: MemoryFiles, promised: int) -> None:
    log = open_manager(files, config=CONFIG).get(PARTITION)
    if log is None:
        assert not promised
        return
    assert log.log_end_offset >= promised
    begun, rows = said_by_batches(log)
    start, end_offset = log.log_start_offset, log.log_end_offset
    found = log.aborted_transactions(start, end_offset + 1)
    if start == 0:
        assert found == rows
        assert {
            each.producer_id: each.current_transaction_first_offset
            for each in log.producers
            if each.current_transaction_first_offset >= 0
        } == begun
    else:
        # A snapshot may still have transactions that began before the log's start.
        assert {each[2] for each in rows} <= {each[2] for each in found}
    assert log.last_stable_offset >= min([start, *begun.values()])
    append(log)


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_transactions_outlive_a_crash_at_any_step(is_power_cut: bool) -> None:
    files, promised = MemoryFiles(), [0]
    points = crash_points(files, lambda: use_log(files, promised), lambda: promised[0])
    assert len(points) > 100
    restarts = Restarts(check, most=STARTS, stride=4)
    for point in points:
        restarts.run(point, is_power_cut=is_power_cut)


def closed_log() -> MemoryFiles:
    """A log of several aborted transactions and an open one, all synced."""
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    for number in range(5):
        write(log, 1, number)
        append_end_marker(log, 1, commit=False)
    write(log, 2, 0)
    assert log.log_end_offset == CLOSED_END
    manager.close()
    return files.killed()


def check_power_cuts(points: list[CrashPoint[int]], seeds: int) -> None:
    """Check the log after power cuts at these points; disks of equal content are checked once."""
    disks: set[object] = set()
    for step, files, promised in points:
        for seed in range(seeds):
            found = files.crash(Random(seed))
            key = (found.content(), promised)
            if key in disks:
                continue
            disks.add(key)
            try:
                check(found, promised)
            except BaseException as error:
                error.add_note(f"step {step}, seed {seed}")
                raise


def test_rows_before_the_recovery_point_survive_the_starts_that_replace_them() -> None:
    """Cut off a start that builds a damaged index again, at each step, by a power cut."""
    files = closed_log()
    file = files.open(DATA / "topic-0" / f"{0:020d}.txnindex")
    file.pwrite(b"\x7f", 0)
    file.sync()
    points = crash_points(files, lambda: open_manager(files, config=CONFIG), lambda: CLOSED_END)
    assert len(points) > 9
    check_power_cuts(points, 4)


def test_rows_of_markers_that_a_power_cut_brings_back() -> None:
    """Cut off a truncation at each step; the power cut may bring truncated records back."""
    files = closed_log()
    manager = open_manager(files, config=CONFIG)
    log = manager.get(PARTITION)
    assert log is not None
    append_end_marker(log, 2, commit=False)
    log.flush()
    manager.sync_recovery_points()
    cut = log.log_end_offset - 1
    points = crash_points(files, lambda: truncate(log, cut), lambda: log.log_end_offset)
    check_power_cuts(points, 8)
