"""The stream source where releases of Spark plan differently; test_parity_source_behaviours.py has
its behaviour."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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
        self.batches[batch_id] = sorted(row.n for row in rows)


def _start(frame: "DataFrame", checkpoint: Path, sink: _Sink) -> "StreamingQuery":
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(sink)
    return writer.trigger(availableNow=True).start()


@pytest.mark.oldest
def test_a_self_union_begins_where_its_relation_does(topics: Topics, tmp_path: Path) -> None:
    """Spark plans each batch twice with the one reader of both sides."""
    topic = topics.create(1)
    sink = _Sink()
    frame = topics.stream(subscribe=topic)  # from latest
    for numbers in (range(4), range(4, 6)):
        topics.put_numbers(topic, numbers)
        run(_start(frame.union(frame), tmp_path, sink))
    assert [n for _, batch in sorted(sink.batches.items()) for n in batch] == [4, 4, 5, 5]


@pytest.mark.oldest
def test_a_first_batch_that_is_planned_again_leaves_new_partitions_to_the_next(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(3))
    frame = topics.stream(subscribe=topic, startingOffsets="earliest")
    run(_start(frame, tmp_path, _Sink()))
    (tmp_path / "commits" / "0").unlink()
    (tmp_path / "commits" / ".0.crc").unlink()
    topics.put_numbers(topic, range(3, 5))
    topics.grow(topic, 2)
    topics.put_numbers(topic, range(5, 7), 1)
    sink = _Sink()
    for _ in range(2):  # Spark 4.0 and 4.1 end a run with a batch that was to be repeated
        run(_start(frame, tmp_path, sink))
    assert sink.batches == {0: [0, 1, 2], 1: [3, 4, 5, 6]}
