"""One run of a log, cut off at each of its steps on the disk, and again in the following starts.

The run has appends, rolls, flushes, checkpoints, retention, truncation, a restart at another
offset, and a close. A crash can only do harm between two steps on the disk, so every step is tried.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from klog_broker.log.log_config import LogConfig
from klog_broker.log.partition_log import PartitionLog
from tests.support.log.harness import (
    PARTITION,
    TOPIC_ID,
    append,
    append_in,
    batch,
    open_manager,
    read_all,
    start_over,
    truncate,
)
from tests.support.runtime.crash_points import Restarts, crash_points
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

CONFIG = LogConfig(
    segment_bytes=600, segment_index_bytes=64, index_interval_bytes=100, retention_bytes=900
)
# A start takes each gap in such a log for the cleaner's work.
GAPS = replace(CONFIG, may_have_gaps=True)
STARTS = 8


def use_log(files: MemoryFiles, promised: list[int]) -> None:
    """Use a log; ``promised`` is the offset before which no record may be lost, at each moment."""
    manager = open_manager(files, config=CONFIG, clock=ManualClock())
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    for number in range(8):
        append(log, batch(2, timestamp_ms=1_000 * number))
        if number % 3 == 2:
            log.flush()
            promised[0] = log.log_end_offset
        if number == 5:
            manager.sync_recovery_points()
            log.apply_retention(5_000)
    promised[0] = min(promised[0], log.log_end_offset - 2)
    truncate(log, log.log_end_offset - 2)
    append(log, batch(1, timestamp_ms=9_000))
    manager.close()
    promised[0] = log.log_end_offset


def check(files: MemoryFiles, promised: int) -> None:
    log = open_manager(files, config=CONFIG).get(PARTITION)
    if log is None:
        assert not promised
        return
    assert log.log_end_offset >= promised
    offsets = [record.offset for record in read_all(log)]
    assert offsets == list(range(log.log_start_offset, log.log_end_offset))
    append(log)


def use_restarting_log(files: MemoryFiles, promised: list[int], config: LogConfig = CONFIG) -> None:
    """Use a log that is emptied and continues at other offsets, before its start or behind its end.

    The records after the last such step are promised, and no earlier one may remain.
    """
    manager = open_manager(files, config=config, clock=ManualClock())
    log = manager.create(PARTITION, TOPIC_ID, config)
    for epoch, offset in enumerate((50, 20, 90)):
        start_over(log, offset)
        for _ in range(4):
            append_in(log, epoch, batch(2))
        log.flush()
        promised[0] = log.log_end_offset
        manager.sync_recovery_points()
        append(log, batch(2))
        promised[0] = 0
    start_over(log, 40)
    append_in(log, 3, batch(1))
    manager.close()
    promised[0] = log.log_end_offset


def check_restarted_log(files: MemoryFiles, promised: int, config: LogConfig = CONFIG) -> None:
    """Check that no record or epoch is left from before the log was last emptied."""
    log = open_manager(files, config=config).get(PARTITION)
    if log is None:
        assert not promised
        return
    assert log.log_end_offset >= promised
    offsets = [record.offset for record in read_all(log)]
    assert offsets == list(range(log.log_start_offset, log.log_end_offset))
    begun = {0: -1, 50: 0, 20: 1, 90: 2, 40: 3}[log.log_start_offset]
    assert log.latest_epoch == begun or not (offsets or log.latest_epoch >= 0)


def damage(files: MemoryFiles) -> int:
    """Write five segments and damage a byte of the second.

    Return the end offset of the last batch before that byte.
    """
    log = open_manager(files, config=GAPS).create(PARTITION, TOPIC_ID, GAPS)
    while len(log.segments) < 5:
        append(log, batch(2))
    second = log.segments[1]
    places = list(second.batch_positions(0, second.size_bytes))
    broken = places[1]
    byte = second.log_file.pread(1, broken.position + 40)
    second.log_file.pwrite(bytes([byte[0] ^ 1]), broken.position + 40)
    second.log_file.sync()
    log.flush()
    return places[0].last_offset + 1


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_start_that_dies_while_it_drops_what_lies_behind_damage_leaves_no_hole(
    is_power_cut: bool,
) -> None:
    whole = MemoryFiles()
    end = damage(whole)
    before = whole.killed()
    points = crash_points(before, lambda: open_manager(before, config=GAPS), lambda: None)
    assert len(points) > 20
    for step, files, _ in points:
        found = files.crash(Random(step)) if is_power_cut else files
        log = open_manager(found, config=GAPS).get(PARTITION)
        assert log is not None
        assert [record.offset for record in read_all(log)] == list(range(end)), f"step {step}"


def many_segments(config: LogConfig) -> tuple[MemoryFiles, PartitionLog]:
    """A flushed log of four segments whose recovery point covers all records."""
    files = MemoryFiles()
    manager = open_manager(files, config=config)
    log = manager.create(PARTITION, TOPIC_ID, config)
    while len(log.segments) < 4:
        append(log, batch(2))
    log.flush()
    manager.sync_recovery_points()
    return files, log


@pytest.mark.parametrize("config", [CONFIG, GAPS], ids=["without gaps", "with gaps"])
@pytest.mark.parametrize("offset", [2, 6])
def test_a_power_cut_in_a_truncation_leaves_neither_holes_nor_damage(
    config: LogConfig, offset: int
) -> None:
    """Truncate below the recovery point, where a start trusts the log without checks."""
    whole, log = many_segments(config)
    disks: set[object] = set()
    for step, files, _ in crash_points(whole, lambda: truncate(log, offset), lambda: None):
        for seed in range(8):
            found = files.crash(Random(seed))
            content = found.content()
            if content in disks:
                continue  # another seed or step has left the same
            disks.add(content)
            again = open_manager(found, config=config).get(PARTITION)
            assert again is not None
            assert again.log_end_offset >= offset
            offsets = [record.offset for record in read_all(again)]
            assert offsets == list(range(again.log_end_offset)), f"step {step}, seed {seed}"
    assert len(disks) > 20


Live = Callable[[MemoryFiles, list[int]], None]
Check = Callable[[MemoryFiles, int], None]
LIVES: dict[str, tuple[Live, Check]] = {
    "ordinary": (use_log, check),
    "begun anew": (use_restarting_log, check_restarted_log),
    "with gaps": (
        partial(use_restarting_log, config=GAPS),
        partial(check_restarted_log, config=GAPS),
    ),
}


@pytest.mark.parametrize(
    ("name", "is_power_cut"),
    [
        ("ordinary", False),
        ("ordinary", True),
        ("begun anew", False),
        ("begun anew", True),
        ("with gaps", False),
    ],
)
def test_no_promised_record_is_lost_by_a_crash_at_any_step(name: str, is_power_cut: bool) -> None:
    use_log, check = LIVES[name]
    files, promised = MemoryFiles(), [0]
    points = crash_points(files, lambda: use_log(files, promised), lambda: promised[0])
    assert len(points) > 80
    restarts = Restarts(check, most=STARTS, stride=3)
    for point in points:
        restarts.run(point, is_power_cut=is_power_cut)
