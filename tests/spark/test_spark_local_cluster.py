"""local-cluster[2,1,1024]: executors are processes of their own, with workers of their own."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException

from tests.support.eventually import eventually
from tests.support.spark import session as sessions
from tests.support.spark.home import spark_home
from tests.support.spark.topics import Topics, run

EXECUTORS = 2


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Two executors, before anybody asks for the session of this process."""
    home = spark_home(tmp_path_factory.mktemp("spark-home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home))
        patch.setitem(sessions.OVERRIDES, "spark.master", f"local-cluster[{EXECUTORS},1,1024]")
        patch.setitem(sessions.OVERRIDES, "spark.executor.memory", "512m")
        spark = sessions.spark_session()
        status = spark.sparkContext._jsc.sc()
        eventually(
            lambda: status.getExecutorMemoryStatus().size() == 1 + EXECUTORS, 180, "the executors"
        )
        yield


@pytest.mark.parity("cluster: executors in other processes")
def test_tasks_run_in_both_executors() -> None:
    spark = sessions.spark_session()

    def daemons() -> set[int]:
        """The parents of the workers: each executor has one."""
        tasks = spark.sparkContext.parallelize(range(8), 8)
        return set(tasks.map(lambda _: os.getppid()).collect())

    eventually(lambda: len(daemons()) == EXECUTORS, 120, "tasks in both executors")


@pytest.mark.parity("cluster: executors in other processes")
def test_a_batch_is_read_and_written(topics: Topics) -> None:
    source, target = topics.create(4), topics.create(4)
    for partition in range(4):
        topics.put_numbers(source, [10 * partition + n for n in range(3)], partition)
    frame = topics.batch(subscribe=source)
    frame.select("key", "value", "partition").write.format("klog").mode("append").options(
        **topics.options(topic=target)
    ).save()
    assert topics.numbers(target) == [10 * p + n for p in range(4) for n in range(3)]
    rows = topics.batch(subscribe=target).groupBy("partition").count().orderBy("partition")
    assert [tuple(row) for row in rows.collect()] == [(partition, 3) for partition in range(4)]


def test_a_task_that_spark_repeats_reads_its_range_once_and_writes_at_least_once(
    topics: Topics,
) -> None:
    def fail_once_at_the_end(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows with their attempt's number; the first one of partition 1 fails behind them."""
        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        for batch in batches:
            values = [b"%s/%d" % (value, attempt) for value in batch.column("value").to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
        if context.partitionId() == 1 and attempt == 0:
            raise RuntimeError("this attempt fails for the test")

    source, target = topics.create(2), topics.create(1)
    for partition in range(2):
        topics.put_numbers(source, [10 * partition + n for n in range(3)], partition)
    frame = topics.batch(subscribe=source).select("value")
    expected = [b"0/0", b"1/0", b"2/0", b"10/1", b"11/1", b"12/1"]
    attempted = frame.mapInArrow(fail_once_at_the_end, "value binary")
    assert sorted(bytes(row.value) for row in attempted.collect()) == sorted(expected)
    attempted.write.format("klog").mode("append").options(**topics.options(topic=target)).save()
    written = [bytes(row.value) for row in topics.batch(subscribe=target).collect()]
    assert set(written) - {b"10/0", b"11/0", b"12/0"} == set(expected)
    assert all(written.count(value) == 1 for value in expected)


def test_every_executor_refuses_the_plan_of_an_earlier_query(topics: Topics) -> None:
    """An executor that did not run the earlier query refuses it, too."""
    topic = topics.create(1)
    topics.put_numbers(topic, range(3))
    frame = topics.batch(subscribe=topic)
    assert frame.count() == 3
    topics.put_numbers(topic, range(1))
    for _ in range(2 * EXECUTORS):
        with pytest.raises(PySparkException, match=r"call load\(\) again"):
            frame.count()


@pytest.mark.parity("cluster: executors in other processes")
def test_a_stream_is_read_and_written_and_goes_on(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(2), topics.create(2)
    frame = topics.stream(subscribe=source, startingOffsets="earliest").select("key", "value")
    writer = frame.writeStream.format("klog").options(**topics.options(topic=target))
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    for begin in (0, 5):
        topics.put_numbers(source, range(begin, begin + 3), 0)
        topics.put_numbers(source, range(begin + 3, begin + 5), 1)
        run(writer.start(), 240)
        assert topics.numbers(target) == list(range(begin + 5))
