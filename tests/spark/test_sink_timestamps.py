"""The records' timestamps of klog's sink: the option timestampColumn."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from pyspark_klog.client.admin.topics import NewTopic
from tests.support.repo.documents import ROOT
from tests.support.spark import ready_python
from tests.support.spark.home import compiled_home
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OLD_MS = 1_500_000_000_123


def _save(frame: "DataFrame", topics: Topics, **options: Any) -> None:
    frame.write.format("klog").options(**topics.options(**options)).mode("append").save()


def _start(frame: "DataFrame", topics: Topics, checkpoint: Path, **options: Any) -> None:
    writer = frame.writeStream.format("klog").option("checkpointLocation", str(checkpoint))
    run(writer.options(**topics.options(**options)).trigger(availableNow=True).start())


def _rows(topics: Topics, topic: str, *columns: str) -> list[tuple[Any, ...]]:
    frame = topics.batch(subscribe=topic).selectExpr(*columns)
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.mark.parity(
    "beyond: 7 timestamp column", "own option: timestampColumn", differs="timestamp-column"
)
def test_a_copy_keeps_the_records_timestamps(topics: Topics, tmp_path: Path) -> None:
    source, batch, stream = topics.create(1), topics.create(1), topics.create(1)
    topics.put(source, [(b"k", b"a"), (None, b"b")], at_ms=OLD_MS)
    expected = _rows(topics, source, "value", "timestamp")
    assert expected[0][1].replace(tzinfo=UTC) == datetime(
        2017, 7, 14, 2, 40, 0, 123_000, tzinfo=UTC
    )
    frame = topics.batch(subscribe=source).drop("topic")
    _save(frame, topics, topic=batch, timestampColumn="timestamp")
    assert _rows(topics, batch, "value", "timestamp") == expected
    frame = topics.stream(subscribe=source, startingOffsets="earliest")
    frame = frame.withColumnRenamed("timestamp", "event time")
    _start(frame, topics, tmp_path, topic=stream, timestampColumn="event time")
    assert _rows(topics, stream, "value", "timestamp") == expected


@pytest.mark.parity("own option: timestampColumn")
def test_a_null_is_the_time_of_writing(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create(1)
    sql = """
        SELECT 'then' AS value, timestamp'2020-02-29 12:00:00.123456' AS at
        UNION ALL SELECT 'now', NULL
    """
    _save(spark.sql(sql).coalesce(1), topics, topic=topic, timestampColumn="at")
    found = _rows(
        topics,
        topic,
        "string(value)",
        "timestamp = timestamp'2020-02-29 12:00:00.123' AS is_then",
        "timestamp BETWEEN now() - INTERVAL 1 HOUR AND now() + INTERVAL 1 HOUR AS is_now",
    )
    assert found == [("now", False, True), ("then", True, False)]


@pytest.mark.parity("own option: timestampColumn")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("'x' AS at", "column at, which is string; expected timestamp: cast it"),
        ("timestamp_ntz'2020-01-01' AS at", "which is timestamp_ntz; expected timestamp: cast it"),
        ("now() AS other", r"column at, which is missing; expected it among \['value', 'other'\]"),
    ],
)
def test_another_type_or_no_column_is_refused(
    spark: "SparkSession", topics: Topics, value: str, text: str
) -> None:
    with pytest.raises(AnalysisException, match=text):
        _save(spark.sql(f"SELECT 'v' AS value, {value}"), topics, topic="t", timestampColumn="at")


@pytest.mark.parametrize("zone", ["UTC+01:00", "GMT+8"])
def test_a_time_before_1970_is_one_sentence_in_every_session_time_zone(
    spark: "SparkSession", topics: Topics, zone: str
) -> None:
    topic, dead = topics.create(1), topics.create(1)
    before = spark.conf.get("spark.sql.session.timeZone")
    sql = "SELECT string(id) AS value, timestamp_seconds(id * 9 - 9) AS at FROM range(2)"
    try:
        spark.conf.set("spark.sql.session.timeZone", zone)
        with pytest.raises(PySparkException) as caught:
            _save(spark.sql(sql), topics, topic=topic, timestampColumn="at")
        letters = {"topic": topic, "timestampColumn": "at", "deadLetterTopic": dead}
        _save(spark.sql(sql), topics, **letters)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    text = "column at is 1969-12-31 23:59:51+00:00 in a row; a record's timestamp cannot be before"
    assert text in str(caught.value)
    assert _rows(topics, dead, "string(value)") == [("0",)]
    # The first write may have written its other task's row.
    assert {("1", 0)} == set(_rows(topics, topic, "string(value)", "unix_millis(timestamp)"))


JOB = """
import sys
from pyspark.sql import SparkSession
import pyspark_klog

servers, source, target, old, folder = sys.argv[1:]
options = {"kafka.bootstrap.servers": servers}
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
rows = spark.readStream.format("klog").options(**options).option("subscribe", source)
rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 1).load()


def say(what):
    print("---", what, file=sys.stderr, flush=True)


def copy(name, goes_on=False, **given):
    say(name)
    writer = rows.drop("topic").writeStream.option("checkpointLocation", f"{folder}/{name}")
    if name.startswith("each"):
        writer = writer.foreachBatch(pyspark_klog.batch_writer(**options, **given))
    else:
        writer = writer.format("klog").options(**options, **given)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    count = 1 if goes_on else 2
    assert len([p for p in query.recentProgress if p.numInputRows]) == count, query.recentProgress


copy("stream", topic=target)
copy("each", topic=target)
copy("stream-old", topic=old, timestampColumn="timestamp")
say("batch")
batch = spark.read.format("klog").options(**options).option("subscribe", source).load()
batch = batch.drop("topic").write.format("klog").options(**options).mode("append")
batch.option("topic", target).save()
say("batch-old")
batch.option("topic", old).option("timestampColumn", "timestamp").save()
say("more")
more = spark.sql("SELECT 'more' AS value").write.format("klog").options(**options)
more.option("topic", source).mode("append").save()
copy("stream", goes_on=True, topic=target)
say("end")
spark.stop()
"""


@pytest.mark.timeout(600)
@pytest.mark.parity("own option: timestampColumn", "sink: column timestamp")
def test_the_driver_logs_an_ignored_column_and_old_records_once(
    topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create(1), topics.create(1)
    topics.put(source, [(None, b"%d" % n) for n in range(2)], at_ms=OLD_MS)
    old = f"{source}-old"
    topics.admin.create_topics([NewTopic(old, 1, 1, {"retention.ms": "604800000"})])
    with ready_python.forked_processes():
        done = subprocess.run(
            [sys.executable, "-c", JOB, topics.servers, source, target, old, str(tmp_path)],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "broker")]),
                "SPARK_HOME": str(compiled_home()),  # only quicker
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4_000:]
    # Spark passes the lines of its Python processes on, and may print some after a later marker.
    lines = [line for line in done.stderr.splitlines() if "logger=pyspark_klog." in line]
    ignored = [line for line in lines if "column timestamp is ignored" in line]
    # The stream, its second run, the foreachBatch and the batch.
    assert len(ignored) == 4, done.stderr
    assert all("level=INFO" in line and "timestampColumn=timestamp" in line for line in ignored)
    for what in ("micro-batch 0", "the batch"):
        (warning,) = (line for line in lines if f"oldest record of {what} in topic={old} " in line)
        assert "level=WARNING" in warning
        assert "keeps records for 7.0 days (retention.ms=604800000)" in warning
    assert len(lines) == 6, done.stderr
