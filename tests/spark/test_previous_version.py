"""A stream goes on from the checkpoint that the previous version wrote, and the reverse.

No row is lost or doubled, although each run also repeats the last batch of the run before.

`tests/integration/test_previous_version.py` has data directories and clusters.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pyspark_klog import testing
from pyspark_klog.ids import TopicPartition
from tests.support.client.transaction_cases import read_committed
from tests.support.previous_version import copy_job
from tests.support.previous_version.fixtures import previous
from tests.support.previous_version.versions import Version
from tests.support.spark.checkpoints import batches
from tests.support.spark.home import compiled_home
from tests.support.spark.session import spark_session
from tests.support.spark.topics import Topics

__all__ = ["previous"]


@contextmanager
def copying(version: Version, folder: Path, *arguments: str) -> Iterator[Callable[[], None]]:
    """Start a program of ``version`` in ``folder``; yield a function that lets the program copy all
    records of the source. A query of the program begins with what the checkpoint has.

    Spark's start costs more than the copies, so one program makes all copies of its version.
    """
    environment = os.environ | {
        "SPARK_HOME": str(compiled_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    errors = folder / "stderr"
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            [*version.python, "-P", copy_job.__file__, *arguments],
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as program,
    ):

        def copy() -> None:
            with suppress(BrokenPipeError):  # stderr says why the program has ended
                program.stdin.write("\n")
                program.stdin.flush()
            assert program.stdout.readline() == f"{copy_job.COPIED}\n", errors.read_text()[-4_000:]

        yield copy
    assert program.returncode == 0, errors.read_text()[-4_000:]


def uncommit_last_batch(checkpoint: Path) -> int:
    """Take the last batch's commit out of the checkpoint, as if the driver had died between the
    sink's commit and Spark's; returns the batch."""
    logged, committed = batches(checkpoint)
    assert logged == committed
    for name in (f"{committed[-1]}", f".{committed[-1]}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    return committed[-1]


@pytest.mark.timeout(600)
def test_a_stream_goes_on_after_an_upgrade_and_after_the_way_back(
    previous: Version, topics: Topics, spark_broker: testing.Broker, tmp_path: Path
) -> None:
    servers = spark_broker.bootstrap_servers
    source, target = topics.create(2), topics.create(1)
    checkpoint = tmp_path / "checkpoint"
    arguments = (servers, source, target, str(checkpoint))
    end, repeated = 0, -1
    with copying(previous, tmp_path, *arguments) as copy_by_previous:

        def copy_by_this() -> None:
            copy_job.copy(spark_session(), *arguments)

        for copy in (copy_by_previous, copy_by_this, copy_by_previous):
            for partition in (0, 1):
                topics.put_numbers(source, range(end + partition, end + 10, 2), partition)
            end += 10
            copy()
            copied = map(int, read_committed(servers, TopicPartition(target, 0)))
            assert sorted(copied) == list(range(end))
            assert batches(checkpoint)[1][-1] > repeated
            repeated = uncommit_last_batch(checkpoint)
