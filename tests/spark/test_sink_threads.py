"""Writes from Python threads other than the main one."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import pyspark_klog
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _in_new_thread(action: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(action).result()


def _values(topics: Topics, topic: str) -> list[str]:
    rows = topics.batch(subscribe=topic).selectExpr("string(value) AS value").collect()
    return sorted(row["value"] for row in rows)


def _save(frame: "DataFrame", topics: Topics, topic: str) -> None:
    frame.write.format("klog").options(**topics.options(topic=topic)).mode("append").save()


@pytest.mark.oldest
@pytest.mark.parity("sink: batch_writer")
def test_a_batch_writer_writes_in_a_new_thread(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create(1)
    frame = spark.sql("SELECT 'v' AS value")
    writer = pyspark_klog.batch_writer(**topics.options(topic=topic))
    _in_new_thread(lambda: writer(frame, 0))
    assert _values(topics, topic) == ["v"]


@pytest.mark.parity("sink: batch_writer")
def test_a_batch_writer_writes_in_threads_of_foreach_batch(topics: Topics, tmp_path: Path) -> None:
    source, left, right = (topics.create(1) for _ in range(3))
    topics.put_numbers(source, [1, 2])
    writers = [pyspark_klog.batch_writer(**topics.options(topic=name)) for name in (left, right)]

    def write_both(frame: "DataFrame", batch_id: int) -> None:
        with ThreadPoolExecutor(2) as pool:
            for written in [pool.submit(writer, frame, batch_id) for writer in writers]:
                written.result()

    frame = topics.stream(subscribe=source, startingOffsets="earliest").select("value")
    writer = frame.writeStream.foreachBatch(write_both).trigger(availableNow=True)
    run(writer.option("checkpointLocation", str(tmp_path)).start())
    assert _values(topics, left) == _values(topics, right) == ["1", "2"]


@pytest.mark.oldest
@pytest.mark.parity("cluster: register")
def test_register_lets_its_thread_write_and_start_streams(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    source, saved, streamed = (topics.create(1) for _ in range(3))
    topics.put_numbers(source, [1, 2])
    frame = spark.sql("SELECT 'v' AS value")

    def write() -> None:
        # If a release of Spark finds the source here, `register` and the pages need no word on
        # threads any more.
        with pytest.raises((PySparkException, Py4JJavaError), match="DATA_SOURCE_NOT_FOUND"):
            _save(frame, topics, saved)
        pyspark_klog.register(spark)
        _save(frame, topics, saved)
        stream = topics.stream(subscribe=source, startingOffsets="earliest").select("value")
        writer = stream.writeStream.format("klog").options(**topics.options(topic=streamed))
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        run(writer.start())

    _in_new_thread(write)
    assert (_values(topics, saved), _values(topics, streamed)) == (["v"], ["1", "2"])
