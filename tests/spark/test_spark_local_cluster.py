"""local-cluster[2,1,1024]: executors are processes of their own, with workers of their own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.support import spark_session as sessions
from tests.support.eventually import eventually
from tests.support.spark_topics import Topics, run

EXECUTORS = 2


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Two executors, before anybody asks for the session of this process."""
    home = tmp_path_factory.mktemp("spark-home")
    # Executors are started with the scripts of Spark's home, and leave their logs there.
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
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
