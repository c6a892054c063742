"""Features of klog's sink beyond Spark's: record times, dead letters, a writer for foreachBatch;
and the texts with which it fails."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

import pyspark_klog
from pyspark_klog.client.admin.topics import NewTopic
from tests.support.spark.row_sink import RowSink
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def _save(frame: "DataFrame", topics: Topics, **options: Any) -> None:
    frame.write.format("klog").options(**topics.options(**options)).mode("append").save()


def _start(
    frame: "DataFrame", topics: Topics, checkpoint: Path, sink: str = "klog", **options: Any
) -> "StreamingQuery":
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(checkpoint))
    return run(writer.options(**topics.options(**options)).trigger(availableNow=True).start())


def _rows(topics: Topics, topic: str, *columns: str) -> list[tuple[Any, ...]]:
    frame = topics.batch(subscribe=topic, includeHeaders=True).selectExpr(*columns)
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def _letters(topics: Topics, topic: str) -> dict[str, dict[str, str | None]]:
    """Return the headers of dead letters, by value (its first ten letters)."""
    rows = _rows(topics, topic, "string(value)", "headers")
    prefix = "klog.deadLetter."
    return {
        value[:10]: {
            h.key.removeprefix(prefix): None if h.value is None else bytes(h.value).decode()
            for h in headers
        }
        for value, headers in rows
    }


def _create(topics: Topics, name: str, **configs: str) -> str:
    settings = {"retention.ms": "-1"} | {k.replace("_", "."): v for k, v in configs.items()}
    topics.admin.create_topics([NewTopic(name, 2, 1, settings)])
    return name


@pytest.fixture(scope="module")
def small(topics: Topics) -> str:
    """A topic that takes batches of 2,000 bytes."""
    return _create(topics, "takes-little", max_message_bytes="2000")


# --- item 8 --------------------------------------------------------------------------------------
@pytest.mark.parity("beyond: 8 dead letters", "own option: deadLetterTopic")
def test_rows_that_cannot_be_written_become_dead_letters(
    spark: "SparkSession", topics: Topics, small: str
) -> None:
    good, dead = topics.create(2), topics.create(2)
    compacted = _create(topics, "takes-keys", cleanup_policy="compact")
    sql = f"""
        SELECT 'null' AS value, NULL AS topic, 0 AS partition, 'k' AS key, NULL AS headers
        UNION ALL SELECT 'bad', '{good}', 7, 'k', array(named_struct('key', 'h', 'value', X'31'))
        UNION ALL SELECT 'name', 'no/name', NULL, 'k', NULL
        UNION ALL SELECT 'absent', 'no-such-topic', NULL, 'k', NULL
        UNION ALL SELECT repeat('e', 3000), '{small}', NULL, 'k', NULL
        UNION ALL SELECT 'no key', '{compacted}', 1, NULL, NULL
        UNION ALL SELECT 'key', '{compacted}', 1, 'k', NULL
        UNION ALL SELECT string(id), '{small}', int(id % 2), 'k', NULL FROM range(1000)
        UNION ALL SELECT string(id), '{good}', int(id % 2), 'k', NULL FROM range(1000)
    """
    frame = spark.sql(sql).coalesce(1)
    _save(frame, topics, deadLetterTopic=dead, kafka__max__block__ms=1_500)
    assert topics.numbers(good) == list(range(1_000))
    assert topics.numbers(small) == list(range(1_000))
    assert _rows(topics, compacted, "string(value)") == [("key",)]
    found = _letters(topics, dead)
    assert {v: (h["reason"], h["topic"], h["partition"]) for v, h in found.items()} == {
        "null": ("NULL_TOPIC", None, "0"),
        "bad": ("BAD_PARTITION", good, "7"),
        "name": ("INVALID_TOPIC", "no/name", None),
        "absent": ("UNKNOWN_TOPIC", "no-such-topic", None),
        "eeeeeeeeee": ("TOO_LARGE", small, found["eeeeeeeeee"]["partition"]),
        "no key": ("REFUSED", compacted, "1"),
    }
    assert found["eeeeeeeeee"]["partition"] in ("0", "1")
    assert found["bad"]["h"] == "1"
    assert (found["bad"]["query"], found["bad"]["batch"], found["bad"]["task"]) == (
        *(None, None),
        "0.0",
    )
    assert "is larger than the topic takes (max.message.bytes)" in str(found["eeeeeeeeee"]["error"])
    assert "a compacted topic takes no record without a key" in str(found["no key"]["error"])


@pytest.mark.parity("beyond: 8 dead letters")
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_batches_that_are_too_large_are_split_in_order(
    spark: "SparkSession", topics: Topics, small: str, codec: str
) -> None:
    value = "format_string('%05d', id) || repeat('v', 55)"
    sql = f"SELECT {value} AS value, 0 AS partition FROM range(4000)"
    before = topics.batch(subscribe=small).where("partition = 0").count()
    frame = spark.sql(sql).coalesce(1)
    _save(frame, topics, topic=small, kafka__compression__type=codec)
    found = topics.batch(subscribe=small).where(f"partition = 0 AND offset >= {before}")
    values = [
        int(row[0])
        for row in found.orderBy("offset").selectExpr("left(string(value), 5)").collect()
    ]
    assert values == list(range(4_000))


@pytest.mark.parity("own option: deadLetterMax")
def test_more_dead_letters_than_allowed_fail_the_batch(
    spark: "SparkSession", topics: Topics
) -> None:
    topic, dead = topics.create(1), topics.create(1)
    frame = spark.sql("SELECT 'v' AS value, 9 AS partition FROM range(0, 10, 1, 2)")
    _save(frame, topics, topic=topic, deadLetterTopic=dead, deadLetterMax=10)
    # A task has five; all tasks together have more than is allowed.
    for most, text in (
        (7, "10 rows could not be written, and deadLetterMax is 7: BAD_PARTITION 10"),
        (4, "5 rows could not be written, and deadLetterMax is 4: column partition is 9 in a row"),
    ):
        with pytest.raises(PySparkException, match=text) as caught:
            _save(frame, topics, topic=topic, deadLetterTopic=dead, deadLetterMax=most)
        assert "Traceback" not in str(caught.value)


@pytest.mark.parity("beyond: 8 dead letters")
def test_a_dead_letter_that_cannot_be_written_fails_the_batch(
    spark: "SparkSession", topics: Topics, small: str
) -> None:
    topic = topics.create(1)
    frame = spark.sql("SELECT repeat('v', 3000) AS value, 9 AS partition")
    words = r"dead letter could not be written to topic no/name \(deadLetterTopic\)"
    with pytest.raises(PySparkException, match=words):
        _save(frame, topics, topic=topic, deadLetterTopic="no/name")
    words = rf"topic {small} \(deadLetterTopic\) refused a dead letter"
    with pytest.raises(PySparkException, match=words):
        _save(frame, topics, topic=topic, deadLetterTopic=small)


@pytest.fixture
def row_sink(spark: "SparkSession") -> str:
    """The sink as Spark 4.0 runs it."""
    spark.dataSource.register(RowSink)
    return RowSink.name()


@pytest.mark.parity("beyond: 8 dead letters", "beyond: 7 timestamp column", "sink: stream append")
@pytest.mark.parametrize("rows", [False, True], ids=["arrow", "rows"])
def test_a_streams_dead_letters_and_times(
    topics: Topics, tmp_path: Path, row_sink: str, rows: bool
) -> None:
    source, target, dead = topics.create(1), topics.create(1), topics.create(1)
    topics.put(source, [(b"k", b"%d" % n) for n in range(4)], at_ms=7_000_000_000)
    frame = topics.stream(subscribe=source, startingOffsets="earliest", includeHeaders=True)
    frame = frame.selectExpr(
        *("key", "value", "headers", "timestamp", "offset AS other"),
        "if(offset = 2, NULL, if(offset = 3, 'no/name', '" + target + "')) AS topic",
        "if(offset = 1, 9, 0) AS partition",
    )
    sink = row_sink if rows else "klog"
    options = {"deadLetterTopic": dead, "timestampColumn": "timestamp"}
    query = _start(frame, topics, tmp_path, sink, **options)
    assert (
        _rows(topics, target, "value", "key", "timestamp", "headers")
        == _rows(topics, source, "value", "key", "timestamp", "headers")[:1]
    )
    found = _letters(topics, dead)
    assert {value: (h["reason"], h["topic"], h["partition"]) for value, h in found.items()} == {
        "1": ("BAD_PARTITION", target, "9"),
        "2": ("NULL_TOPIC", None, "0"),
        "3": ("INVALID_TOPIC", "no/name", "0"),
    }
    assert {
        value: (h["h"], h["timestamp"], h["query"], h["batch"]) for value, h in found.items()
    } == {str(n): ("1", str(7_000_000_000 + n), str(query.id), "0") for n in (1, 2, 3)}


# --- foreachBatch --------------------------------------------------------------------------------
@pytest.mark.oldest
@pytest.mark.parity("python source: update mode", "sink: batch_writer", differs="update-mode")
def test_a_batch_writer_serves_update_mode(topics: Topics, tmp_path: Path) -> None:
    source, target, dead = topics.create(1), topics.create(1), topics.create(1)
    writer = pyspark_klog.batch_writer(**topics.options(topic=target, deadLetterTopic=dead))
    for numbers in ([1, 2, 1], [2, 2, 9]):
        topics.put_numbers(source, numbers)
        counts = (
            topics.stream(subscribe=source, startingOffsets="earliest").groupBy("value").count()
        )
        rows = counts.selectExpr(
            "value AS key", "string(count) AS value", "if(value = '9', 9, 0) AS partition"
        )
        started = rows.writeStream.outputMode("update").foreachBatch(writer)
        started = started.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        query = run(started.start())
    found = _rows(topics, target, "string(key)", "string(value)")
    assert found == [("1", "2"), ("2", "1"), ("2", "3")]
    # Tasks know the query and its micro-batch there, too.
    (letter,) = _letters(topics, dead).values()
    assert (letter["query"], letter["batch"]) == (str(query.id), "1")


# --- what a user sees when it fails --------------------------------------------------------------
@pytest.mark.parity("own option: path", differs="paths")
def test_a_path_is_refused(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 'v' AS value")
    writer = frame.write.format("klog").options(**topics.options(topic="t")).mode("append")
    with pytest.raises(AnalysisException, match="option topic") as caught:
        writer.save("x")
    assert "Traceback" not in str(caught.value)
    source = topics.create(1)
    topics.put_numbers(source, [1])
    stream = topics.stream(subscribe=source, startingOffsets="earliest").writeStream
    stream = stream.format("klog").options(**topics.options(topic="t"))
    stream = stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="option topic"):
        run(stream.start(str(tmp_path / "x")))
