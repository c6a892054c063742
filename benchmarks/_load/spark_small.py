"""Streams with little to do: many small micro-batches, and none at all."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from pyspark.sql.streaming.query import StreamingQuery

from benchmarks._load.spark_ends import Ends
from benchmarks._load.spark_jobs import MICRO_RECORDS, SparkJob, SparkMeasured
from benchmarks._processes import (
    cpu_seconds,
    peak_resident_bytes,
    process_tree,
    tree_cpu_seconds,
)
from tests.support.eventually import eventually

_FIRST_BATCHES = 10
"""Micro-batches that do not count: processes start, and the JVM compiles."""
_SETTLE_S = 5.0
_IDLE_S = 10.0
_NEW_RECORDS = 10
_DEADLINE_S = 60.0
_BETWEEN_S = 0.37
"""The time between new records: no multiple of a query's own waits."""


def micro_batches(ends: Ends, folder: str, job: SparkJob) -> SparkMeasured:
    """Read a topic in micro-batches of MICRO_RECORDS, all of them after one start."""
    start = time.perf_counter()
    with TemporaryDirectory(dir=folder) as checkpoint:
        rows = ends.stream(job, a_batch=MICRO_RECORDS)
        if job.kind == "micro_topic":
            writer = ends.into(rows.select("key", "value"), job, job.to)
        else:
            writer = rows.writeStream.format("noop")
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        progress = query.recentProgress
    took = [each.durationMs for each in progress if each.numInputRows]
    records = sum(each.numInputRows for each in progress)
    seconds = time.perf_counter() - start
    counted = took[min(_FIRST_BATCHES, len(took) // 2) :]
    phases_ms = {name: median([each.get(name, 0) for each in counted]) for name in counted[0]}
    batch_ms = phases_ms.pop("triggerExecution")
    return SparkMeasured(seconds, records, batch_ms=batch_ms, phases_ms=phases_ms)


def idle(ends: Ends, folder: str, job: SparkJob) -> SparkMeasured:
    """Run a query without new records, and then with a few, one by one."""
    start = time.perf_counter()
    with TemporaryDirectory(dir=folder) as checkpoint:
        writer = ends.stream(job, start="latest").writeStream.format("noop")
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            with _records_into(job) as send:
                _send_until_read(query, send)
                time.sleep(_SETTLE_S)
                first = len(_with_rows(query))
                driver_cpu, jvm_cpu = _cores_used(_IDLE_S)
                waits_ms = []
                for number in range(_NEW_RECORDS):
                    time.sleep(_BETWEEN_S)
                    sent_at_s = send()
                    _wait_for(query, first + number + 1)
                    waits_ms.append((_planned_at_s(query) - sent_at_s) * 1000)
        finally:
            query.stop()
    return SparkMeasured(
        time.perf_counter() - start,
        job.records,
        driver_cpu=driver_cpu,
        jvm_cpu=jvm_cpu,
        pick_up_ms=max(0.0, *waits_ms),
    )


@contextmanager
def _records_into(job: SparkJob) -> "Iterator[_Sender]":
    from pyspark_klog.client.cluster.blocking_client import BlockingClient

    with BlockingClient({"bootstrap.servers": job.bootstrap_servers}) as client:
        yield _Sender(client, job.topic)


class _Sender:
    """Sends one record at each call; returns the time of day at the start of the call."""

    def __init__(self, client: object, topic: str) -> None:
        from pyspark_klog.client.cluster.blocking_client import BlockingClient
        from pyspark_klog.client.producer.producer import Producer

        assert isinstance(client, BlockingClient)
        self._producer = Producer(client)
        self._topic = topic
        self._producer.partition_count(topic)

    def __call__(self) -> float:
        from pyspark_klog.ids import TopicPartition
        from pyspark_klog.records.builder import BatchBuilder

        began_s = time.time()
        builder = BatchBuilder()
        builder.append(None, b"new", time.time_ns() // 1_000_000)
        self._producer.add(TopicPartition(self._topic, 0), bytearray(builder.build()), 1)
        self._producer.flush()
        return began_s


def _with_rows(query: StreamingQuery) -> list[object]:
    return [each for each in query.recentProgress if each.numInputRows]


def _send_until_read(query: StreamingQuery, send: "_Sender") -> None:
    """Send records until the query has read one: it ignores those from before its start."""

    def is_there() -> bool:
        send()
        return bool(_with_rows(query))

    eventually(is_there, _DEADLINE_S, "a micro-batch with a record")


def _wait_for(query: StreamingQuery, count: int) -> None:
    """Wait until ``count`` micro-batches had rows."""

    def is_there() -> bool:
        error = query.exception()
        if error is not None:
            raise AssertionError(str(error))
        return len(_with_rows(query)) >= count

    eventually(is_there, _DEADLINE_S, f"micro-batch {count} with a record")


def _planned_at_s(query: StreamingQuery) -> float:
    """When the last micro-batch with rows had found its end offsets, as time of day."""
    progress = [each for each in query.recentProgress if each.numInputRows][-1]
    began = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp()
    return began + progress.durationMs.get("latestOffset", 0) / 1000


def _cores_used(seconds: float) -> tuple[float, float]:
    """Cores that the driver's processes use for ``seconds``: all of them, and the JVM alone."""
    jvm = jvm_pid()
    before = tree_cpu_seconds(jvm), cpu_seconds(jvm)
    time.sleep(seconds)
    after = tree_cpu_seconds(jvm), cpu_seconds(jvm)
    return (after[0] - before[0]) / seconds, (after[1] - before[1]) / seconds


def jvm_pid() -> int:
    """The process id of the JVM below this process."""
    for pid in process_tree(os.getpid()):
        if Path(f"/proc/{pid}/exe").resolve().name == "java":
            return pid
    raise AssertionError("this driver has no JVM")


def python_peak_bytes() -> int:
    """The peak resident memory of any Python process of the JVM."""
    peaks = [0]
    for pid in process_tree(jvm_pid())[1:]:
        with suppress(OSError):  # the process may end meanwhile
            peaks.append(peak_resident_bytes(pid))
    return max(peaks)
