"""The exactly-once sink in batch writes and in foreachBatch."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

import pyspark_klog
from pyspark_klog.client.admin.groups import list_group_ids
from pyspark_klog.client.admin.transaction_listing import ONGOING, list_transactions
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.spark.errors import OptionError
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


@pytest.fixture
def client(topics: Topics) -> Iterator[BlockingClient]:
    with BlockingClient({"bootstrap.servers": topics.servers}) as client:
        yield client


def _committed(topics: Topics, topic: str) -> list[int]:
    frame = topics.batch(subscribe=topic, kafka__isolation__level="read_committed")
    return sorted(row.n for row in frame.selectExpr("int(string(value)) AS n").collect())


def _task_groups(client: BlockingClient) -> set[str]:
    """The groups of tasks of exactly-once sinks."""
    return {g for g in list_group_ids(client) if g.startswith("klog-sink.") and g[-1].isdigit()}


# --- batch writes --------------------------------------------------------------------------------
def test_a_batch_write_that_fails_leaves_whole_tasks(
    spark: "SparkSession", topics: Topics, client: BlockingClient
) -> None:
    """A failed write leaves no group either, and no open transaction that holds readers back."""
    topic = topics.create(2)
    before = _task_groups(client)
    # The third of three tasks fails with its last row.
    sql = "string(if(id = 29, raise_error('this row'), id)) AS value"
    frame = spark.range(0, 30, 1, 3).selectExpr(sql)
    given = topics.options(topic=topic, exactlyOnce="true")
    with pytest.raises(PySparkException, match="this row"):
        frame.write.format("klog").options(**given).mode("append").save()
    assert _task_groups(client) == before
    assert not [each for each in list_transactions(client) if each.state == ONGOING]
    found = _committed(topics, topic)
    assert set(found) <= set(range(20)) and len(found) == len(set(found))
    assert len(found) % 10 == 0


def test_a_batch_write_is_visible_once(
    spark: "SparkSession", topics: Topics, client: BlockingClient
) -> None:
    """Two of them write twice: each has ids of its own."""
    topic = topics.create(2)
    before = _task_groups(client)
    frame = spark.range(0, 30, 1, 3).selectExpr("string(id) AS value")
    given = topics.options(topic=topic, exactlyOnce="true")
    for _ in range(2):
        frame.write.format("klog").options(**given).mode("append").save()
    assert _committed(topics, topic) == sorted([*range(30)] * 2)
    assert _task_groups(client) == before


# --- foreachBatch --------------------------------------------------------------------------------
def _start(
    frame: "DataFrame", function: Callable[["DataFrame", int], None], checkpoint: Path
) -> "StreamingQuery":
    writer = frame.writeStream.foreachBatch(function).option("checkpointLocation", str(checkpoint))
    return run(writer.trigger(availableNow=True).start())


def test_two_sinks_of_one_query(topics: Topics, client: BlockingClient, tmp_path: Path) -> None:
    """The function fails between them, in the first micro-batch and behind one that Spark repeats:
    each sink has each row once."""
    source, even, odd = topics.create(2), topics.create(1), topics.create(1)
    one, two = (
        pyspark_klog.batch_writer(
            **topics.options(topic=topic, exactlyOnce=True, exactlyOnceName=name)
        )
        for topic, name in ((even, "even"), (odd, "odd"))
    )
    failures = [True, False, False, True, False]

    def write(frame: "DataFrame", batch_id: int) -> None:
        one(frame.where("int(string(value)) % 2 = 0"), batch_id)
        if failures.pop(0):
            raise RuntimeError("between the two")
        two(frame.where("int(string(value)) % 2 = 1"), batch_id)

    def start() -> "StreamingQuery":
        frame = topics.stream(subscribe=source, startingOffsets="earliest")
        return _start(frame.select("key", "value"), write, tmp_path)

    for partition in range(2):
        topics.put_numbers(source, range(10 * partition, 10 * partition + 10), partition)
    with pytest.raises(StreamingQueryException, match="between the two"):
        start()
    query = start()
    (tmp_path / "commits" / "0").unlink()
    (tmp_path / "commits" / ".0.crc").unlink(missing_ok=True)
    for partition in range(2):
        topics.put_numbers(source, range(20 + 10 * partition, 30 + 10 * partition), partition)
    with pytest.raises(StreamingQueryException, match="between the two"):
        start()
    start()
    assert _committed(topics, even) == list(range(0, 40, 2))
    assert _committed(topics, odd) == list(range(1, 40, 2))
    mine = sorted(group for group in list_group_ids(client) if str(query.id) in group)
    stem = f"klog-sink.{query.id}"
    assert mine == [f"{stem}.{name}.{n}" for name in ("even", "odd") for n in (0, 1, "run")]


def test_a_function_that_tries_again_within_a_run(topics: Topics, tmp_path: Path) -> None:
    """The second call finds the first one's committed rows; other rows are refused."""
    source, topic = topics.create(1), topics.create(1)
    writer = pyspark_klog.batch_writer(
        **topics.options(topic=topic, exactlyOnce=True, exactlyOnceName="again")
    )
    topics.put_numbers(source, range(10))
    texts: list[str] = []

    def write(frame: "DataFrame", batch_id: int) -> None:
        writer(frame, batch_id)
        writer(frame, batch_id)
        try:
            writer(frame.where("string(value) <> '3'"), batch_id)
        except PySparkException as refused:
            texts.append(str(refused))
        writer(frame, batch_id)

    frame = topics.stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    _start(frame.select("key", "value"), write, tmp_path)
    assert _committed(topics, topic) == list(range(10))
    assert len(texts) == 1 and "does not give the same rows again" in texts[0]


def test_a_call_outside_of_a_query_is_refused(spark: "SparkSession", topics: Topics) -> None:
    frame = spark.sql("SELECT '1' AS value")
    given = topics.options(topic="t", exactlyOnce=True)
    with pytest.raises(
        OptionError, match="batch_writer with exactlyOnce needs option exactlyOnceN"
    ):
        pyspark_klog.batch_writer(**given)
    writer = pyspark_klog.batch_writer(**given, exactlyOnceName="x")
    with pytest.raises(OptionError, match="and no streaming query runs in this thread"):
        writer(frame, 0)
