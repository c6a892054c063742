"""Loading many logs: equal results in any order, progress lines, aborted when the broker stops."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from klog_broker.log.errors import LoadingCancelled
from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.log_manager import LogManager, LogManagerSettings
from klog_broker.runtime.threads.parallel_work import ParallelWork, run_in_order
from pyspark_klog.ids import BrokerId, TopicPartition
from tests.support.cluster import server as memory_start
from tests.support.cluster.helpers import Helpers
from tests.support.log.harness import (
    CLUSTER,
    SMALL,
    TOPIC_ID,
    append,
    batch,
    read_all,
)
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

FIRST, SECOND = Path("/first"), Path("/second")
LOGS = 7


def manager_of(
    files: MemoryFiles, clock: ManualClock | None = None, config: LogConfig = SMALL
) -> LogManager:
    return LogManager(
        [FIRST, SECOND],
        files=files,
        clock=clock or ManualClock(),
        helpers=Helpers(),
        broker_id=BrokerId(0),
        cluster_id=CLUSTER,
        default_config=config,
        settings=LogManagerSettings(recovery_threads_per_data_dir=3),
    )


@pytest.fixture
def killed() -> MemoryFiles:
    """Two directories with logs that were not closed; the n-th has n records."""
    files = MemoryFiles()
    manager = manager_of(files)
    manager.load()
    for number in range(LOGS):
        log = manager.create(TopicPartition("topic", number), TOPIC_ID, SMALL)
        for _ in range(number):
            append(log, batch(1))
    return files.killed()


def record_counts(manager: LogManager) -> dict[int, int]:
    for log in manager.logs():
        log.set_high_watermark(log.log_end_offset)
    return {log.topic_partition.partition: len(read_all(log)) for log in manager.logs()}


def the_last_first(
    groups: Sequence[Sequence[Callable[[], Any]]], _: int, take: Callable[[int, int, Any], None]
) -> None:
    for group in reversed(range(len(groups))):
        for number in reversed(range(len(groups[group]))):
            take(group, number, groups[group][number]())


@pytest.mark.parametrize("parallel_work", [run_in_order, the_last_first])
def test_logs_are_the_same_in_whatever_order_they_were_loaded(
    killed: MemoryFiles, parallel_work: ParallelWork
) -> None:
    manager = manager_of(killed)
    manager.load(parallel_work=parallel_work)
    assert not manager.is_clean_start
    found = [(str(log.path), log.log_end_offset) for log in manager.logs()]
    assert found == sorted(found)
    assert record_counts(manager) == {number: number for number in range(LOGS)}


def test_a_directory_that_fails_does_not_stop_the_others(killed: MemoryFiles) -> None:
    broken = next(each for each in killed.list_dir(SECOND) if each.startswith("topic-"))
    path = SECOND / broken / f"{0:020}.log"
    open_file = killed.open

    def refuse(at: Path, **options: Any) -> Any:
        if at == path:
            raise OSError(5, "the disk is broken")
        return open_file(at, **options)

    killed.open = refuse  # type: ignore[method-assign]
    manager = manager_of(killed)
    manager.load(parallel_work=the_last_first)
    by_path = {directory.path: directory for directory in manager.directories}
    assert [by_path[path].is_offline for path in (FIRST, SECOND)] == [False, True]
    in_first = [log for log in manager.logs() if log.path.parent == FIRST]
    assert len(in_first) == len([n for n in killed.list_dir(FIRST) if n.startswith("topic-")])
    assert not any(log.is_offline for log in in_first)


def test_log_lines_report_the_progress(
    killed: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()

    def slowly(
        groups: Sequence[Sequence[Callable[[], Any]]], _: int, take: Callable[[int, int, Any], None]
    ) -> None:
        for number, work in enumerate(groups[0]):
            clock.advance(3_000)
            take(0, number, work())
        run_in_order([[], *groups[1:]], 1, take)

    with caplog.at_level(logging.INFO, "klog.log"):
        manager_of(killed, clock).load(parallel_work=slowly)
    lines = [line for line in caplog.messages if " loading logs=" in line]
    # After 6 s and 12 s of its own: at most one in five. The other one has waited for 12.
    assert lines == [
        f"log_dir={FIRST} loading logs=1 of=4 looked_through_bytes=0 now=topic-2",
        f"log_dir={FIRST} loading logs=3 of=4 looked_through_bytes=2052 now=topic-6",
        f"log_dir={SECOND} loading logs=0 of=3 looked_through_bytes=0 now=topic-1",
    ]


@pytest.mark.parametrize("looks", range(12))
def test_loading_is_given_up_when_the_broker_is_to_stop(killed: MemoryFiles, looks: int) -> None:
    left = looks

    def is_wanted() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    manager = manager_of(killed)
    with pytest.raises(LoadingCancelled):
        manager.load(is_wanted=is_wanted)
    # The locks are free, and nothing is lost.
    again = manager_of(killed)
    again.load()
    assert not again.is_clean_start
    assert record_counts(again) == {number: number for number in range(LOGS)}


def test_a_broker_that_is_stopped_while_it_loads_does_not_serve() -> None:
    files = MemoryFiles()
    first = memory_start.start(files)
    memory_start.make_topic(first, "flights", 3)
    first.close(cleanly=False)
    broker = memory_start.make(files.killed())
    broker.stop("SIGTERM")
    with pytest.raises(CannotStart, match="was stopped while it loaded its logs") as refusal:
        broker.start()
    assert refusal.value.exit_code is ExitCode.OK
