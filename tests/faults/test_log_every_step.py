"""One log's life, cut off at each of its steps on the disk, and again in the starts that follow.

Append, roll, flush, checkpoint, retention, truncation and close are all in it; a place in the code
where a crash could hurt lies between two steps on the disk.
"""

from random import Random

import pytest

from klog_broker.log.log_config import LogConfig
from klog_broker.runtime.clock import ManualClock
from tests.support.log_harness import (
    PARTITION,
    TOPIC_ID,
    append,
    batch,
    open_manager,
    read_all,
    truncate,
)
from tests.support.memory_files import Crashed, MemoryFiles

CONFIG = LogConfig(
    segment_bytes=600, segment_index_bytes=64, index_interval_bytes=100, retention_bytes=900
)
STARTS = 8


def live(files: MemoryFiles, promised: list[int]) -> None:
    """``promised`` is the offset before which records may not be lost, as it was last heard."""
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


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_life_is_cut_off_at_each_step(is_power_cut: bool) -> None:
    whole = MemoryFiles()
    live(whole, [0])
    assert whole.steps > 80
    for step in range(1, whole.steps + 1):
        files, promised, random = MemoryFiles(), [0], Random(step)
        files.crash_at_step = step
        with pytest.raises(Crashed):
            live(files, promised)
        for start in range(1, STARTS + 1):
            found = files.crash(random) if is_power_cut else files.killed()
            found.crash_at_step = start * 3
            try:
                check(found, promised[0])
            except Crashed:
                files = found
                continue
            except BaseException as error:
                error.add_note(f"step {step}, start {start}")
                raise
            break
        rest = found.killed()
        check(rest, promised[0])
