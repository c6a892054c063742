"""A crash while logs are recovered side by side: the next start finds all their records."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from klog_broker.log.manager.log_manager import LogManager, LogManagerSettings
from klog_broker.runtime.disk.files import Files, RealFiles
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net.poller import default_poller
from klog_broker.runtime.system.clock import SystemClock
from klog_broker.runtime.threads.parallel_work import ThreadedParallelWork
from pyspark_klog.ids import BrokerId, TopicPartition
from tests.support.cluster.helpers import Helpers
from tests.support.log.harness import (
    CLUSTER,
    DATA,
    SMALL,
    TOPIC_ID,
    append,
    batch,
    read_all,
)
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import Crashed, MemoryFiles

ROOT = Path(__file__).resolve().parents[2]
CONFIG = replace(SMALL, segment_bytes=2_000, index_interval_bytes=100)
LOGS = 4
THREADS = 3
KILLS = 12


def manager_of(files: Files, directory: Path) -> LogManager:
    return LogManager(
        [directory],
        files=files,
        clock=ManualClock(),
        helpers=Helpers(),
        broker_id=BrokerId(0),
        cluster_id=CLUSTER,
        default_config=CONFIG,
        settings=LogManagerSettings(recovery_threads_per_data_dir=THREADS),
    )


def write(files: Files, directory: Path, batches: int) -> LogManager:
    """Write logs that are flushed and not closed, with segments that no checkpoint covers."""
    manager = manager_of(files, directory)
    manager.load()
    for number in range(LOGS):
        log = manager.create(TopicPartition("topic", number), TOPIC_ID, CONFIG)
        for _ in range(batches + number):
            append(log, batch(2))
        log.flush()
    return manager


def load(files: Files, directory: Path) -> LogManager:
    manager = manager_of(files, directory)
    loop = Loop(SystemClock(), default_poller())
    try:
        manager.load(parallel_work=ThreadedParallelWork(loop, "test-loading"))
    finally:
        loop.close()
    return manager


def check(manager: LogManager, batches: int) -> None:
    found = {log.topic_partition.partition: log for log in manager.logs()}
    for number in range(LOGS):
        found[number].set_high_watermark(found[number].log_end_offset)
        offsets = [record.offset for record in read_all(found[number])]
        assert offsets == list(range(2 * (batches + number)))
        append(found[number], batch(1))


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_at_each_step_on_the_disk(is_power_cut: bool) -> None:
    written = MemoryFiles()
    write(written, DATA, batches=12)
    whole = written.killed()
    load(whole, DATA)
    assert whole.steps > 40
    for step in range(1, whole.steps + 1, 2):
        random = Random(step)
        files = written.crash(random) if is_power_cut else written.killed()
        files.crash_at_step = step
        try:
            load(files, DATA)
        except Crashed:
            files = files.crash(random) if is_power_cut else files.killed()
        else:
            # The power cut had removed the files that the start would have written again.
            files = files.killed()
        try:
            check(load(files, DATA), batches=12)
        except BaseException as error:
            error.add_note(f"step {step}")
            raise


def test_killed_in_the_middle(tmp_path: Path) -> None:
    write(RealFiles(), tmp_path, batches=400).release_locks()
    random = Random(3)
    for _ in range(KILLS):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.test_parallel_loading", str(tmp_path)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        assert child.stdout is not None
        # The child prints a line for each piece that it has scanned, in any log.
        for _ in range(random.randint(1, 12)):
            child.stdout.readline()
        child.kill()
        child.communicate()
        assert child.returncode == -signal.SIGKILL
    check(load(RealFiles(), tmp_path), batches=400)


def _load_until_killed(directory: str) -> None:
    """Load the logs again and again in a child process, and print a line for each piece."""
    manager = manager_of(RealFiles(), Path(directory))
    loop = Loop(SystemClock(), default_poller())

    def is_wanted() -> bool:
        print("another piece", flush=True)
        return True

    while True:
        manager.load(parallel_work=ThreadedParallelWork(loop, "test-loading"), is_wanted=is_wanted)
        manager.release_locks()
        manager = manager_of(RealFiles(), Path(directory))


if __name__ == "__main__":
    _load_until_killed(sys.argv[1])
