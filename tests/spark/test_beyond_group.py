"""A query's position in a consumer group, and a query that begins at a group's position."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from kafka.errors import CoordinatorNotAvailableError
from pyspark.errors import PySparkException

from pyspark_klog.spark.source.stream_reader import HAS_LIMITS
from tests.support.client.group_member import joined_member
from tests.support.eventually import eventually
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Group:
    """A consumer group, as kafka-python's admin client sees it."""

    def __init__(self, admin: KafkaAdminClient, servers: str) -> None:
        self.name = f"group-{uuid.uuid4().hex[:6]}"
        self._admin = admin
        self._servers = servers

    def offsets(self, topic: str) -> dict[int, int]:
        """Return the group's offsets; {} before the broker has made its topic of offsets."""
        try:
            found = self._admin.list_group_offsets([self.name]).get(self.name, {})
        except CoordinatorNotAvailableError:
            return {}
        return {p.partition: at.offset for p, at in found.items() if p.topic == topic}

    def lag(self, topic: str) -> dict[int, int]:
        """Return the group's lag in each partition in which it has an offset."""
        offsets = self.offsets(topic)
        consumer = KafkaConsumer(bootstrap_servers=self._servers)
        ends = consumer.end_offsets([KafkaPartition(topic, n) for n in offsets])
        consumer.close()
        return {n: ends[KafkaPartition(topic, n)] - offset for n, offset in offsets.items()}

    def set(self, topic: str, offsets: dict[int, int]) -> None:
        """Commit from outside."""
        from pyspark_klog.client.admin.groups import CommittedOffset, commit_offsets
        from pyspark_klog.client.cluster.blocking_client import BlockingClient
        from pyspark_klog.ids import TopicPartition

        rows = {TopicPartition(topic, n): CommittedOffset(o) for n, o in offsets.items()}
        with BlockingClient({"bootstrap.servers": self._servers}) as client:
            commit_offsets(client, self.name, rows)

    def reaches(self, topic: str, lag: dict[int, int]) -> None:
        """Wait until the group has this lag."""
        eventually(lambda: self.lag(topic) == lag, deadline_s=60, what=f"a lag of {lag}")


@pytest.fixture
def group(topics: Topics) -> Iterator[Group]:
    admin = KafkaAdminClient(bootstrap_servers=topics.servers)
    yield Group(admin, topics.servers)
    admin.close()


def _start(frame: "DataFrame", checkpoint: Path, seen: list[int], **trigger: Any) -> Any:
    def sink(batch: "DataFrame", _: int) -> None:
        seen.extend(int(row[0]) for row in batch.selectExpr("string(value)").collect())

    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def _values(frame: "DataFrame") -> list[int]:
    return sorted(int(row[0]) for row in frame.selectExpr("string(value)").collect())


# --- commitGroupId -------------------------------------------------------------------------------
@pytest.mark.parity("beyond: 3 commitGroupId", "beyond: 3 position", "own option: commitGroupId")
def test_after_an_available_now_run_nothing_is_left(
    topics: Topics, group: Group, tmp_path: Path
) -> None:
    topic = topics.create(2)
    topics.put_numbers(topic, range(10), 0)
    topics.put_numbers(topic, range(10, 15), 1)
    frame = topics.stream(
        subscribe=topic,
        startingOffsets="earliest",
        commitGroupId=group.name,
        maxOffsetsPerTrigger=6,
    )
    seen: list[int] = []
    run(_start(frame, tmp_path, seen))
    assert sorted(seen) == list(range(15))
    group.reaches(topic, {0: 0, 1: 0})
    # A run that finds nothing keeps it there, and one that finds more takes it along.
    run(_start(frame, tmp_path, seen))
    topics.put_numbers(topic, range(15, 20), 1)
    assert group.lag(topic) == {0: 0, 1: 5}
    run(_start(frame, tmp_path, seen))
    group.reaches(topic, {0: 0, 1: 0})
    assert sorted(seen) == list(range(20))


@pytest.mark.parity("beyond: 3 commitGroupId", "beyond: 3 position")
def test_while_a_query_idles_nothing_is_left(topics: Topics, group: Group, tmp_path: Path) -> None:
    topic, gone = topics.create(2), topics.create(1)
    topics.put_numbers(topic, range(4))
    topics.put_numbers(gone, [100])
    frame = topics.stream(
        subscribe=f"{topic},{gone}",
        startingOffsets="earliest",
        failOnDataLoss="false",
        commitGroupId=group.name,
    )
    seen: list[int] = []
    query = _start(frame, tmp_path, seen, processingTime="0 seconds")
    try:
        group.reaches(topic, {0: 0, 1: 0})
        group.reaches(gone, {0: 0})
        topics.delete(gone)
        topics.grow(topic, 3)
        topics.put_numbers(topic, [4, 5], 2)
        eventually(lambda: len(seen) == 7, deadline_s=60, what="the new records")
        group.reaches(topic, {0: 0, 1: 0, 2: 0})
        assert query.isActive
    finally:
        query.stop()


