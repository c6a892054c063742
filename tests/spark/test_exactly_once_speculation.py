"""Speculation: an original task and its copy both run to the end, and each row is there once.

A standalone master has a worker on 127.0.0.1 and one on 127.0.0.2, for Spark never puts a copy on
the host of its original.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark import TaskContext

from tests.soak.copies import by_key, problems_of_copy, read_all
from tests.soak.processes import ROOT
from tests.soak.traps import FOLDER_VARIABLE, NOTES_VARIABLE, Action, Point, Traps
from tests.support.eventually import eventually
from tests.support.spark import session as sessions
from tests.support.spark.standalone import standalone_master
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A master, two workers, two executors and a driver start on a machine that may be busy.
pytestmark = pytest.mark.timeout(600)

SPECULATION = {
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "300ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.efficiency.enabled": "false",
    # Once one attempt has succeeded, Spark kills the other one's worker after so long.
    "spark.python.task.killTimeout": "120s",
    # No attempt may fail: Spark's next one would have no copy, as both hosts had an attempt.
    "spark.task.maxFailures": "1",
}
PARTITIONS = 2
SLOW = 1
"""The task that waits for its copy."""
LONGEST_WAIT_S = 120.0
"""The longest wait for a copy, which is late only on a slow machine."""
LONGEST_STOP_S = 45.0
"""Longer than a copy waits for an attempt that has left its transaction to the driver, and less
than an operation of the client's may take."""
FENCED = "ProducerFenced"
REFUSED = "ExactlyOnceRefused"


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traps]:
    """Start the cluster, whose Python processes note the results of the sink's calls."""
    folder = tmp_path_factory.mktemp("standalone")
    traps = Traps(folder / "traps")
    paths = [str(ROOT / "tests" / "soak" / "site"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(traps.folder))
        patch.setenv(NOTES_VARIABLE, "all")
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        with standalone_master(folder) as address:
            patch.setenv("SPARK_HOME", str(folder / "home"))
            for name, value in (SPECULATION | {"spark.master": address}).items():
                patch.setitem(sessions.OVERRIDES, name, value)
            spark = sessions.spark_session()
            status = spark.sparkContext._jsc.sc()
            eventually(lambda: status.getExecutorMemoryStatus().size() == 3, 180, "two executors")
            yield traps


def _with_copies(
    frame: "DataFrame", meetings: Path
) -> tuple["DataFrame", Callable[[], dict[str, int]]]:
    """Return a frame whose slow task, in each micro-batch, ends only after its copy has given its
    rows, too; and a function that returns the number of attempts of each micro-batch. The first of
    both attempts to reach the end of write() is stopped there, so that Spark hears of it only when
    the other one has written all rows, too. (Spark makes a copy when another task has succeeded, so
    only these two attempts can be stopped.)"""

    def wait_for_the_copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == SLOW:
            batch = context.getLocalProperty("streaming.sql.batchId") or "batch"
            if context.attemptNumber() == 1:
                traps = Traps(Path(os.environ[FOLDER_VARIABLE]))
                traps.arm_once_more(Point.WRITE_DONE, Action.STOP)
            (meetings / f"{batch}.{context.attemptNumber()}").touch()
            eventually(
                lambda: len(list(meetings.glob(f"{batch}.*"))) > 1,
                LONGEST_WAIT_S,
                "a copy of this task",
            )

    def attempts() -> dict[str, int]:
        found: dict[str, int] = {}
        for file in meetings.iterdir():
            found[file.stem] = found.get(file.stem, 0) + 1
        return found

    return frame.mapInArrow(wait_for_the_copy, frame.schema), attempts


def _fill(topics: Topics, source: str) -> None:
    for partition in range(PARTITIONS):
        rows = [(b"%d" % partition, b"%d" % (10 * n + partition)) for n in range(12)]
        topics.put(source, rows, partition)


@pytest.fixture
def meetings(tmp_path: Path) -> Path:
    folder = tmp_path / "meetings"
    folder.mkdir()
    return folder


@pytest.fixture
def written(calls: Traps, meetings: Path) -> Iterator[Callable[[], int]]:
    """How many attempts have come to the end of their write() in this test, or were fenced."""

    def count() -> int:
        return sum(did.endswith("Writer.write") or FENCED in did for _, did in calls.calls())

    before, over = count(), threading.Event()
    waking = threading.Thread(target=_wake_in_time, args=(calls, over))
    waking.start()
    try:
        yield lambda: count() - before
    finally:
        over.set()
        waking.join()
        # The thread may not have seen the last commit: a stopped attempt keeps its core.
        for pid in calls.all_sprung(Point.WRITE_DONE):
            calls.wake(pid)
        calls.disarm()
        # If the test fails, print the attempts that met, and their calls.
        for file in sorted(meetings.iterdir()):
            print(f"{file.stat().st_mtime:.3f} {file.name}")
        print(calls.story())


def _wake_in_time(calls: Traps, over: threading.Event) -> None:
    """Wake each stopped attempt when Spark has called commit() with the other one's message: until
    then it keeps its executor's only core. Wake it also if it has fenced the other one, which then
    waits for it. Wake any attempt that is stopped for too long: it would delay the next tests."""
    stopped_since_s: dict[int, float] = {}
    while not over.wait(0.05):
        sprung = calls.all_sprung(Point.WRITE_DONE)
        stopped_since_s = {pid: stopped_since_s.get(pid, time.monotonic()) for pid in sprung}
        for pid in sprung:
            noted = calls.calls()
            last = max(
                n for n, (each, did) in enumerate(noted) if (each, did[-5:]) == (pid, "write")
            )
            commits = [n for n, (_, did) in enumerate(noted) if "Writer.commit" in did]
            began = max((n for n in commits if n < last), default=-1)
            is_too_long = time.monotonic() - stopped_since_s[pid] > LONGEST_STOP_S
            if (
                commits[-1:] > [last]
                or any(FENCED in did or REFUSED in did for _, did in noted[began + 1 :])
                or is_too_long
            ):
                calls.wake(pid)


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at_least_once", "exactly_once"])
def test_a_stream(
    written: Callable[[], int], topics: Topics, tmp_path: Path, meetings: Path, exactly_once: bool
) -> None:
    """The first micro-batch of a run leaves its transactions to the driver; tasks of later ones end
    theirs themselves."""
    source, target = topics.create(PARTITIONS), topics.create(PARTITIONS)
    _fill(topics, source)
    frame = topics.stream(
        subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=8
    ).select("key", "value")
    slow, attempts = _with_copies(frame, meetings)
    writer = slow.writeStream.format("klog").options(
        **topics.options(topic=target, exactlyOnce=exactly_once)
    )
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    run(writer.trigger(availableNow=True).start(), 240)
    assert attempts() == {"0": 2, "1": 2, "2": 2}
    assert written() >= 3 * (PARTITIONS + 1)
    _check(topics, source, target, exactly_once)


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at_least_once", "exactly_once"])
def test_a_batch(
    written: Callable[[], int], topics: Topics, meetings: Path, exactly_once: bool
) -> None:
    source, target = topics.create(PARTITIONS), topics.create(PARTITIONS)
    _fill(topics, source)
    slow, attempts = _with_copies(topics.batch(subscribe=source).select("key", "value"), meetings)
    slow.write.format("klog").mode("append").options(
        **topics.options(topic=target, exactlyOnce=exactly_once)
    ).save()
    assert attempts() == {"batch": 2}
    assert written() >= PARTITIONS + 1
    _check(topics, source, target, exactly_once)


def _check(topics: Topics, source: str, target: str, exactly_once: bool) -> None:
    """Every row is there once; the other sink shows that the copies wrote all of theirs, too."""
    due = by_key(read_all(topics.servers, source).records)
    found = read_all(topics.servers, target)
    problems = problems_of_copy(due, found.records, target)
    if exactly_once:
        assert problems == []
    else:
        (problem,) = problems
        assert f"{target}: 12 records doubled" in problem
