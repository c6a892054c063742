"""The batch source: rows as they were written, ranges as they were asked for, clear refusals."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chispa.dataframe_comparer import assert_df_equality
from pyspark.errors import AnalysisException, PySparkException

from pyspark_klog import register
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.oldest

_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int"
)
_HEADERS = "headers array<struct<key:string,value:binary>>"


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC).replace(tzinfo=None)


def _offsets(topic: str, *offsets: int) -> str:
    return json.dumps({topic: {str(number): offset for number, offset in enumerate(offsets)}})


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


def test_ranges(topics: Topics) -> None:
    topic = topics.create(2)
    topics.put_numbers(topic, range(10))
    topics.put_numbers(topic, range(100, 110), 1)
    every = {*range(10), *range(100, 110)}

    def read_numbers(**options: object) -> set[int]:
        rows = topics.batch(**options).selectExpr("int(string(value)) as n").collect()
        return {row.n for row in rows}

    assert read_numbers(subscribe=topic) == every
    assert read_numbers(assign=f'{{"{topic}":[1]}}') == set(range(100, 110))
    start, end = _offsets(topic, 3, -2), _offsets(topic, 5, -1)
    assert read_numbers(subscribe=topic, startingOffsets=start, endingOffsets=end) == {
        3,
        4,
        *range(100, 110),
    }
    same = _offsets(topic, 5, 10)
    assert read_numbers(subscribe=topic, startingOffsets=same, endingOffsets=same) == set()


def test_two_topics_one_of_them_empty(topics: Topics) -> None:
    full, empty = topics.create(2), topics.create(2)
    topics.put_numbers(full, range(5))
    frame = topics.batch(subscribe=f"{full}, {empty}")
    assert frame.count() == 5
    assert topics.batch(subscribe=empty).count() == 0


def test_each_relation_gets_its_own_rows(topics: Topics) -> None:
    one, two = topics.create(), topics.create()
    topics.put(one, [(b"a", b"1"), (b"b", b"2")])
    topics.put(two, [(b"a", b"10")])
    left = topics.batch(subscribe=one).selectExpr("string(key) as k", "string(value) as v")
    right = topics.batch(subscribe=two).selectExpr("string(key) as k", "string(value) as w")
    assert [tuple(r) for r in left.join(right, "k").collect()] == [("a", "1", "10")]
    assert left.union(left).count() == 4
    assert left.join(left.withColumnRenamed("v", "w"), "k").count() == 2


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


def test_registration_by_hand_does_no_harm(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create()
    topics.put_numbers(topic, [7])
    register(spark)
    assert topics.numbers(topic) == [7]


def test_the_end_is_that_of_the_first_action(topics: Topics) -> None:
    topic = topics.create()
    topics.put_numbers(topic, range(3))
    before = topics.batch(subscribe=topic)
    topics.put_numbers(topic, range(3, 5))
    assert before.count() == 5


@pytest.mark.parametrize("fail", [True, False])
def test_offsets_out_of_range(topics: Topics, fail: bool) -> None:
    topic = topics.create()
    topics.put_numbers(topic, range(5))
    frame = topics.batch(
        subscribe=topic,
        startingOffsets=_offsets(topic, 50),
        endingOffsets=_offsets(topic, 60),
        failOnDataLoss=fail,
    )
    if not fail:
        assert frame.count() == 0
        return
    with pytest.raises(PySparkException, match=r"offset 50 .* 0 to 5 are there.*failOnDataLoss"):
        frame.count()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "none of the options assign, subscribe, subscribePattern is given"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "options assign and subscribe are given"),
        ({"subscribe": "a", "minPartitions": 0}, "option minPartitions is '0'; expected a whole"),
        ({"subscribe": "a", "startingOffset": "latest"}, r"did you mean startingOffsets\?"),
        ({"subscribe": "a", "kafka__acks": "2"}, r"kafka\.acks is '2'"),
    ],
)
def test_what_is_refused_at_load(topics: Topics, options: dict[str, object], words: str) -> None:
    with pytest.raises(AnalysisException, match=words) as caught:
        topics.batch(**options)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "absent"}, "TopicMissing: topic absent does not exist"),
        ({"assign": '{"made":[0,7]}'}, "assign names partitions that do not exist: made-7"),
        ({"subscribe": "made", "startingOffsets": "latest"}, "a batch cannot begin at the end"),
        ({"subscribe": "made", "startingOffsets": '{"made":{"1":0}}'}, "without made-0 and with"),
        ({"subscribe": "made", "startingOffsets": '{"made":{"0":5}}'}, "made-0 from 5 to 0"),
    ],
)
def test_what_is_refused_when_the_query_runs(
    topics: Topics, options: dict[str, object], words: str
) -> None:
    if "made" not in topics.admin.list_topics():
        topics.create(1, "made")
    frame = topics.batch(fetchOffset__retryIntervalMs=10, **options)
    with pytest.raises(AnalysisException, match=words) as caught:
        frame.count()
    assert "Traceback" not in str(caught.value)


def test_a_schema_of_the_users_is_refused(spark: "SparkSession", topics: Topics) -> None:
    reader = spark.read.format("klog").schema("value string")
    with pytest.raises(AnalysisException, match="klog's is fixed: leave out schema"):
        reader.options(**topics.options(subscribe="made")).load().count()


def test_no_servers(spark: "SparkSession") -> None:
    with pytest.raises(AnalysisException, match=r"kafka\.bootstrap\.servers is missing"):
        spark.read.format("klog").option("subscribe", "t").load()


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_arrow_batches_of_0_or_below_is_no_limit(
    spark: "SparkSession", topics: Topics, tmp_path: Path, limit: int
) -> None:
    topic, copy = topics.create(), topics.create()
    topics.put_numbers(topic, range(10))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", limit)
    try:
        assert topics.numbers(topic) == [*range(10)]
        stream = topics.stream(subscribe=topic, startingOffsets="earliest").writeStream
        checkpoint = stream.option("checkpointLocation", str(tmp_path))
        sink = checkpoint.format("klog").options(**topics.options(topic=copy))
        run(sink.trigger(availableNow=True).start())
        frame = topics.batch(subscribe=topic)
        frame.write.format("klog").options(**topics.options(topic=copy)).mode("append").save()
        assert topics.numbers(copy) == sorted([*range(10)] * 2)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.mark.parametrize("zone", ["UTC+01:00", "GMT+8", "America/Los_Angeles"])
def test_times_before_1970_are_read_and_filtered_in_each_time_zone_of_spark(
    spark: "SparkSession", topics: Topics, zone: str
) -> None:
    topic = topics.create()
    topics.put(topic, [(None, b"without a time")], at_ms=-1)
    topics.put(topic, [(None, b"later")], at_ms=1_700_000_000_000)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = topics.batch(subscribe=topic)
        before = frame.where("timestamp < timestamp_micros(0)").collect()
        assert [bytes(row.value) for row in before] == [b"without a time"]
        after = frame.where("timestamp >= timestamp_micros(0)").collect()
        assert [bytes(row.value) for row in after] == [b"later"]
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
