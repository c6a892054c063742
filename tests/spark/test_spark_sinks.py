"""Both sinks in short; test_parity_sink.py goes through the rows."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from tests.support.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _save(frame: "DataFrame", topics: Topics, mode: str = "append", **options: Any) -> None:
    frame.write.format("klog").options(**topics.options(**options)).mode(mode).save()


def _rows(topics: Topics, topic: str, *columns: str) -> list[tuple[Any, ...]]:
    frame = topics.batch(subscribe=topic, includeHeaders=True).selectExpr(*columns)
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.mark.oldest
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


@pytest.mark.oldest
def test_what_is_refused_before_a_row_is_written(spark: "SparkSession", topics: Topics) -> None:
    with pytest.raises(AnalysisException, match="column key is bigint; expected string") as caught:
        _save(spark.sql("SELECT 'v' AS value, 1L AS key"), topics, topic="t")
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
