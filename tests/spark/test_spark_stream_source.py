"""The stream source: limits, triggers, restarts, partitions that come and go."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.support.eventually import eventually
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


class _Sink:
    """Collects the numbers of each batch through foreachBatch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        rows = frame.selectExpr("int(string(value)) as n").collect()
        self.batches[batch_id] = [row.n for row in rows]

    @property
    def numbers(self) -> list[int]:
        return sorted(n for batch in self.batches.values() for n in batch)


def _start(
    frame: "DataFrame", checkpoint: Path, sink: _Sink | None = None, **trigger: Any
) -> "StreamingQuery":
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint))
    writer = writer.foreachBatch(sink) if sink is not None else writer.format("noop")
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def _end_offsets(checkpoint: Path, batch_id: int) -> str:
    return (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[-1]


@pytest.mark.parity("release: 4.2 and later")
def test_a_limit_is_shared_by_the_partitions(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(3)
    for partition in range(3):
        topics.put_numbers(topic, range(partition * 5, partition * 5 + 5), partition)
    sink = _Sink()
    frame = topics.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    query = run(_start(frame, tmp_path, sink))
    # Five by three partitions is one each, rounded down, and one of each rest.
    assert sink.numbers == list(range(15))
    assert all(len(batch) <= 5 for batch in sink.batches.values())
    assert query.recentProgress[-1].sources[0].latestOffset == json.dumps(
        {topic: {"0": 5, "1": 5, "2": 5}}
    )


@pytest.mark.oldest
def test_a_restart_loses_nothing_and_repeats_nothing(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(4))
    sink = _Sink()
    frame = topics.stream(subscribe=topic, startingOffsets="earliest")
    run(_start(frame, tmp_path, sink))
    topics.put_numbers(topic, range(4, 7))
    topics.admin.create_partitions(topic, 2)
    topics.put_numbers(topic, range(7, 9), 1)
    run(_start(frame, tmp_path, sink))
    assert sink.batches == {0: [0, 1, 2, 3], 1: [4, 5, 6, 7, 8]}


@pytest.mark.oldest
def test_a_self_union_begins_where_its_relation_does(topics: Topics, tmp_path: Path) -> None:
    """Spark plans each batch twice with the one reader of both sides."""
    topic = topics.create(1)
    sink = _Sink()
    frame = topics.stream(subscribe=topic)  # from latest
    for numbers in (range(4), range(4, 6)):
        topics.put_numbers(topic, numbers)
        run(_start(frame.union(frame), tmp_path, sink))
    assert sink.numbers == [4, 4, 5, 5]


def test_a_batch_that_was_not_committed_is_read_again(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(10))
    frame = topics.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    first = _Sink()
    run(_start(frame, tmp_path, first))
    (tmp_path / "commits" / "1").unlink()
    (tmp_path / "commits" / ".1.crc").unlink()
    topics.put_numbers(topic, range(10, 12))
    second = _Sink()
    run(_start(frame, tmp_path, second))
    assert second.batches == {1: first.batches[1], 2: [10, 11]}


@pytest.mark.oldest
def test_a_first_batch_that_is_planned_again_leaves_new_partitions_to_the_next(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(3))
    frame = topics.stream(subscribe=topic, startingOffsets="earliest")
    run(_start(frame, tmp_path))
    (tmp_path / "commits" / "0").unlink()
    (tmp_path / "commits" / ".0.crc").unlink()
    topics.grow(topic, 2)
    topics.put_numbers(topic, range(3, 5), 1)
    sink = _Sink()
    for _ in range(2):  # Spark 4.0 and 4.1 end a run with a batch that was to be repeated
        run(_start(frame, tmp_path, sink))
    assert sink.batches == {0: [0, 1, 2], 1: [3, 4]}


@pytest.mark.oldest
def test_processing_time_follows_the_topic_and_stops(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    sink = _Sink()
    frame = topics.stream(subscribe=topic, startingOffsets="earliest")
    query = _start(frame, tmp_path, sink, processingTime="0 seconds")
    try:
        for number in range(3):
            topics.put_numbers(topic, [number], number % 2)
            eventually(lambda n=number: n in sink.numbers, deadline_s=40)
        topics.admin.create_partitions(topic, 3)
        topics.put_numbers(topic, [3], 2)
        eventually(lambda: 3 in sink.numbers, deadline_s=40)
    finally:
        query.stop()
    assert sink.numbers == [0, 1, 2, 3]
    assert query.exception() is None


@pytest.mark.oldest
def test_two_sources_in_one_query_keep_their_own_offsets(topics: Topics, tmp_path: Path) -> None:
    busy, idle = topics.create(1), topics.create(1)
    topics.put_numbers(busy, range(3))
    topics.put_numbers(idle, [100])
    sink = _Sink()
    frames = [topics.stream(subscribe=t, startingOffsets="earliest") for t in (busy, idle)]
    run(_start(frames[0].union(frames[1]), tmp_path, sink))
    topics.put_numbers(busy, range(3, 5))
    run(_start(frames[0].union(frames[1]), tmp_path, sink))
    assert {n: sorted(batch) for n, batch in sink.batches.items()} == {
        0: [0, 1, 2, 100],
        1: [3, 4],
    }


@pytest.mark.oldest
def test_headers_and_assign(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    topics.put_numbers(topic, [1], 0)
    topics.put_numbers(topic, [2], 1)
    seen: list[Any] = []

    def collect(frame: "DataFrame", _: int) -> None:
        seen.extend(frame.select("partition", "headers").collect())

    frame = topics.stream(
        assign=f'{{"{topic}":[1]}}', startingOffsets="earliest", includeHeaders=True
    )
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path)).foreachBatch(collect)
    run(writer.trigger(availableNow=True).start())
    assert [(row.partition, row.headers[0].key) for row in seen] == [(1, "h")]


def _recreated(topics: Topics, checkpoint: Path, **options: Any) -> "DataFrame":
    """A stream that has read five records of a topic that now has two."""
    topic = topics.create(1)
    topics.put_numbers(topic, range(5))
    frame = topics.stream(subscribe=topic, startingOffsets="earliest", **options)
    run(_start(frame, checkpoint))
    topics.delete(topic)
    topics.create(1, topic)
    topics.put_numbers(topic, [100, 101])
    return frame


@pytest.mark.oldest
def test_a_recreated_topic_fails_the_query(topics: Topics, tmp_path: Path) -> None:
    frame = _recreated(topics, tmp_path, fetchOffset__retryIntervalMs=10)
    with pytest.raises(StreamingQueryException, match=r"ends at offset 2, before offset 5") as e:
        run(_start(frame, tmp_path))
    assert "failOnDataLoss=false" in str(e.value)
    assert not (tmp_path / "offsets" / "1").exists()


@pytest.mark.oldest
def test_a_recreated_topic_is_read_on_without_fail_on_data_loss(
    topics: Topics, tmp_path: Path
) -> None:
    frame = _recreated(topics, tmp_path, failOnDataLoss=False, fetchOffset__retryIntervalMs=10)
    sink = _Sink()
    run(_start(frame, tmp_path, sink))
    assert sink.numbers == []
    topic = json.loads(_end_offsets(tmp_path, 1))
    topics.put_numbers(next(iter(topic)), [102])
    run(_start(frame, tmp_path, sink))
    assert sink.numbers == [102]


@pytest.mark.oldest
@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_is_gone(topics: Topics, tmp_path: Path, fail: bool) -> None:
    stays, goes = topics.create(1), topics.create(1)
    topics.put_numbers(stays, [1])
    topics.put_numbers(goes, [2])
    frame = topics.stream(
        subscribe=f"{stays},{goes}", startingOffsets="earliest", failOnDataLoss=fail
    )
    sink = _Sink()
    run(_start(frame, tmp_path, sink))
    topics.delete(goes)
    topics.put_numbers(stays, [3])
    query = _start(frame, tmp_path, sink)
    if fail:
        with pytest.raises(StreamingQueryException, match=f"{goes}-0 is gone"):
            run(query)
        return
    run(query)
    assert sink.numbers == [1, 2, 3]


@pytest.mark.oldest
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is not for streams, which have no end"),
        ({"subscribe": "absent-too"}, "topic absent-too does not exist"),
        ({"startingOffsets": '{"%s":{"0":0,"1":0}}'}, "startingOffsets is given with"),
    ],
)
def test_what_a_stream_refuses(
    topics: Topics, tmp_path: Path, options: dict[str, str], words: str
) -> None:
    topic = topics.create(1)
    given = {name: text.replace("%s", topic) for name, text in options.items()}
    frame = topics.stream(
        **{"subscribe": topic, "startingOffsets": "earliest", **given},
        fetchOffset__retryIntervalMs=10,
    )
    with pytest.raises(StreamingQueryException, match=words) as caught:
        run(_start(frame, tmp_path))
    assert "UnboundLocalError" not in str(caught.value)
    assert "Traceback" not in str(caught.value)
