"""Checkpoints outdated by a truncation or deletion, and a power cut before they are replaced.

The start must check the records that were appended meanwhile as if the checkpoints had never been
written.
"""

from collections.abc import Mapping
from contextlib import suppress
from random import Random

import pytest

from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.checkpoints import Checkpoint, Checkpoints
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.log.partition_log import PartitionLog
from pyspark_klog.ids import TopicPartition
from pyspark_klog.storage import names
from tests.support.cluster.helpers import Helpers
from tests.support.log.harness import (
    PARTITION,
    TOPIC_ID,
    append,
    batch,
    open_log,
    open_manager,
    read_all,
)
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import Crashed, MemoryFiles

CONFIG = LogConfig(
    segment_bytes=1_000_000, segment_index_bytes=4_096, index_interval_bytes=0, retention_ms=-1
)
OTHER, THIRD = TopicPartition("other", 0), TopicPartition("third", 0)
HOUR_MS = 3_600_000
BETWEEN_CHECKPOINTS_MS = 6_000
SEEDS = 60
OLD = [b"old-%d" % number + b"v" * 300 for number in range(12)]
NEW = [b"new-%d" % number + b"w" * 300 for number in range(12)]


def fill(log: PartitionLog, values: list[bytes]) -> None:
    for value in values:
        append(log, batch(value=value))


def with_checkpoints(files: MemoryFiles) -> LogManager:
    """A log of 12 records, all flushed and below the recovery point."""
    clock = ManualClock()
    manager = open_manager(files, config=CONFIG, clock=clock)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(log, OLD)
    log.flush()
    clock.advance(HOUR_MS)
    manager.run_due()
    assert log.recovery_point == len(OLD)
    return manager


def without_descriptors(files: MemoryFiles, log: PartitionLog) -> None:
    """Let descriptors run out whenever checkpoints are replaced."""
    replace = log.log_directory.replace_checkpoint

    def exhausted(
        name: str, offsets: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, int]
    ) -> None:
        files.has_descriptors = False
        try:
            replace(name, offsets, bounds)
        finally:
            files.has_descriptors = True

    log.log_directory.replace_checkpoint = exhausted  # type: ignore[method-assign]


def check(log: PartitionLog, values: list[bytes]) -> None:
    """Check that the log has the first of these values, and nothing else."""
    found = [record.value for record in read_all(log, log.log_end_offset)]
    assert found == values[: len(found)]
    assert log.log_end_offset == len(found)


def check_power_cuts(files: MemoryFiles, values: list[bytes]) -> None:
    """Check the log after power cuts with each seed; disks of equal content are checked once."""
    disks: set[object] = set()
    for seed in range(SEEDS):
        found = files.crash(Random(seed))
        content = found.content()
        if content not in disks:
            disks.add(content)
            check(open_log(found, CONFIG), values)
    assert len(disks) > 10


def test_after_a_cut_that_had_no_descriptor_for_its_checkpoints() -> None:
    files = MemoryFiles()
    manager = with_checkpoints(files)
    log = manager.get(PARTITION)
    assert log is not None
    without_descriptors(files, log)
    outcomes: list[BaseException | None] = []
    log.truncate_async(6, outcomes.append)
    assert (outcomes, log.is_offline) == ([None], False)
    fill(log, NEW)
    check_power_cuts(files, OLD[:6] + NEW)


def test_after_a_start_that_found_a_log_cut_before_its_checkpoints() -> None:
    files = MemoryFiles()
    manager = with_checkpoints(files)
    log = manager.get(PARTITION)
    assert log is not None
    # The broker is killed after the truncation, before its checkpoints are replaced.
    log.log_directory.replace_checkpoint = lambda *_: None  # type: ignore[method-assign]
    log.truncate_async(6, lambda _: None)
    files = files.killed()
    log = open_log(files, CONFIG)
    assert log.log_end_offset == 6
    fill(log, NEW)
    check_power_cuts(files, OLD[:6] + NEW)


def test_after_a_start_that_found_checkpoints_of_a_deleted_log() -> None:
    files = MemoryFiles()
    manager = with_checkpoints(files)
    log = manager.get(PARTITION)
    assert log is not None
    manager.delete(PARTITION)
    files = files.killed()
    manager = open_manager(files, config=CONFIG)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(log, NEW)
    check_power_cuts(files, NEW)


def test_after_a_start_that_found_nothing_but_the_watermark_of_a_deleted_log() -> None:
    files = MemoryFiles()
    clock = ManualClock()
    manager = open_manager(files, config=CONFIG, clock=clock)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(log, OLD)
    log.set_high_watermark(len(OLD))
    # High watermarks are checkpointed more often than all else.
    clock.advance(BETWEEN_CHECKPOINTS_MS)
    manager.run_due()
    directory = log.log_directory
    assert directory.read_checkpoint(names.HIGH_WATERMARK_CHECKPOINT) == {PARTITION: len(OLD)}
    assert not directory.read_checkpoint(names.RECOVERY_POINT_CHECKPOINT)
    manager.delete(PARTITION)
    manager = open_manager(files.killed(), config=CONFIG)
    directory = manager.create(PARTITION, TOPIC_ID, CONFIG).log_directory
    assert not directory.read_checkpoint(names.HIGH_WATERMARK_CHECKPOINT)


