"""A frame that is executed again returns the rows of this moment, or asks for a new load()."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from pyspark_klog.client.admin.records_deletion import delete_records
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.ids import TopicPartition
from tests.support.eventually import eventually
from tests.support.spark.session import spark_session
from tests.support.spark.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

OUT_OF_DATE = "Spark reads this frame by the plan of an earlier query, which is out of date: "


@pytest.fixture
def pushing() -> "Iterator[None]":
    """Spark pushes filters down to Python sources."""
    spark_session().conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark_session().conf.unset("spark.sql.python.filterPushdown.enabled")


def _refusal(action: "Callable[[], Any]") -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return " ".join(str(caught.value).split())


# --- batches --------------------------------------------------------------------------------------
@pytest.mark.parity("source behaviour: reuse of one DataFrame", differs="one-load-one-end")
def test_a_frame_of_a_topic_that_has_grown_asks_for_a_new_load(topics: Topics) -> None:
    topic = topics.create(2)
    topics.put_numbers(topic, range(3))
    frame = topics.batch(subscribe=topic)
    frame.createOrReplaceTempView("used_again")
    filtered = frame.where("offset > 0")
    assert spark_session().sql("select * from used_again").count() == 3
    assert filtered.count() == 2
    topics.put_numbers(topic, range(1), 1)
    for action in (frame.count, filtered.collect, spark_session().table("used_again").count):
        text = _refusal(action)
        assert (
            f"{OUT_OF_DATE}{topic}-1 ended at offset 0 then and ends at 1 now; call load()" in text
        )
    assert topics.batch(subscribe=topic).count() == 4


def test_a_frame_of_an_empty_topic_asks_for_a_new_load_once_it_has_records(topics: Topics) -> None:
    topic = topics.create(1)
    frame = topics.batch(subscribe=topic)
    assert frame.count() == 0 == frame.count()
    topics.put_numbers(topic, range(3))
    assert OUT_OF_DATE in _refusal(frame.count)


def test_a_fixed_range_is_read_again(topics: Topics) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(3))
    start, end = f'{{"{topic}":{{"0":1}}}}', f'{{"{topic}":{{"0":3}}}}'
    frame = topics.batch(subscribe=topic, startingOffsets=start, endingOffsets=end)
    assert frame.count() == 2
    topics.put_numbers(topic, range(3))
    assert frame.count() == 2


def test_a_cached_frame_is_read_to_the_end_of_its_plan(topics: Topics) -> None:
    """The first action caches one partition: the rest is read by a later query, by the plan."""
    topic = topics.create(2)
    topics.put_numbers(topic, range(3))
    topics.put_numbers(topic, range(3), 1)
    frame = topics.batch(subscribe=topic).cache()
    try:
        assert len(frame.take(1)) == 1
        topics.put_numbers(topic, range(5), 1)
        assert frame.count() == 6
    finally:
        frame.unpersist()


def test_a_start_that_retention_has_passed_asks_for_a_new_load_or_moves(topics: Topics) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(5))
    strict = topics.batch(subscribe=topic)
    lenient = topics.batch(subscribe=topic, failOnDataLoss=False)
    assert strict.count() == 5 == lenient.count()
    with BlockingClient({"bootstrap.servers": topics.servers}) as client:
        delete_records(client, {TopicPartition(topic, 0): 2})
    text = _refusal(strict.count)
    assert f"{topic}-0 began at offset 0 then and begins at 2 now; call load() again" in text
    assert lenient.count() == 3


def test_offsets_from_the_table_of_partitions_fix_the_rows(topics: Topics) -> None:
    topic = topics.create(2)
    topics.put_numbers(topic, range(3))
    found = topics.batch(table="partitions").where(f"topic = '{topic}'").collect()
    starts = {str(row.partition): row.earliestOffset for row in found}
    ends = {str(row.partition): row.latestOffset for row in found}
    frame = topics.batch(
        subscribe=topic,
        startingOffsets=json.dumps({topic: starts}),
        endingOffsets=json.dumps({topic: ends}),
    )
    assert frame.count() == 3
    topics.put_numbers(topic, range(3), 1)
    assert frame.count() == 3


def test_a_frame_is_planned_in_each_query_where_spark_pushes_filters_down(
    topics: Topics, pushing: None
) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(3))
    frame = topics.batch(subscribe=topic).where("offset >= 0")
    frame.createOrReplaceTempView("planned_again")
    assert frame.count() == 3
    topics.put_numbers(topic, range(2))
    assert frame.count() == 5
    topics.grow(topic, 2)
    topics.put_numbers(topic, range(1), 1)
    assert spark_session().sql("select * from planned_again").count() == 6
    assert frame.alias("a").join(frame.alias("b"), ["partition", "offset"]).count() == 6


# --- the static side of a stream ------------------------------------------------------------------
class _Joined:
    """A stream that looks its keys up, and what it found, record by record."""

    def __init__(self, topics: Topics, tmp_path: Path) -> None:
        self._topics = topics
        self.events, self.names = topics.create(1), topics.create(1)
        self.found: list[tuple[str, str | None]] = []
        self._checkpoint = str(tmp_path / "checkpoint")
        self.put_name("a")

    def put_name(self, key: str) -> None:
        self._topics.put(self.names, [(key.encode(), key.upper().encode())])

    def load_names(self) -> "DataFrame":
        frame = self._topics.batch(subscribe=self.names)
        return frame.where("offset >= 0").selectExpr("string(key) k", "string(value) name")

    def events_frame(self) -> "DataFrame":
        frame = self._topics.stream(subscribe=self.events, startingOffsets="earliest")
        return frame.selectExpr("string(key) k")

    def start(
        self, frame: "DataFrame", join: "Callable[[DataFrame], DataFrame]"
    ) -> "StreamingQuery":
        def note(batch: "DataFrame", _: int) -> None:
            self.found.extend((row.k, row.name) for row in join(batch).collect())

        writer = frame.writeStream.option("checkpointLocation", self._checkpoint)
        return writer.foreachBatch(note).start()

    def put_event(self, key: str) -> None:
        self._topics.put(self.events, [(key.encode(), b"")])

    def look_up(self, key: str) -> str | None:
        """The name that the stream finds for the key of a new record."""
        before = len(self.found)
        self.put_event(key)
        eventually(lambda: len(self.found) > before, deadline_s=60, what="a joined record")
        assert self.found[-1][0] == key
        return self.found[-1][1]


@pytest.fixture
def joined(topics: Topics, tmp_path: Path) -> "Iterator[_Joined]":
    yield _Joined(topics, tmp_path)
    for query in spark_session().streams.active:
        query.stop()


def test_a_static_side_whose_topic_has_grown_ends_the_query(joined: _Joined) -> None:
    static = joined.load_names()
    frame = joined.events_frame().join(static, "k", "left")
    query = joined.start(frame, lambda batch: batch)
    assert joined.look_up("a") == "A"
    assert joined.look_up("b") is None
    joined.put_name("b")
    joined.put_event("b")
    eventually(lambda: not query.isActive, deadline_s=60, what="the end of the query")
    error = query.exception()
    assert error is not None
    text = f"{joined.names}-0 ended at offset 1 then and ends at 2 now; call load() again"
    assert text in " ".join(str(error).split())


def test_load_in_foreach_batch_sees_new_records(joined: _Joined) -> None:
    joined.start(joined.events_frame(), lambda batch: batch.join(joined.load_names(), "k", "left"))
    assert joined.look_up("a") == "A"
    joined.put_name("b")
    assert joined.look_up("b") == "B"


def test_a_static_side_is_planned_in_each_micro_batch_where_spark_pushes_filters_down(
    joined: _Joined, pushing: None
) -> None:
    frame = joined.events_frame().join(joined.load_names(), "k", "left")
    joined.start(frame, lambda batch: batch)
    assert joined.look_up("a") == "A"
    joined.put_name("b")
    assert joined.look_up("b") == "B"