@pytest.mark.parity("beyond: 3 position")
def test_a_group_is_never_ahead_of_what_spark_has_committed(
    topics: Topics, group: Group, tmp_path: Path
) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(10))
    frame = topics.stream(
        subscribe=topic,
        startingOffsets="earliest",
        commitGroupId=group.name,
        maxOffsetsPerTrigger=3,
    )

    def refuse(_: "DataFrame", batch_id: int) -> None:
        if batch_id == 2:
            raise RuntimeError("the sink is away")

    writer = frame.writeStream.foreachBatch(refuse).option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    eventually(lambda: query.exception(), deadline_s=120, what="the query failing")
    eventually(lambda: group.offsets(topic) == {0: 6}, deadline_s=60, what="batches 0 and 1")


@pytest.mark.oldest
@pytest.mark.parity("beyond: 3 commitGroupId")
def test_a_group_follows_a_query_on_every_spark(
    topics: Topics, group: Group, tmp_path: Path
) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(4))
    frame = topics.stream(subscribe=topic, startingOffsets="earliest", commitGroupId=group.name)
    seen: list[int] = []
    query = _start(frame, tmp_path, seen, processingTime="0 seconds")
    try:
        eventually(lambda: len(seen) == 4, deadline_s=120, what="the first batch")
        topics.put_numbers(topic, [4, 5])
        eventually(lambda: len(seen) == 6, deadline_s=120, what="the second batch")
        # Spark 4.0 and 4.1 tell no more than the end of the batch before.
        expected = {0: 6} if HAS_LIMITS else {0: 4}
        eventually(lambda: group.offsets(topic) == expected, deadline_s=60, what="the position")
    finally:
        query.stop()


@pytest.mark.parity("beyond: 3 active members", "beyond: 3 never fails a batch")
def test_a_group_with_members_is_left_alone(topics: Topics, group: Group, tmp_path: Path) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(4))
    member = joined_member(topics.servers, topic, group.name)
    try:
        frame = topics.stream(subscribe=topic, startingOffsets="earliest", commitGroupId=group.name)
        seen: list[int] = []
        run(_start(frame, tmp_path, seen))
        assert sorted(seen) == list(range(4))
        assert group.offsets(topic) == {}
    finally:
        member.close()


# --- startingOffsets=committed -------------------------------------------------------------------
@pytest.fixture
def half_read(topics: Topics, group: Group) -> str:
    """A topic of two partitions that the group has read half of."""
    topic = topics.create(2)
    topics.put_numbers(topic, range(6), 0)
    topics.put_numbers(topic, range(10, 16), 1)
    group.set(topic, {0: 4, 1: 6})
    return topic


@pytest.mark.parity("beyond: 3 startingOffsets committed")
def test_a_batch_begins_where_a_group_is(topics: Topics, group: Group, half_read: str) -> None:
    options = {"startingOffsets": "committed", "commitGroupId": group.name}
    assert _values(topics.batch(subscribe=half_read, **options)) == [4, 5]
    assert group.offsets(half_read) == {0: 4, 1: 6}


@pytest.mark.parity("beyond: 3 startingOffsets committed")
def test_a_new_query_begins_where_a_group_is_and_an_old_one_at_its_checkpoint(
    topics: Topics, group: Group, half_read: str, tmp_path: Path
) -> None:
    frame = topics.stream(
        subscribe=half_read, startingOffsets="committed", commitGroupId=group.name
    )
    seen: list[int] = []
    run(_start(frame, tmp_path / "one", seen))
    assert sorted(seen) == [4, 5]
    group.reaches(half_read, {0: 0, 1: 0})
    topics.put_numbers(half_read, [6])
    group.set(half_read, {0: 0, 1: 0})
    run(_start(frame, tmp_path / "one", seen))
    assert sorted(seen) == [4, 5, 6]
    group.reaches(half_read, {0: 0, 1: 0})


@pytest.mark.parity("beyond: 3 committedOffsetsMissing", "own option: committedOffsetsMissing")
@pytest.mark.parametrize(
    ("missing", "expected"),
    [("earliest", [4, 5, *range(10, 16)]), ("latest", [4, 5]), ("error", None)],
)
def test_partitions_without_an_offset(
    topics: Topics, group: Group, missing: str, expected: list[int] | None
) -> None:
    topic = topics.create(2)
    topics.put_numbers(topic, range(6), 0)
    topics.put_numbers(topic, range(10, 16), 1)
    group.set(topic, {0: 4})
    options = {"committedOffsetsMissing": missing} if missing != "error" else {}
    frame = topics.batch(
        subscribe=topic, startingOffsets="committed", commitGroupId=group.name, **options
    )
    if expected is not None:
        assert _values(frame) == expected
        return
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    assert (
        f"group {group.name} has no committed offset in {topic}-1; set committedOffsetsMissing to "
        "earliest or latest to begin there, or check commitGroupId"
    ) in str(caught.value)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parity("beyond: 3 out of range")
def test_an_offset_out_of_range_goes_by_fail_on_data_loss(topics: Topics, group: Group) -> None:
    topic = topics.create(2)
    topics.put_numbers(topic, range(3), 0)
    topics.put_numbers(topic, range(10, 13), 1)
    group.set(topic, {0: 999, 1: 2})
    options = {"subscribe": topic, "startingOffsets": "committed", "commitGroupId": group.name}
    with pytest.raises(PySparkException) as caught:
        topics.batch(**options).collect()
    assert (
        f"group {group.name} is out of range: {topic}-0 at 999, but the partition has offsets 0 "
        "to 3: the topic was created again, or its last records were lost; set the group's "
    ) in str(caught.value)
    assert _values(topics.batch(failOnDataLoss="false", **options)) == [0, 1, 2, 12]
