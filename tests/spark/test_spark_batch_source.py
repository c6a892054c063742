"""The batch source in short; test_parity_source_*.py goes through its options and behaviour."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chispa.dataframe_comparer import assert_df_equality
from pyspark.errors import AnalysisException
from pyspark.sql.functions import lit

from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int"
)
_HEADERS = "headers array<struct<key:string,value:binary>>"


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC).replace(tzinfo=None)


@pytest.mark.oldest
def test_rows_are_what_was_written(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create(2)
    topics.put(topic, [(b"k", b"v"), (None, b""), (b"", None)], 1)
    header = [("h", bytearray(b"1"))]
    expected = spark.createDataFrame(
        [
            (bytearray(b"k"), bytearray(b"v"), topic, 1, 0, _at(1_000), 0, header),
            (None, bytearray(b""), topic, 1, 1, _at(1_001), 0, header),
            (bytearray(b""), None, topic, 1, 2, _at(1_002), 0, header),
        ],
        f"{_SCHEMA}, {_HEADERS}",
    )
    found = topics.batch(subscribe=topic, includeHeaders=True)
    assert_df_equality(found, expected, ignore_nullable=True)
    assert [f.nullable for f in found.schema] == [True] * 8
    assert topics.batch(subscribe=topic).columns == found.columns[:-1]


@pytest.mark.oldest
@pytest.mark.parity("beyond: 1 no jar")
def test_sql_finds_the_format_without_registration(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create()
    topics.put_numbers(topic, range(4))
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW numbers USING klog OPTIONS "
        f"('kafka.bootstrap.servers' '{topics.servers}', 'subscribe' '{topic}')"
    )
    [row] = spark.sql("SELECT sum(int(string(value))) AS total FROM numbers").collect()
    assert row.total == 6


def test_a_schema_of_the_users_is_refused(spark: "SparkSession", topics: Topics) -> None:
    reader = spark.read.format("klog").schema("value string")
    with pytest.raises(AnalysisException, match="klog's is fixed: leave out schema"):
        reader.options(**topics.options(subscribe="made")).load().count()


@pytest.mark.oldest
def test_refusals_are_one_line(spark: "SparkSession", topics: Topics) -> None:
    with pytest.raises(AnalysisException, match=r"kafka\.bootstrap\.servers is missing") as at_load:
        spark.read.format("klog").option("subscribe", "t").load()
    absent = topics.batch(subscribe="absent", fetchOffset__retryIntervalMs=10)
    with pytest.raises(AnalysisException, match="topic absent does not exist") as when_planned:
        absent.collect()
    assert "Traceback" not in f"{at_load.value} {when_planned.value}"


@pytest.mark.oldest
def test_a_limit_of_arrow_batches_of_0_or_below_is_no_limit(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    topic, copy = topics.create(), topics.create()
    topics.put_numbers(topic, range(10))
    limit = "spark.sql.execution.arrow.maxRecordsPerBatch"
    try:
        spark.conf.set(limit, -1)
        stream = topics.stream(subscribe=topic, startingOffsets="earliest").writeStream
        checkpoint = stream.option("checkpointLocation", str(tmp_path))
        sink = checkpoint.format("klog").options(**topics.options(topic=copy))
        run(sink.trigger(availableNow=True).start())
        spark.conf.set(limit, 0)
        frame = topics.batch(subscribe=topic)
        frame.write.format("klog").options(**topics.options(topic=copy)).mode("append").save()
        assert topics.numbers(copy) == sorted([*range(10)] * 2)
    finally:
        spark.conf.unset(limit)


@pytest.mark.oldest
def test_times_before_1970_are_read_and_filtered_in_each_time_zone_of_spark(
    spark: "SparkSession", topics: Topics
) -> None:
    topic = topics.create()
    topics.put(topic, [(None, b"without a time")], at_ms=-1)
    topics.put(topic, [(None, b"later")], at_ms=1_700_000_000_000)
    try:
        for zone in ("UTC+01:00", "GMT+8", "America/Los_Angeles"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            frame = topics.batch(subscribe=topic)
            before = frame.where("timestamp < timestamp_micros(0)")
            after = frame.where("timestamp >= timestamp_micros(0)")
            rows = before.withColumn("is_before", lit(True)).union(
                after.withColumn("is_before", lit(False))
            )
            assert sorted((row.is_before, bytes(row.value)) for row in rows.collect()) == [
                (False, b"later"),
                (True, b"without a time"),
            ]
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
