"""The benchmark of clusters: its requests, the processes whose CPU counts, gaps between acks."""

import subprocess
import sys

import pytest

from benchmarks import cluster
from benchmarks.__main__ import parse
from benchmarks._failovers import longest_gap
from benchmarks._load.jobs import (
    LoadFailed,
    Messages,
    PipelinedProduce,
    Target,
    read_job,
    write_job,
)
from benchmarks._load.running import Clock
from benchmarks._memory import held_memory
from tests.support.eventually import eventually


def test_rows_that_are_not_there_are_refused_before_anything_starts() -> None:
    with pytest.raises(SystemExit, match="no such rows: nothing; there are: idle, produce, "):
        cluster.run(parse(["cluster", "--rows", "nothing"]))


def test_the_cpu_is_that_of_all_brokers_of_the_target() -> None:
    quiet_one = subprocess.Popen(["sleep", "600"])
    with quiet_one as quiet, subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            clock = Clock(Target("127.0.0.1", 1, quiet.pid, "t", "", 0, (busy.pid,)))
            eventually(lambda: clock.stop(1, 1, 1).broker_cpu_s >= 0.1, 30, "CPU of the other")
        finally:
            busy.kill()
            quiet.kill()


def test_further_processes_of_a_target_reach_the_generator() -> None:
    target = Target("127.0.0.1", 9092, 1, "t", "", 0, (2, 3))
    job = PipelinedProduce(target, 11, -1, 1, Messages(1))
    assert read_job(write_job(job)) == job
    assert target.pids == (1, 2, 3)


def test_the_longest_gap_is_of_acks_since_a_moment() -> None:
    assert longest_gap([1.0, 9.0, 9.5, 12.0, 12.1], since_s=8.0) == (9.5, 12.0)
    with pytest.raises(LoadFailed, match="too few acks"):
        longest_gap([1.0, 9.0], since_s=8.0)


def test_held_memory_is_touched_and_only_becomes_less() -> None:
    megabyte = 1 << 20
    with held_memory(3 * megabyte - 1) as memory:
        assert memory.held_bytes == 3 * megabyte
        for keep, held in ((megabyte, megabyte), (2 * megabyte, megabyte), (-1, 0)):
            memory.keep(keep)
            assert memory.held_bytes == held
