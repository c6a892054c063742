"""Python workers of Spark's as tests of the exactly-once sink need them: without Spark, any number
in one process, each with its own connections."""

import gc
import itertools
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest

from pyspark_klog.client.transactions.producer import end_transaction
from pyspark_klog.spark.options.exactly_once import MicroBatch
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.sink.dead_letters import TaskIds
from pyspark_klog.spark.sink.exactly_once import task as task_module
from pyspark_klog.spark.sink.exactly_once.attempt import Task, task_of
from pyspark_klog.spark.sink.exactly_once.progress import TaskProgress
from pyspark_klog.spark.sink.exactly_once.task import TaskResult, write_once
from pyspark_klog.spark.sink.options import check_sink
from pyspark_klog.spark.workers import clients
from pyspark_klog.spark.workers.clients import client_for

QUERY = "11111111-1111-1111-1111-111111111111"
RUN_1 = "22222222-2222-2222-2222-222222222221"
RUN_2 = "22222222-2222-2222-2222-222222222222"

_numbers = itertools.count(1)


def rows(*values: str, **columns: list[object]) -> pa.RecordBatch:
    """Rows with these values, as Spark gives them to a sink."""
    arrays: dict[str, object] = {"value": pa.array([v.encode() for v in values], pa.binary())}
    for name, given in columns.items():
        arrays[name] = pa.array(given, pa.int32() if name == "partition" else pa.string())
    return pa.RecordBatch.from_pydict(arrays)


def own_caches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A fixture: clients and producers of a test's workers are closed at its end, and copies of a
    task wait for each other only a short time."""
    # gc.freeze lasts for ever: fine for a worker, but not for the process of the tests.
    monkeypatch.setattr(gc, "freeze", lambda: None)
    for name in ("_clients", "_producers", "_held"):
        monkeypatch.setattr(clients, name, {})
    monkeypatch.setattr(clients, "_MOST_CLIENTS", 100)
    monkeypatch.setattr(task_module, "_PATIENCE_MS", 200)
    yield
    for client in clients._clients.values():
        client.close()


class Worker:
    """A worker with a cache of its own: its clients have a name of their own."""

    def __init__(self, servers: str, **options: str | int) -> None:
        """Options of the sink, with underscores for dots."""
        given = {
            "kafka.bootstrap.servers": servers,
            "kafka.client.id": f"worker-{next(_numbers)}",
            "exactlyOnce": "true",
            **{name.replace("_", "."): str(value) for name, value in options.items()},
        }
        self.options: Options = read_options(given)
        check_sink(self.options, given)

    def task(self, batch_id: int, run_id: str = RUN_1, *, index: int = 0, attempt: int = 0) -> Task:
        """A task of a stream."""
        assert self.options.exactly_once is not None
        ids = TaskIds(QUERY, batch_id, index, attempt, 99)
        return task_of(self.options.exactly_once, ids, run_id)

    def write(
        self,
        batch_id: int,
        *values: str,
        run_id: str = RUN_1,
        index: int = 0,
        attempt: int = 0,
        batches: Iterable[pa.RecordBatch] | None = None,
    ) -> TaskResult:
        """Run an attempt of a stream's task."""
        task = self.task(batch_id, run_id, index=index, attempt=attempt)
        ids = TaskIds(QUERY, batch_id, index, attempt, 99)
        given = ([rows(*values)] if values else []) if batches is None else batches
        return write_once(self.options, task, ids, given)

    def end_transaction(self, written: TaskResult, *, commit: bool = True) -> TaskProgress:
        """End a transaction that was left open, as the driver does."""
        assert written.progress.opened is not None
        end_transaction(client_for(self.options.client), written.progress.opened, commit=commit)
        return written.progress

    def write_and_end(self, batch_id: int, *values: str, run_id: str = RUN_1) -> TaskProgress:
        """The first batch of a run, of one task."""
        return self.end_transaction(self.write(batch_id, *values, run_id=run_id))

    def write_batch(self, uuid: str, *values: str, attempt: int = 0) -> TaskResult:
        """Run an attempt of a batch write's task."""
        assert self.options.exactly_once is not None
        exactly_once = self.options.exactly_once._replace(micro_batch=MicroBatch(uuid, 0, uuid))
        ids = TaskIds(None, None, 0, attempt, 99)
        return write_once(self.options, task_of(exactly_once, ids, None), ids, [rows(*values)])


def then(*steps: object) -> Iterator[pa.RecordBatch]:
    """Yield rows one after the other; call each callable step in its turn."""
    for step in steps:
        if isinstance(step, pa.RecordBatch):
            yield step
        else:
            assert callable(step)
            step()


class Died(BaseException):
    """A worker was killed."""


def die() -> None:
    """End a worker at once, without closing anything."""
    raise Died
