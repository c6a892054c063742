"""Topics that are deleted and made again while nobody looks: found by their ids.

Spark's own connector finds them only where they are shorter than what was read.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.eventually import eventually
from tests.support.parity.scenarios import Collected, Engine, Parity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUICK = {"fetchOffset__retryIntervalMs": 10, "kafka__retry__backoff__ms": 10}
EARLIEST = {"startingOffsets": "earliest", **QUICK}


def _numbers(engine: Engine, rows: list[Any]) -> "DataFrame":
    return engine.frame([(int(row.value),) for row in rows], "n int")


def _values(frame: "DataFrame") -> list[int]:
    return sorted(row.n for row in frame.collect())


def _make_again(engine: Engine, topic: str, count: int) -> None:
    """Another topic of that name, with the numbers from 100 on."""
    engine.topics.delete(topic)
    eventually(lambda: engine.topics.create(1, topic), deadline_s=60)
    engine.topics.put_numbers(topic, range(100, 100 + count))


def _start(
    engine: Engine, frame: "DataFrame", folder: Path, after_first: Callable[[], None]
) -> Collected:
    """A query within whose first micro-batch something happens, when its records are read."""
    collected = Collected()

    def add(rows: "DataFrame", number: int) -> None:
        collected.add(rows, number)
        if number == 0:
            after_first()

    writer = frame.writeStream.foreachBatch(add).trigger(processingTime="0 seconds")
    writer = writer.option("checkpointLocation", engine.checkpoint(folder))
    collected.query = writer.start()
    return collected


def _lives_through(
    engine: Engine, folder: Path, count: int, expected: int, **options: Any
) -> "DataFrame":
    """Three records are read; then there is another topic, with ``count`` of them."""
    topic = engine.topics.create(1)
    engine.topics.put_numbers(topic, range(3))
    frame = engine.stream(subscribe=topic, **EARLIEST, **options)
    collected = _start(engine, frame, folder, lambda: _make_again(engine, topic, count))
    try:
        collected.wait_for(expected)
    finally:
        collected.stop()
    return _numbers(engine, collected.rows())


@pytest.mark.parity("source behaviour: topic made again unseen", differs="topic-made-again")
def test_a_longer_topic_in_its_place_fails_a_running_query(parity: Parity, tmp_path: Path) -> None:
    text = parity.failure("klog", lambda e: _lives_through(e, tmp_path, 5, 8))
    assert "was deleted and made again (its id was " in text
    assert "give a stream a new checkpointLocation" in text
    peer = parity.peer_only(lambda e: _lives_through(e, tmp_path, 5, 5))
    assert peer is None or _values(peer) == [0, 1, 2, 103, 104]


@pytest.mark.parity("source behaviour: topic made again unseen", differs="topic-made-again")
def test_a_topic_in_its_place_is_read_whole_without_fail_on_data_loss(
    parity: Parity, tmp_path: Path
) -> None:
    """Though it is as long as the old one, and its end the same."""
    frame = parity.klog_only(lambda e: _lives_through(e, tmp_path, 3, 6, failOnDataLoss=False))
    assert _values(frame) == [0, 1, 2, 100, 101, 102]


@pytest.mark.parity("source behaviour: topic made again unseen", differs="topic-made-again")
@pytest.mark.parametrize("fail", [True, False])
def test_tasks_read_the_topic_for_which_they_were_planned(parity: Parity, fail: bool) -> None:
    """Spark plans a batch once for each load(): the second action has the plan of the first."""

    def batch(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        engine.topics.put_numbers(topic, range(3))
        bounds = {
            "startingOffsets": json.dumps({topic: {"0": 0}}),
            "endingOffsets": json.dumps({topic: {"0": 3}}),
        }
        frame = engine.batch(subscribe=topic, failOnDataLoss=fail, **bounds, **QUICK)
        assert frame.count() == 3
        _make_again(engine, topic, 5)
        return _numbers(engine, frame.collect())

    if fail:
        text = parity.failure("klog", batch)
        assert "was deleted and made again (its id was " in text
        assert "offsets 0 to 3 of " in text and "run the query again" in text
    else:
        assert _values(parity.klog_only(batch)) == []
    peer = parity.peer_only(batch)
    assert peer is None or _values(peer) == [100, 101, 102]


@pytest.mark.parity("source behaviour: topic made again between runs")
def test_after_a_restart_a_longer_topic_is_taken_for_the_old_one(
    parity: Parity, tmp_path: Path
) -> None:
    """The checkpoint has names and offsets alone, as the peer's."""

    def stream(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        engine.topics.put_numbers(topic, range(3))
        frame = engine.stream(subscribe=topic, **EARLIEST)
        first = engine.collected(frame, tmp_path).rows()
        _make_again(engine, topic, 5)
        return _numbers(engine, first + engine.collected(frame, tmp_path).rows())

    assert _values(parity.same(stream)) == [0, 1, 2, 103, 104]


@pytest.mark.parity("source behaviour: options that name a topic no more")
def test_a_topic_that_options_name_no_more_is_not_called_gone(
    parity: Parity, tmp_path: Path
) -> None:
    def stream(engine: Engine) -> "DataFrame":
        stays, leaves = engine.topics.create(1), engine.topics.create(1)
        engine.topics.put_numbers(leaves, [1])
        both = engine.stream(subscribe=f"{stays},{leaves}", **EARLIEST)
        engine.collected(both, tmp_path)
        engine.topics.put_numbers(stays, [2])
        return engine.drain(engine.stream(subscribe=stays, **EARLIEST), tmp_path)

    words = "-0 is not read any more: it was read up to offset 1, and option subscribe does not"
    text = parity.same_failure(stream, words)
    assert "is gone" not in text
