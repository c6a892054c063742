"""The exactly-once sink in Spark: streams, restarts, repeated batches, batch writes."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from pyspark_klog.client.admin.groups import committed_offsets, list_group_ids, list_groups
from pyspark_klog.client.admin.sink_progress import ProgressRow, RunMark
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.sink.exactly_once.names import parse_sink_id
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


@pytest.fixture
def client(topics: Topics) -> Iterator[BlockingClient]:
    with BlockingClient({"bootstrap.servers": topics.servers}) as made:
        yield made


def _start(
    frame: "DataFrame", topics: Topics, checkpoint: Path, **options: Any
) -> "StreamingQuery":
    writer = frame.writeStream.format("klog").option("checkpointLocation", str(checkpoint))
    named = topics.options(exactlyOnce="true", **options)
    return run(writer.options(**named).trigger(availableNow=True).start())


def _copy(topics: Topics, source: str, to: str, checkpoint: Path, **more: Any) -> "StreamingQuery":
    reading = {"maxOffsetsPerTrigger": 8, **more}
    frame = topics.stream(subscribe=source, startingOffsets="earliest", **reading)
    return _start(frame.select("key", "value"), topics, checkpoint, topic=to)


def _committed(topics: Topics, topic: str) -> list[int]:
    """The numbers that readers of committed records see."""
    frame = topics.batch(subscribe=topic, kafka__isolation__level="read_committed")
    return sorted(row.n for row in frame.selectExpr("int(string(value)) as n").collect())


def _rows(client: BlockingClient, query: "StreamingQuery", topic: str) -> dict[int, ProgressRow]:
    """The progress rows of a query, by task."""
    found = {}
    for group in list_groups(client):
        sink = parse_sink_id(group.group_id)
        if sink is None or sink[1] is None or sink[0].query_id != query.id:
            continue
        position = committed_offsets(client, group.group_id)[TopicPartition(topic, 0)]
        found[sink[1]] = ProgressRow.from_offset(position)
    return found


def _repeat_last(checkpoint: Path) -> int:
    """Let Spark think that its last micro-batch was not committed; gives its number."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last


def test_a_stream_writes_each_row_once_over_restarts(
    topics: Topics, client: BlockingClient, tmp_path: Path
) -> None:
    """Each batch is visible once; each task has a group, the run its mark."""
    source, to = topics.create(2), topics.create(3)
    for partition in range(2):
        topics.put_numbers(source, range(partition * 10, partition * 10 + 10), partition)
    query = _copy(topics, source, to, tmp_path)
    assert _committed(topics, to) == list(range(20))
    rows = _rows(client, query, to)
    last = max(row.batch_id for row in rows.values())
    assert last >= 2
    # Tasks end their transactions themselves from the second batch of a run on.
    assert {row.run_id for row in rows.values()} == {query.runId}
    assert sum(row.row_count for row in rows.values()) == 20 - 8 * last
    for partition in range(2):
        topics.put_numbers(source, range(20 + partition * 6, 26 + partition * 6), partition)
    again = _copy(topics, source, to, tmp_path)
    assert again.id == query.id and again.runId != query.runId
    assert _committed(topics, to) == list(range(32))
    prefix = f"klog-sink.{query.id}.sink"
    groups = [group for group in list_group_ids(client) if str(query.id) in group]
    assert groups == [f"{prefix}.{each}" for each in (0, 1, "run")]
    at = TopicPartition(to, 0)
    mark = RunMark.from_offset(committed_offsets(client, f"{prefix}.run", [at])[at])
    assert mark.run_id == str(again.runId) and mark.earlier_run_ids == (str(query.runId),)
    assert last < mark.batch_id < last + 2
    rows = _rows(client, again, to)
    assert {(row.batch_id, row.run_id) for row in rows.values()} == {(last + 2, again.runId)}
    # Spark repeats a batch whose end it has not written down.
    assert _repeat_last(tmp_path) == last + 2
    topics.put_numbers(source, [32], 0)
    _copy(topics, source, to, tmp_path)
    assert _committed(topics, to) == list(range(33))


def test_tasks_without_rows_letters_and_topics_by_a_column(
    topics: Topics, client: BlockingClient, tmp_path: Path
) -> None:
    source, even, odd, dead = (topics.create(2) for _ in range(4))
    topics.put_numbers(source, range(12), 0)
    topics.put_numbers(source, range(100, 106), 1)
    frame = topics.stream(subscribe=source, startingOffsets="earliest").selectExpr(
        "value",
        f"if(int(string(value)) % 2 = 0, '{even}', '{odd}') as topic",
        "if(int(string(value)) % 5 = 0, 9, 0) as partition",
    )
    # The second task has nothing to write.
    few = frame.where("int(string(value)) < 100")
    query = _start(few, topics, tmp_path, exactlyOnceTopic=even, deadLetterTopic=dead)
    assert _committed(topics, even) == [2, 4, 6, 8]
    assert _committed(topics, odd) == [1, 3, 7, 9, 11]
    assert _committed(topics, dead) == [0, 5, 10]
    rows = _rows(client, query, even)
    assert {task: row.row_count for task, row in rows.items()} == {0: 12, 1: 0}


def test_a_refusal_is_one_sentence(topics: Topics, tmp_path: Path) -> None:
    source, to = topics.create(1), topics.create(1)
    topics.put_numbers(source, range(3))
    frame = topics.stream(subscribe=source, startingOffsets="earliest").select("value")
    with pytest.raises((StreamingQueryException, PySparkException)) as caught:
        _start(frame, topics, tmp_path, topic=to, kafka__transaction__timeout__ms=900_001)
    assert "and the broker's transaction.max.timeout.ms is less" in str(caught.value)
    assert _committed(topics, to) == []
