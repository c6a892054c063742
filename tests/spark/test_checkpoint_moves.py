"""`python -m pyspark_klog checkpoint move` on checkpoints of real queries."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_klog.__main__ import main
from tests.support.eventually import eventually
from tests.support.spark.checkpoints import batches, offsets_of
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Query:
    """A query that is stopped, moved, and started again with the same checkpoint."""

    def __init__(self, topics: Topics, topic: str, folder: Path) -> None:
        self.topics = topics
        self.topic = topic
        self.folder = folder

    def read(self, *, fail: bool = False) -> list[int]:
        """The numbers that a run reads; with ``fail`` its first batch fails in the sink."""
        frame = self._stream()
        return self._run(frame, "append", fail=fail)

    def count(self) -> dict[int, int]:
        """The counts by number that a run changes."""
        rows: dict[int, int] = {}
        frame = self._stream().groupBy("n").count()
        self._run(frame, "update", rows=rows)
        return rows

    def _stream(self) -> "DataFrame":
        stream = self.topics.stream(subscribe=self.topic, startingOffsets="earliest")
        return stream.selectExpr("int(string(value)) as n")

    def _run(
        self,
        frame: "DataFrame",
        mode: str,
        *,
        fail: bool = False,
        rows: dict[int, int] | None = None,
    ) -> list[int]:
        found: list[int] = []

        def take(batch: "DataFrame", _: int) -> None:
            if fail:
                raise RuntimeError("the sink is away")
            collected = batch.collect()
            found.extend(row.n for row in collected)
            if rows is not None:
                rows.update((row[0], row[1]) for row in collected)

        writer = frame.writeStream.outputMode(mode).foreachBatch(take).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.folder)).start()
        if fail:
            eventually(query.exception, deadline_s=120, what="the query failing")
        else:
            run(query)
        # A move refuses while a query with this id runs in the session.
        assert json.loads((self.folder / "metadata").read_text())["id"] == query.id
        return sorted(found)

    def move(self, *arguments: str, path: str | None = None) -> int:
        """Run `checkpoint move` and return its exit code."""
        servers = f"--bootstrap-servers={self.topics.servers}"
        return main(["checkpoint", "move", path or str(self.folder), servers, *arguments])


@pytest.fixture
def query(topics: Topics, tmp_path: Path) -> Query:
    return Query(topics, topics.create(), tmp_path / "checkpoint")


def _put(query: Query, numbers: Sequence[int], at_ms: int) -> None:
    query.topics.put(query.topic, [(None, b"%d" % number) for number in numbers], at_ms=at_ms)


def test_a_moved_aggregation_continues_at_the_new_place_and_keeps_its_state(query: Query) -> None:
    _put(query, [1, 1, 2], 1_000)
    assert query.count() == {1: 2, 2: 1}
    _put(query, [3, 3], 2_000_000)
    _put(query, [1], 3_000_000)
    to_time = ["--to-datetime=1970-01-01T00:50:00", "--execute"]
    assert query.move(*to_time) == 1
    assert offsets_of(query.folder, 0) == {query.topic: {"0": 3}}
    assert query.move(*to_time, "--ignore-state") == 0
    assert query.count() == {1: 3}


def test_a_moved_query_reads_exactly_from_the_new_place(query: Query) -> None:
    _put(query, [1, 2, 3], 1_000)
    assert query.read() == [1, 2, 3]
    _put(query, [4, 5], 2_000)
    assert query.move("--to-latest", "--execute") == 0
    _put(query, [6], 3_000)
    assert query.read() == [6]
    assert query.move("--to-offsets", json.dumps({query.topic: {"0": 4}}), "--execute") == 0
    assert query.read() == [5, 6]


def test_a_query_is_moved_to_a_topic_that_was_created_again(query: Query) -> None:
    query.topics.grow(query.topic, 2)
    _put(query, [1, 2, 3], 1_000)
    assert query.read() == [1, 2, 3]
    query.topics.delete(query.topic)
    eventually(lambda: query.topics.create(name=query.topic), deadline_s=60)
    _put(query, [7, 8], 4_000)
    assert query.move("--to-earliest", "--execute") == 0
    assert query.read() == [7, 8]
    assert offsets_of(query.folder, batches(query.folder)[0][-1]) == {query.topic: {"0": 2}}


def test_a_batch_that_failed_is_emptied_and_keeps_its_number(query: Query) -> None:
    _put(query, [1], 1_000)
    assert query.read() == [1]
    _put(query, [2, 3], 2_000)
    query.read(fail=True)
    assert query.move("--to-latest", "--execute") == 1
    assert query.move("--to-latest", "--execute", "--empty-planned-batch") == 0
    assert batches(query.folder) == ([0, 1], [0])
    _put(query, [4], 3_000)
    assert query.read() == [4]
    assert batches(query.folder) == ([0, 1, 2], [0, 1, 2])


def test_a_checkpoint_on_a_file_system_of_hadoop_is_moved(
    query: Query, spark: "SparkSession", capsys: pytest.CaptureFixture[str]
) -> None:
    settings: Any = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set("fs.viewfs.mounttable.klog.link./there", f"file:{query.folder.parent}")
    path = "viewfs://klog/there/checkpoint"
    _put(query, [1, 2, 3], 1_000)
    assert query.read() == [1, 2, 3]
    # The session's class for checkpoints cannot replace files here; Spark's default can.
    for offset in (0, 1):
        back = json.dumps({query.topic: {"0": offset}})
        assert query.move("--to-offsets", back, "--execute", path=path) == 0
        assert offsets_of(query.folder, 0) == {query.topic: {"0": offset}}
        spark.conf.unset("spark.sql.streaming.checkpointFileManagerClass")
    assert query.read() == [2, 3]
    assert main(["checkpoint", "show", f"{path}/nowhere"]) == 1
    assert "is no checkpoint of a streaming query" in capsys.readouterr().err
