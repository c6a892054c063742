"""klog goes on from a checkpoint of Spark's own connector, and the connector from klog's.

docs/taking-over-a-checkpoint.md describes the steps that these tests try.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_klog.__main__ import main
from tests.support.eventually import eventually
from tests.support.parity.scenarios import Collected, Engine, Parity, ScenarioTopics
from tests.support.peers import ROOT
from tests.support.spark.checkpoints import batches, initial_offsets_of, offsets_of
from tests.support.spark.topics import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.parity("source behaviour: a kafka query's checkpoint")


class OneFolder(Engine):
    """An engine on the checkpoint of the other: the folder as it is."""

    def checkpoint(self, checkpoint: object) -> str:
        return str(checkpoint)


class Query:
    """One query, run by one connector and then by the other, from one checkpoint."""

    def __init__(self, parity: Parity, folder: Path) -> None:
        topics = ScenarioTopics(parity.servers)
        self.topics = topics
        self.engines = {name: OneFolder(name, topics) for name in ("kafka", "klog")}
        self.topic = topics.create(2)
        self.folder = folder

    def put(self, numbers: Sequence[int]) -> list[int]:
        """More records, the even ones to partition 0."""
        for partition in (0, 1):
            mine = [number for number in numbers if number % 2 == partition]
            self.topics.put_numbers(self.topic, mine, partition)
        return list(numbers)

    def run(self, name: str, **options: object) -> list[int]:
        """Return the numbers that a run to the end (AvailableNow) read, in order of values."""
        engine = self.engines[name]
        stream = engine.stream(**{"subscribe": self.topic, "startingOffsets": "earliest"} | options)
        return _numbers(engine.collected(stream, self.folder))

    def fail_in_batch(self, name: str, batch_id: int, **options: object) -> None:
        """A run that fails in a batch: its offsets are logged and not committed."""

        def refuse(frame: "DataFrame", number: int) -> None:
            if number == batch_id:
                raise RuntimeError("the sink is away")

        engine = self.engines[name]
        stream = engine.stream(**{"subscribe": self.topic, "startingOffsets": "earliest"} | options)
        query = (
            stream.writeStream.foreachBatch(refuse)
            .option("checkpointLocation", str(self.folder))
            .start()
        )
        eventually(lambda: query.exception(), deadline_s=120, what="the query failing")
        logged, committed = batches(self.folder) if batch_id else ([0], [])
        assert logged[-1] == batch_id
        assert batch_id not in committed


@pytest.fixture
def query(parity: Parity, tmp_path: Path) -> Query:
    return Query(parity, tmp_path / "checkpoint")


def _numbers(collected: Collected) -> list[int]:
    return sorted(int(bytes(row.value)) for row in collected.rows())


@pytest.mark.parametrize(("first", "second"), [("kafka", "klog"), ("klog", "kafka")])
def test_stopped_and_gone_on_with_and_back(query: Query, first: str, second: str) -> None:
    everything = query.put(range(20))
    assert query.run(first, maxOffsetsPerTrigger=8) == everything
    logged = batches(query.folder)[0]
    assert query.run(second) == []
    assert len(batches(query.folder)[0]) - len(logged) <= 1  # one empty batch at most
    for name, numbers in ((second, range(20, 30)), (first, range(30, 40)), (second, range(40, 44))):
        new = query.put(numbers)
        assert query.run(name) == new
    logged, committed = batches(query.folder)
    assert logged == committed
    assert offsets_of(query.folder, logged[-1]) == {query.topic: {"0": 22, "1": 22}}


@pytest.mark.parametrize(("first", "second"), [("kafka", "klog"), ("klog", "kafka")])
@pytest.mark.parametrize("batch_id", [0, 1])
def test_a_batch_that_failed_is_run_again_as_planned(
    query: Query, first: str, second: str, batch_id: int
) -> None:
    query.put(range(20))
    query.fail_in_batch(first, batch_id, maxOffsetsPerTrigger=8)
    planned = offsets_of(query.folder, batch_id)
    more = query.put(range(20, 30))
    seen = range(8) if batch_id else range(0)
    assert query.run(second) == sorted({*range(20), *more} - {*seen})
    assert offsets_of(query.folder, batch_id) == planned


def test_within_batch_0_of_latest_the_start_is_in_the_peers_folder(query: Query) -> None:
    query.put(range(10))
    engine = query.engines["kafka"]

    def refuse(frame: "DataFrame", number: int) -> None:
        raise RuntimeError("the sink is away")

    stream = engine.stream(subscribe=query.topic, startingOffsets="latest")
    writer = stream.writeStream.foreachBatch(refuse)
    running = writer.option("checkpointLocation", str(query.folder)).start()
    initial = query.folder / "sources" / "0" / "0"
    eventually(initial.exists, deadline_s=120, what="the start being kept")
    new = query.put(range(10, 20))
    eventually(lambda: running.exception(), deadline_s=120, what="the query failing")
    assert batches(query.folder)[0] == [0]
    start = initial_offsets_of(query.folder)
    assert query.run("klog", startingOffsets=json.dumps(start)) == new


def test_killed_in_the_middle_of_a_batch(query: Query, tmp_path: Path) -> None:
    everything = query.put(range(30))
    seen = tmp_path / "seen"
    seen.mkdir()
    command = [sys.executable, "-m", "tests.support.parity.peer_query", query.topics.servers]
    command += [query.topic, str(query.folder), str(seen), "8", "2"]
    child = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        eventually((seen / "2.json").exists, deadline_s=200, what="the third batch")
    finally:
        os.killpg(child.pid, signal.SIGKILL)  # its own group: the driver, its JVM, its workers
        child.wait()
    assert batches(query.folder) == ([0, 1, 2], [0, 1])
    found = {
        number: json.loads((seen / f"{number}.json").read_text(encoding="utf-8"))
        for number in range(3)
    }
    more = query.put(range(30, 36))
    engine = query.engines["klog"]
    taken_over = engine.collected(engine.stream(subscribe=query.topic), query.folder)
    # Batch 2 is repeated with the same records; the next batches have the unread records.
    assert taken_over.sizes()[0] == len(found[2])
    kept = [*found[0], *found[1], *_numbers(taken_over)]
    assert sorted(kept) == [*everything, *more]
    assert query.run("kafka") == []


def test_the_state_of_an_aggregation_goes_over(query: Query) -> None:
    counts: dict[int, int] = {}

    def keep(frame: "DataFrame", _: int) -> None:
        counts.update({row.partition: row["count"] for row in frame.collect()})

    for name, numbers in (("kafka", range(10)), ("klog", range(10, 14)), ("kafka", range(14, 16))):
        query.put(numbers)
        stream = query.engines[name].stream(subscribe=query.topic, startingOffsets="earliest")
        writer = stream.groupBy("partition").count().writeStream.outputMode("complete")
        writer = writer.foreachBatch(keep).option("checkpointLocation", str(query.folder))
        run(writer.trigger(availableNow=True).start())
    assert counts == {0: 8, 1: 8}


def test_two_sources_keep_their_places(query: Query) -> None:
    other = query.topics.create(1)
    query.topics.put_numbers(other, range(1000, 1003))
    query.put(range(4))

    def both(name: str) -> list[int]:
        engine = query.engines[name]
        one, two = (
            engine.stream(subscribe=topic, startingOffsets="earliest")
            for topic in (query.topic, other)
        )
        return _numbers(engine.collected(one.union(two), query.folder))

    assert both("kafka") == [*range(4), 1000, 1001, 1002]
    query.topics.put_numbers(other, [1003])
    assert both("klog") == [1003]
    new = query.put(range(4, 6))
    assert both("klog") == new
    query.topics.put_numbers(other, [1004])
    assert both("kafka") == [1004]


def test_a_moved_checkpoint_is_continued_by_both(query: Query) -> None:
    everything = query.put(range(20))
    assert query.run("kafka") == everything
    skipped = query.put(range(20, 30))
    move = ["checkpoint", "move", str(query.folder), "--execute"]
    move += ["--bootstrap-servers", query.topics.servers]
    assert main([*move, "--to-latest"]) == 0
    for name in ("kafka", "klog"):
        assert query.run(name) == []
        back = json.dumps({query.topic: {"0": 10, "1": 10}})
        assert main([*move, "--to-offsets", back]) == 0
        assert query.run(name) == skipped
