"""Streams on Spark 4.0 and 4.1, which have neither read limits nor a source's AvailableNow.

There Spark calls latestOffset() before initialOffset(), and partitions(x, x) first after a restart,
x being the last end in its log, whether that batch was committed or not.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from pyspark_klog.spark.data_source import DefaultSource
from pyspark_klog.spark.sink.stream_writer import RowStreamWriter
from pyspark_klog.spark.source.plain_stream_reader import PlainStreamReader
from tests.support.eventually import eventually
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.oldest


class _Sink:
    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        rows = frame.selectExpr("int(string(value)) as n").collect()
        self.batches[batch_id] = sorted(row.n for row in rows)


def _start(frame: "DataFrame", checkpoint: Path, sink: _Sink, **trigger: Any) -> "StreamingQuery":
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(sink)
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def _forget_commit(checkpoint: Path, batch_id: int) -> None:
    (checkpoint / "commits" / str(batch_id)).unlink()
    (checkpoint / "commits" / f".{batch_id}.crc").unlink()


def _end_offsets(checkpoint: Path, batch_id: int) -> str:
    return (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[-1]


@pytest.mark.parity("release: detected by feature")
def test_this_release_gets_the_classes_that_it_can_use() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "topic": "t"}
    source = DefaultSource(options)
    assert type(source.streamReader(source.schema())) is PlainStreamReader
    has_arrow = hasattr(datasource, "DataSourceStreamArrowWriter")
    writer = source.streamWriter(StructType().add("value", "string"), False)
    assert (type(writer) is RowStreamWriter) is not has_arrow


@pytest.mark.parity("release: 4.0 and 4.1: limits")
def test_a_limit_is_refused_in_one_line(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1)
    frame = topics.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    words = "maxOffsetsPerTrigger needs Spark 4.2 or later"
    with pytest.raises(StreamingQueryException, match=words) as e:
        run(_start(frame, tmp_path, _Sink()))
    assert "Traceback" not in str(e.value)


@pytest.mark.parity("release: 4.0 and 4.1: batch, sinks, streams")
def test_available_now_takes_all_that_there_is_in_one_batch(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(3)
    sink = _Sink()
    frame = topics.stream(subscribe=topic, startingOffsets="earliest")
    for round_, partitions in enumerate((3, 4)):
        if round_:
            topics.grow(topic, partitions)
        for partition in range(partitions):
            topics.put_numbers(topic, [10 * round_ + partition], partition)
        run(_start(frame, tmp_path, sink))
    assert sink.batches == {0: [0, 1, 2], 1: [10, 11, 12, 13]}


@pytest.mark.parity("release: 4.0 and 4.1: resolved once")
def test_latest_is_durable_before_anything_is_read(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(4))
    sink = _Sink()
    frame = topics.stream(subscribe=topic)
    run(_start(frame, tmp_path, sink))
    assert sink.batches == {0: []}
    assert _end_offsets(tmp_path, 0) == json.dumps({topic: {"0": 4}})
    _forget_commit(tmp_path, 0)
    topics.put_numbers(topic, range(4, 6))
    for _ in range(2):
        run(_start(frame, tmp_path, sink))
    assert sink.batches == {0: [], 1: [4, 5]}


def test_a_later_batch_whose_commit_is_lost_is_read_again_as_it_was(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(1)
    frame = topics.stream(subscribe=topic, startingOffsets="earliest")
    first, second = _Sink(), _Sink()
    for begin in (0, 3):
        topics.put_numbers(topic, range(begin, begin + 3))
        run(_start(frame, tmp_path, first))
    _forget_commit(tmp_path, 1)
    topics.put_numbers(topic, [6])
    query = _start(frame, tmp_path, second, processingTime="0 seconds")
    try:
        eventually(lambda: 2 in second.batches, deadline_s=90, what="batch 2")
    finally:
        query.stop()
    assert first.batches == {0: [0, 1, 2], 1: [3, 4, 5]}
    assert second.batches == {1: [3, 4, 5], 2: [6]}


@pytest.mark.parity("release: 4.0: stream sink")
def test_rows_reach_a_topic_with_all_their_columns(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    """The stream sink gets rows where Spark has no DataSourceStreamArrowWriter (4.0)."""
    source, target = topics.create(2), topics.create(3)
    rows = [(b"k", b"v"), (None, b"w"), (b"l", None)]
    topics.put(source, rows, 1, at_ms=1_700_000_000_123)
    frame = topics.stream(subscribe=source, startingOffsets="earliest", includeHeaders=True)
    columns = frame.selectExpr(
        *("string(key) AS key", "value", "headers", "timestamp", "offset"),
        *(f"'{target}' AS topic", "int(offset % 3) AS partition"),
    )
    writer = columns.writeStream.format("klog")
    writer = writer.options(**topics.options(timestampColumn="timestamp"))
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query = run(writer.start())
    assert query.lastProgress.sink.numOutputRows == 3
    frame = topics.batch(subscribe=target, includeHeaders=True)
    read = frame.selectExpr("*", "unix_millis(timestamp) AS ms").orderBy("partition").collect()
    assert [(r.partition, r.key, r.value, r.headers, r.ms) for r in read] == [
        (n, key, value, [("h", bytearray(b"1"))], 1_700_000_000_123 + n)
        for n, (key, value) in enumerate(rows)
    ]


def test_rows_are_written_exactly_once(topics: Topics, tmp_path: Path) -> None:
    """Rows of a run's first micro-batch, of later ones, and of a repeated one."""
    source, target = topics.create(1), topics.create(1)
    frame = topics.stream(subscribe=source, startingOffsets="earliest").select("value")
    writer = frame.writeStream.format("klog").option("checkpointLocation", str(tmp_path))
    writer = writer.options(**topics.options(topic=target, exactlyOnce=True))

    def committed() -> list[int]:
        read = topics.batch(subscribe=target, kafka__isolation__level="read_committed")
        return sorted(row.n for row in read.selectExpr("int(string(value)) AS n").collect())

    query = writer.trigger(processingTime="0 seconds").start()
    try:
        for n in range(2):
            topics.put_numbers(source, [n])
            query.processAllAvailable()
    finally:
        query.stop()
    assert committed() == [0, 1]
    _forget_commit(tmp_path, 1)
    topics.put_numbers(source, [2])
    for _ in range(2):
        run(writer.trigger(availableNow=True).start())
    assert committed() == [0, 1, 2]
