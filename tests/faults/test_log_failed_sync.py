"""A power cut after a failed sync and a restart: records that count as durable must survive.

After a failed sync the next process finds bytes in the page cache that the disk does not have, and
that no later sync writes.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from klog_broker.log.errors import LogStorageError
from klog_broker.log.partition_log import PartitionLog
from tests.support.cluster.helpers import Helpers
from tests.support.cluster.logs import HostedLog
from tests.support.log.harness import (
    PARTITION,
    SMALL,
    TOPIC_ID,
    append,
    batch,
    open_manager,
    read_all,
)
from tests.support.runtime.memory_files import Crashed, MemoryFiles

CONFIG = replace(SMALL, segment_bytes=2_000, index_interval_bytes=100)
CUTS = 20


class BrokerRun(HostedLog):
    """A broker's log, from a start until the process is killed."""

    def __init__(self, files: MemoryFiles) -> None:
        super().__init__(CONFIG, files=files)

    def append(self, count: int) -> None:
        for _ in range(count):
            append(self.log, batch(value=b"%03d" % self.log.log_end_offset + b"v" * 200))

    def flush(self) -> list[BaseException | None]:
        outcomes: list[BaseException | None] = []
        self.log.when_flushed(self.log.log_end_offset, outcomes.append)
        self.helpers.run_all()
        return outcomes


def values(log: PartitionLog) -> list[bytes]:
    return [record.value[:3] for record in read_all(log, log.log_end_offset) if record.value]


def check_power_cuts(files: MemoryFiles, flushed_offset: int) -> None:
    for seed in range(CUTS):
        log = BrokerRun(files.crash(Random(seed))).log
        assert log.log_end_offset >= flushed_offset
        assert values(log) == [b"%03d" % number for number in range(log.log_end_offset)]


def fail_sync(life: BrokerRun) -> None:
    life.files.fail_sync_at = life.files.syncs + 1
    (error,) = life.flush()
    assert isinstance(error, LogStorageError)


def killed_in_it(life: BrokerRun) -> None:
    """Kill the process in the failing sync, so that the error reaches nobody."""
    life.files.failed_sync_kills = True
    life.files.fail_sync_at = life.files.syncs + 1
    with pytest.raises(Crashed):
        life.flush()


@pytest.mark.parametrize("end", [fail_sync, killed_in_it])
@pytest.mark.parametrize("unsynced", [1, 30])
@pytest.mark.parametrize("goes_on", [False, True])
def test_what_the_next_start_takes_for_flushed_survives_a_power_cut(
    end: Callable[[BrokerRun], None], unsynced: int, goes_on: bool
) -> None:
    """One unsynced record, or so many that several segments have no synced data."""
    life = BrokerRun(MemoryFiles())
    life.append(3)
    assert life.flush() == [None]
    life.append(unsynced)
    end(life)
    next_life = BrokerRun(life.files.killed())
    assert next_life.log.flushed_offset == 3 + unsynced
    if goes_on:
        next_life.append(2)
        assert next_life.flush() == [None]
    check_power_cuts(next_life.files, next_life.log.log_end_offset)


def test_a_start_that_fails_in_the_same_way_leaves_it_to_the_next_one() -> None:
    life = BrokerRun(MemoryFiles())
    life.append(8)
    fail_sync(life)
    files = life.files.killed()
    files.fail_sync_at = files.syncs + 1
    with pytest.raises(LogStorageError):
        BrokerRun(files)
    last = BrokerRun(files.killed())
    assert last.log.flushed_offset == 8
    check_power_cuts(last.files, 8)


def test_only_the_log_whose_sync_failed_is_written_again(caplog: pytest.LogCaptureFixture) -> None:
    files, helpers = MemoryFiles(), Helpers.held()
    manager = open_manager(files, helpers=helpers)
    logs = [
        manager.create(PARTITION._replace(partition=number), TOPIC_ID, SMALL) for number in (0, 1)
    ]
    for log in logs:
        append(log)
    logs[1].start_flush()
    files.fail_sync_at = files.syncs + 1
    helpers.run_all()
    open_manager(files := files.killed())
    assert [line for line in caplog.messages if "written_again" in line] == [
        "log=/data/topic-1/00000000000000000000.log written_again_from=0 bytes="
        f"{logs[1].segments[0].size_bytes} after a sync that may have failed"
    ]
    caplog.clear()
    open_manager(files.killed())
    assert "written_again" not in caplog.text
