"""Work over all logs goes a part a turn; what is written last of a checkpoint was found last."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.log.manager import housekeeping
from klog_broker.log.manager.log_manager import LogManager
from pyspark_klog.ids import TopicPartition
from pyspark_klog.storage import names
from pyspark_klog.storage.text_files import decode_offset_checkpoint
from tests.support.log.harness import DATA, SMALL, TOPIC_ID, append, batch, open_manager
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

LOGS = 25
CONFIG = replace(SMALL, flush_ms=1_000)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> MemoryFiles:
    monkeypatch.setattr(housekeeping, "LOGS_A_TURN", 10)
    return MemoryFiles()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def manager(files: MemoryFiles, clock: ManualClock) -> LogManager:
    manager = open_manager(files, config=CONFIG, clock=clock)
    for number in range(LOGS):
        append(manager.create(TopicPartition("topic", number), TOPIC_ID, CONFIG), batch(1))
    return manager


def unflushed(manager: LogManager) -> int:
    return sum(log.has_unflushed for log in manager.logs())


def run_until_rest(manager: LogManager, clock: ManualClock) -> int:
    """How many calls it took."""
    for calls in range(1, 1000):
        manager.run_due()
        if manager.next_deadline_ms() > clock.monotonic_ms():
            return calls
    raise AssertionError("it does not come to rest")


def test_logs_are_flushed_by_time_in_slices(manager: LogManager, clock: ManualClock) -> None:
    woken = []
    manager.set_wake(lambda: woken.append(True))
    clock.advance(5_000)
    left = []
    for _ in range(3):
        manager.run_due()
        left.append(unflushed(manager))
    assert left == [16, 6, 0]
    assert woken


def test_a_checkpoint_never_names_a_log_that_was_deleted_before(
    manager: LogManager, files: MemoryFiles, clock: ManualClock
) -> None:
    clock.advance(31_000)
    manager.run_due()  # has begun with some checkpoints
    told = []
    gone = TopicPartition("topic", 3)
    manager.delete(gone)
    manager.renew_checkpoints(lambda: told.append(True))
    assert not told
    run_until_rest(manager, clock)
    assert told == [True]
    for name in (names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT):
        found = decode_offset_checkpoint(files.read_bytes(DATA / name))
        assert len(found) == LOGS - 1
        assert gone not in found


def test_checkpoints_are_written_once_for_all_requests_meanwhile(
    manager: LogManager,
    files: MemoryFiles,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renewed: Counter[str] = Counter()
    replace_checkpoint = LogDirectory.replace_checkpoint

    def counted(self: LogDirectory, name: str, *arguments: Any) -> None:
        renewed[name] += 1
        replace_checkpoint(self, name, *arguments)

    monkeypatch.setattr(LogDirectory, "replace_checkpoint", counted)
    told = []
    gone = [TopicPartition("topic", number) for number in range(4)]
    for partition in gone[:3]:
        manager.delete(partition)
        manager.renew_checkpoints(lambda partition=partition: told.append(partition))
    manager.run_due()
    manager.delete(gone[3])
    manager.renew_checkpoints(lambda: told.append(gone[3]))
    run_until_rest(manager, clock)
    assert told == gone
    for name in (names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT):
        assert not decode_offset_checkpoint(files.read_bytes(DATA / name)).keys() & set(gone)
    assert renewed[names.RECOVERY_POINT_CHECKPOINT] == 2


def test_a_wake_up_leaves_no_deadline_in_the_past(manager: LogManager, clock: ManualClock) -> None:
    woken: list[None] = []
    manager.set_wake(lambda: woken.append(None))
    clock.advance(5_000)
    manager.run_due()
    assert len(woken) == 1
    assert manager.next_deadline_ms() > clock.monotonic_ms()
    manager.run_due()
    assert len(woken) == 2
