"""Both sinks in short, on every release of Spark; test_parity_sink.py goes through the rows."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from pyspark_klog.records.partitioner import partition_for_key
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.oldest


def _save(frame: "DataFrame", topics: Topics, mode: str = "append", **options: Any) -> None:
    frame.write.format("klog").options(**topics.options(**options)).mode(mode).save()


def _rows(topics: Topics, topic: str, *columns: str) -> list[tuple[Any, ...]]:
    frame = topics.batch(subscribe=topic, includeHeaders=True).selectExpr(*columns)
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def test_keys_decide_the_partition_as_in_kafka(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create(3)
    frame = spark.range(50).selectExpr("string(id) as key", "string(id) as value", "id as other")
    _save(frame, topics, topic=f" {topic} ")
    assert _rows(topics, topic, "string(key)", "string(value)", "partition") == sorted(
        ((str(n), str(n), partition_for_key(b"%d" % n, 3)) for n in range(50)), key=repr
    )


def test_all_columns(spark: "SparkSession", topics: Topics) -> None:
    one, two = topics.create(3), topics.create(3)
    frame = spark.createDataFrame(
        [
            (one, 2, bytearray(b"k"), bytearray(b"v"), [("h", bytearray(b"1")), ("n", None)]),
            (two, None, None, None, None),
            (two, 1, bytearray(b""), bytearray(b""), []),
        ],
        "topic string, partition int, key binary, value binary, "
        "headers array<struct<key:string,value:binary>>",
    )
    _save(frame, topics)
    assert _rows(topics, one, "partition", "key", "value", "headers") == [
        (2, bytearray(b"k"), bytearray(b"v"), [("h", bytearray(b"1")), ("n", None)])
    ]
    assert _rows(topics, two, "key", "value", "coalesce(size(headers), 0)") == [
        (None, None, 0),
        (bytearray(b""), bytearray(b""), 0),
    ]


def test_a_row_larger_than_a_batch_gets_a_batch_of_its_own(
    spark: "SparkSession", topics: Topics
) -> None:
    topic = topics.create(1)
    frame = spark.range(3).selectExpr("repeat('v', 1000 + 9000 * int(id)) as value")
    _save(frame, topics, topic=topic, kafka__batch__size=2_000)
    assert [row[0] for row in _rows(topics, topic, "length(value)")] == [1_000, 10_000, 19_000]
    with pytest.raises(PySparkException, match=r"larger than 5000 bytes.*max\.request\.size"):
        _save(frame, topics, topic=topic, kafka__max__request__size=5_000)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("1 AS x", {"topic": "t"}, "column value is missing; expected it among"),
        ("1 AS value", {"topic": "t"}, "column value is int; expected string or binary"),
        ("'v' AS value, 1L AS key", {"topic": "t"}, "column key is bigint"),
        ("'v' AS value, '0' AS partition", {"topic": "t"}, "column partition is string"),
        ("'v' AS value, 1 AS topic", {}, "column topic is int"),
        ("'v' AS value, map('a', 'b') AS headers", {"topic": "t"}, "column headers is map<"),
        ("'v' AS value", {}, "no topic is named; expected option topic, or a column topic"),
        ("'v' AS value", {"topic": "t", "kafka__key__serializer": "x"}, "string or binary: cast"),
    ],
)
def test_what_is_refused_before_a_row_is_written(
    spark: "SparkSession", topics: Topics, columns: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(AnalysisException, match=words) as caught:
        _save(spark.sql(f"SELECT {columns}"), topics, **options)
    assert "Traceback" not in str(caught.value)


def test_the_rows_of_a_job_that_fails_are_those_of_its_good_tasks_at_most(
    spark: "SparkSession", topics: Topics
) -> None:
    topic = topics.create(1)
    frame = spark.range(4, numPartitions=2).selectExpr(
        "string(id) as value", "if(id = 3, raise_error('boom'), 0) as other"
    )
    with pytest.raises(PySparkException, match="boom"):
        _save(frame.where("other = 0"), topics, topic=topic)
    assert set(topics.numbers(topic)) <= {0, 1, 2}


# --- streams -------------------------------------------------------------------------------------
def _copy(topics: Topics, source: str, checkpoint: Path, **options: Any) -> Any:
    frame = topics.stream(subscribe=source, startingOffsets="earliest").select("value")
    writer = frame.writeStream.format("klog").option("checkpointLocation", str(checkpoint))
    return writer.options(**topics.options(**options)).trigger(availableNow=True).start()


def test_a_stream_copies_and_reports_its_rows(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(2), topics.create(2)
    topics.put_numbers(source, range(20))
    query = run(_copy(topics, source, tmp_path, topic=target))
    assert query.lastProgress.sink.numOutputRows == 20
    topics.put_numbers(source, range(20, 25), 1)
    run(_copy(topics, source, tmp_path, topic=target))
    assert topics.numbers(target) == list(range(25))


def test_complete_mode_appends_every_result(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(1), topics.create(1)
    topics.put_numbers(source, [1, 2, 1])
    for more in ([], [2, 2]):
        if more:
            topics.put_numbers(source, more)
        frame = topics.stream(subscribe=source, startingOffsets="earliest")
        counts = frame.groupBy("value").count()
        writer = counts.selectExpr("value as key", "string(count) as value").writeStream
        writer = (
            writer.format("klog").outputMode("complete").options(**topics.options(topic=target))
        )
        run(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start())
    last = _rows(topics, target, "offset", "string(key)", "string(value)")
    assert {key: value for _, key, value in sorted(last)} == {"1": "2", "2": "3"}
    assert len(last) == 4