# --- a full disk ----------------------------------------------------------------------------------
def test_a_full_disk_keeps_the_right_log_start_offsets() -> None:
    files = MemoryFiles()
    clock = ManualClock()
    manager = open_manager(files, config=CONFIG, clock=clock)
    manager.create(OTHER, TOPIC_ID, CONFIG)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(log, OLD)
    log.set_high_watermark(len(OLD))
    log.delete_records_before(6)
    clock.advance(HOUR_MS)
    manager.run_due()
    log.delete_records_before(7)
    files.free_bytes = 0
    manager.delete(OTHER)
    manager.renew_checkpoints(lambda: None)
    manager.run_due()
    files.free_bytes = None
    assert open_log(files.killed(), CONFIG).log_start_offset == 6


@pytest.mark.parametrize("seed", range(10))
def test_a_full_disk_lets_right_log_starts_replace_wrong_ones(seed: int) -> None:
    files = MemoryFiles()
    log = open_manager(files, config=CONFIG).create(PARTITION, TOPIC_ID, CONFIG)
    name, directory = names.LOG_START_OFFSET_CHECKPOINT, log.log_directory
    directory.write_checkpoint(name, {PARTITION: 6, OTHER: 3})
    files.free_bytes = 0
    directory.replace_checkpoint(name, {PARTITION: 6}, {PARTITION: 6})
    files = files.crash(Random(seed))
    directory = open_manager(files, config=CONFIG).directories[0]
    assert directory.read_checkpoint(name) == {PARTITION: 6}


@pytest.mark.parametrize("bounds", [{PARTITION: 5, OTHER: 9}, {OTHER: 9}])
def test_without_free_disk_space_a_wrong_checkpoint_is_removed(
    bounds: Mapping[TopicPartition, int],
) -> None:
    files = MemoryFiles()
    log = open_manager(files, config=CONFIG).create(PARTITION, TOPIC_ID, CONFIG)
    name, directory = names.RECOVERY_POINT_CHECKPOINT, log.log_directory
    directory.write_checkpoint(name, {PARTITION: 6})
    files.free_bytes = 0
    with pytest.raises(OSError, match="bytes written"):
        directory.replace_checkpoint(name, {PARTITION: 5, OTHER: 9, THIRD: 1}, bounds)
    assert directory.read_checkpoint(name) == {}


# --- a beginning before the old one ---------------------------------------------------------------
@pytest.mark.parametrize("written", range(9))
def test_a_log_restarted_at_a_lower_offset_keeps_that_start(written: int) -> None:
    """The broker is killed when it replaces checkpoint number ``written``.

    If the log started behind its new start, it would skip the leader's records there and fetch only
    the rest.
    """
    files = MemoryFiles()
    clock = ManualClock()
    manager = open_manager(files, config=CONFIG, clock=clock)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(log, OLD)
    log.set_high_watermark(len(OLD))
    log.delete_records_before(6)
    clock.advance(HOUR_MS)
    manager.run_due()
    directory = log.log_directory
    replace, copies, left = directory.replace_checkpoint, [], written

    def counted(
        name: str, offsets: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, int]
    ) -> None:
        nonlocal left
        if not left:
            copies.append(files.killed())
        left -= 1
        replace(name, offsets, bounds)

    directory.replace_checkpoint = counted  # type: ignore[method-assign]
    with suppress(Crashed):
        log.start_over_async(3, 0, lambda _: None)
    found = open_log(copies[0] if copies else files.killed(), CONFIG)
    expected = [(6, 12), (3, 12), (3, 3)] if copies else [(3, 3)]
    assert (found.log_start_offset, found.log_end_offset) in expected


def test_a_checkpoint_is_written_again_after_a_write_that_failed_has_removed_it() -> None:
    files = MemoryFiles()
    log = open_manager(files, config=CONFIG).create(PARTITION, TOPIC_ID, CONFIG)
    name, directory = names.RECOVERY_POINT_CHECKPOINT, log.log_directory
    checkpoints = Checkpoints(Helpers())
    first, second = Checkpoint(name), Checkpoint(name)
    first.offsets[PARTITION] = 6
    # The second checkpoint needs more space than the first.
    second.offsets.update({PARTITION: 5, OTHER: 9, THIRD: 1})
    checkpoints.write(directory, first)
    files.free_bytes = 0
    checkpoints.replace_file(directory, lambda: None, second)
    assert directory.read_checkpoint(name) == {}
    files.free_bytes = None
    checkpoints.write(directory, first)
    assert directory.read_checkpoint(name) == {PARTITION: 6}
