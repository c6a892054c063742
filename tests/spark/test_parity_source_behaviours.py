"""The source when topics, records and queries come and go: klog compared with the peer."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import NewTopic
from pyspark_klog.spark.planning.ranges import OffsetRange
from pyspark_klog.spark.planning.splitting import split
from tests.support.eventually import eventually
from tests.support.parity.scenarios import Collected, Engine, Parity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EARLIEST = {"startingOffsets": "earliest"}
QUICK = {"fetchOffset__retryIntervalMs": 10}


def _numbers(frame: "DataFrame") -> "DataFrame":
    return frame.selectExpr("partition", "int(string(value)) as n")


def _values(frame: "DataFrame") -> list[int]:
    return sorted(row.n for row in frame.collect())


def _rows(engine: Engine, collected: Collected, frame: "DataFrame") -> "DataFrame":
    return _numbers(engine.frame(collected.rows(), frame.schema))


def _json(topic: str, *numbers: int) -> str:
    return json.dumps({topic: {str(n): number for n, number in enumerate(numbers)}})


def _once(engine: Engine, frame: "DataFrame", checkpoint: Path, **trigger: Any) -> list[int]:
    """Return the numbers that one run reads."""
    return _values(_numbers(engine.drain(frame, checkpoint, **trigger)))


def _lists(engine: Engine, *runs: list[int]) -> "DataFrame":
    """A frame (run, n) of what several runs read."""
    rows = [(run, n) for run, numbers in enumerate(runs, 1) for n in numbers]
    return engine.frame(rows, "run int, n int")


def _runs(frame: "DataFrame") -> list[tuple[int, int]]:
    return sorted(tuple(row) for row in frame.collect())


# --- partitions and topics that come and go ------------------------------------------------------
@pytest.mark.parity("source behaviour: new partition during a query")
def test_a_new_partition_is_read_from_its_earliest(parity: Parity, tmp_path: Path) -> None:
    def stream(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        engine.topics.put_numbers(topic, [0])
        # A query that began at the end reads a new partition from its beginning, too.
        frame = engine.stream(subscribe=topic, startingOffsets=_json(topic, 0))
        collected = engine.start(frame, tmp_path)
        try:
            collected.wait_for(1)
            engine.topics.grow(topic, 2)
            engine.topics.put_numbers(topic, [100, 101], 1)
            collected.wait_for(3)
        finally:
            collected.stop()
        return _rows(engine, collected, frame)

    assert _values(parity.same(stream)) == [0, 100, 101]


@pytest.mark.parity("source option: subscribePattern")
@pytest.mark.parity("source behaviour: new topic during a query")
def test_a_new_topic_that_matches_joins_a_running_query(parity: Parity, tmp_path: Path) -> None:
    def stream(engine: Engine, starting: str, first: int) -> "DataFrame":
        prefix = engine.topics.create(1) + "-x"
        if first:
            engine.topics.put_numbers(engine.topics.create(1, f"{prefix}1"), [1])
        frame = engine.stream(subscribePattern=f"{prefix}.*", startingOffsets=starting)
        collected = engine.start(frame, tmp_path / f"{starting}-{first}")
        try:
            if first:
                collected.wait_for(1)
            else:  # The query runs and has found no records.
                eventually(
                    lambda: list(tmp_path.glob(f"{starting}-{first}/{engine.format}/metadata")),
                    deadline_s=60,
                )
                engine.topics.admin.list_topics()
            engine.topics.put_numbers(engine.topics.create(1, f"{prefix}2"), [2, 3])
            collected.wait_for(2 + first)
        finally:
            collected.stop()
        return _rows(engine, collected, frame)

    assert _values(parity.same(lambda engine: stream(engine, "earliest", 1))) == [1, 2, 3]
    assert _values(parity.same(lambda engine: stream(engine, "earliest", 0))) == [2, 3]


@pytest.mark.parity("source option: subscribePattern")
def test_a_pattern_without_a_match_at_first_skips_nothing_later(
    parity: Parity, tmp_path: Path
) -> None:
    def stream(engine: Engine) -> "DataFrame":
        prefix = engine.topics.create(1) + "-y"
        frame = engine.stream(subscribePattern=f"{prefix}.*")  # from latest
        first = _once(engine, frame, tmp_path)
        engine.topics.put_numbers(engine.topics.create(1, f"{prefix}1"), [1, 2])
        second = _once(engine, frame, tmp_path)
        return _lists(engine, first, second)

    assert _runs(parity.same(stream)) == [(2, 1), (2, 2)]


@pytest.fixture
def cutting(parity: Parity) -> Iterator[tuple[Parity, Callable[[Engine, str, int, int], None]]]:
    """Engines on a broker, and how to remove a partition's first records there.

    klog's broker removes by age: records before 1971 go within a moment, all of them.
    """
    if parity.has_peer:
        yield parity, _delete_records
        return
    with testing.Broker(log_retention_check_interval_ms=100, num_partitions=1) as broker:
        made = Parity(broker.bootstrap_servers, with_peer=False)
        yield made, _wait_for_retention
        made.close()


def _delete_records(engine: Engine, topic: str, partition: int, before: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": engine.topics.servers})
    for future in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        future.result(60)


def _wait_for_retention(engine: Engine, topic: str, partition: int, before: int) -> None:
    from pyspark_klog.client.cluster.blocking_client import BlockingClient
    from pyspark_klog.client.consumer.offsets import EARLIEST as FIRST
    from pyspark_klog.client.consumer.offsets import list_offsets
    from pyspark_klog.ids import TopicPartition

    place = TopicPartition(topic, partition)
    with BlockingClient({"bootstrap.servers": engine.topics.servers}) as client:
        eventually(
            lambda: list_offsets(client, {place: FIRST})[place].offset >= before, deadline_s=60
        )


def _short_lived(engine: Engine, partitions: int = 1) -> str:
    """A topic whose records are kept for a day."""
    topic = engine.topics.create(1)
    name = f"{topic}-short"
    settings = {"retention.ms": "86400000" if not engine.is_peer else "-1"}
    engine.topics.admin.create_topics([NewTopic(name, partitions, 1, settings)])
    return name


NOW_MS = time.time_ns() // 1_000_000
"""A timestamp that retention by age does not reach, and that is not in the future."""


def _put(engine: Engine, topic: str, numbers: range, partition: int = 0, at_ms: int = 1) -> None:
    rows = [(None, b"%d" % number) for number in numbers]
    engine.topics.put(topic, rows, partition, at_ms=at_ms)


@pytest.mark.parity("source behaviour: new partition without its first records")
@pytest.mark.parametrize("fail", [True, False])
def test_a_new_partition_that_lacks_its_beginning(
    cutting: tuple[Parity, Any], tmp_path: Path, fail: bool
) -> None:
    parity, cut = cutting

    def stream(engine: Engine) -> "DataFrame":
        topic = _short_lived(engine)
        _put(engine, topic, range(2), at_ms=NOW_MS)
        frame = engine.stream(subscribe=topic, **EARLIEST, failOnDataLoss=fail)
        first = _once(engine, frame, tmp_path)
        engine.topics.grow(topic, 2)
        _put(engine, topic, range(100, 103), 1)
        cut(engine, topic, 1, 3)
        _put(engine, topic, range(103, 105), 1, NOW_MS)
        return _lists(engine, first, _once(engine, frame, tmp_path))

    if fail:
        parity.same_failure(stream, "-1 is new and begins at offset 3: retention or DeleteReco")
    else:
        assert _runs(parity.same(stream)) == [(1, 0), (1, 1), (2, 103), (2, 104)]


def _topic_goes(engine: Engine, folder: Path, **options: Any) -> "DataFrame":
    stays, goes = engine.topics.create(1), engine.topics.create(2)
    engine.topics.put_numbers(stays, [1])
    engine.topics.put_numbers(goes, [2])
    assign = json.dumps({stays: [0], goes: [0, 1]})
    frame = engine.stream(assign=assign, **EARLIEST, **options, **QUICK)
    first = _once(engine, frame, folder)
    engine.topics.delete(goes)
    engine.topics.put_numbers(stays, [3])
    return _lists(engine, first, _once(engine, frame, folder))


@pytest.mark.parity("source behaviour: partition or topic gone")
def test_a_topic_that_is_gone_fails_the_query(parity: Parity, tmp_path: Path) -> None:
    words = "-0 is gone: it was read up to offset 1, and topic "
    text = parity.same_failure(lambda engine: _topic_goes(engine, tmp_path), words)
    assert " does not exist any more; " in text
    assert "to read on without the topic, set option failOnDataLoss=false" in text


@pytest.mark.parity("source behaviour: partition or topic gone", differs="topic-gone")
def test_a_topic_that_is_gone_is_dropped(parity: Parity, tmp_path: Path) -> None:
    def stream(engine: Engine) -> "DataFrame":
        return _topic_goes(engine, tmp_path, failOnDataLoss=False)

    assert _runs(parity.klog_only(stream)) == [(1, 1), (1, 2), (2, 3)]
    if parity.has_peer:
        assert "UnknownTopicOrPartition" in parity.failure("kafka", stream)


@pytest.mark.parity("source behaviour: pattern goes on with the topics left")
def test_a_pattern_goes_on_with_the_topics_left(parity: Parity, tmp_path: Path) -> None:
    def stream(engine: Engine) -> "DataFrame":
        prefix = engine.topics.create(1) + "-z"
        for number in (1, 2):
            engine.topics.put_numbers(engine.topics.create(1, f"{prefix}{number}"), [number])
        pattern = f"{prefix}.*"
        frame = engine.stream(subscribePattern=pattern, **EARLIEST, failOnDataLoss=False)
        first = _once(engine, frame, tmp_path)
        engine.topics.delete(f"{prefix}2")
        engine.topics.put_numbers(f"{prefix}1", [3])
        second = _once(engine, frame, tmp_path)
        engine.topics.put_numbers(engine.topics.create(1, f"{prefix}3"), [4])
        return _lists(engine, first, second, _once(engine, frame, tmp_path))

    assert _runs(parity.same(stream)) == [(1, 1), (1, 2), (2, 3), (3, 4)]


def _lives_through(engine: Engine, folder: Path, *, again: bool, **options: Any) -> "DataFrame":
    """Run a query on two topics while one is deleted and, with ``again``, created again."""
    prefix = engine.topics.create(1) + "-w"
    stays, goes = (engine.topics.create(1, f"{prefix}{number}") for number in (1, 2))
    engine.topics.put_numbers(stays, [1])
    engine.topics.put_numbers(goes, [2])
    frame = engine.stream(subscribePattern=f"{prefix}.*", **EARLIEST, **options, **QUICK)
    collected = engine.start(frame, folder)
    try:
        collected.wait_for(2)
        engine.topics.delete(goes)
        engine.topics.put_numbers(stays, [3])
        collected.wait_for(3)  # planned after the topic was deleted
        if again:
            eventually(lambda: engine.topics.create(1, goes), deadline_s=60)
            engine.topics.put_numbers(goes, [4, 5])
            collected.wait_for(5)
    finally:
        collected.stop()
    return _rows(engine, collected, frame)


@pytest.mark.parity("source behaviour: topic deleted during a query")
def test_a_topic_that_is_deleted_during_a_query(parity: Parity, tmp_path: Path) -> None:
    words = "-w2-0 is gone: it was read up to offset 1, and topic "
    parity.same_failure(lambda engine: _lives_through(engine, tmp_path, again=False), words)


@pytest.mark.parity("source behaviour: topic deleted during a query")
@pytest.mark.parity("source behaviour: topic recreated during a query")
@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_comes_and_goes_during_a_query(
    parity: Parity, tmp_path: Path, again: bool
) -> None:
    def stream(engine: Engine) -> "DataFrame":
        return _lives_through(engine, tmp_path, again=again, failOnDataLoss=False)

    assert _values(parity.same(stream)) == [1, 2, 3, *([4, 5] if again else [])]


@pytest.mark.parity("source behaviour: topic absent at start")
def test_a_topic_that_is_absent_at_the_start(parity: Parity, tmp_path: Path) -> None:
    options = {"subscribe": "there-is-no-such-topic", **QUICK}
    words = "topic there-is-no-such-topic does not exist"
    parity.same_failure(lambda engine: engine.batch(**options), words)
    parity.same_failure(lambda engine: engine.drain(engine.stream(**options), tmp_path), words)


@pytest.mark.parity("source behaviour: assign of an absent partition", differs="assign-absent")
def test_a_partition_that_is_absent_at_the_start(parity: Parity, tmp_path: Path) -> None:
    topic = parity.topics.create(1)
    parity.topics.put_numbers(topic, [1])
    assign = json.dumps({topic: [0, 7]})

    def batch(engine: Engine) -> "DataFrame":
        return _numbers(engine.batch(assign=assign, **QUICK))

    def stream(engine: Engine) -> "DataFrame":
        frame = engine.stream(assign=assign, **EARLIEST, **QUICK)
        return _numbers(engine.drain(frame, tmp_path))

    for scenario in (batch, stream):
        words = f"assign names partitions that do not exist: {topic}-7"
        assert words in parity.failure("klog", scenario)
        peer = parity.peer_only(scenario)
        assert peer is None or _values(peer) == [1]


@pytest.mark.parity("source behaviour: end before start on a stream")
@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_was_recreated(parity: Parity, tmp_path: Path, fail: bool) -> None:
    def stream(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        engine.topics.put_numbers(topic, range(5))
        frame = engine.stream(subscribe=topic, **EARLIEST, failOnDataLoss=fail, **QUICK)
        first = _once(engine, frame, tmp_path)
        engine.topics.delete(topic)
        eventually(lambda: engine.topics.create(1, topic), deadline_s=60)
        engine.topics.put_numbers(topic, [100, 101])
        second = _once(engine, frame, tmp_path)
        engine.topics.put_numbers(topic, [102])
        return _lists(engine, first, second, _once(engine, frame, tmp_path))

    if fail:
        words = "-0 ends at offset 2, before offset 5, where reading was to begin: its topic was"
        parity.same_failure(stream, words)
    else:
        # Records below the old position are skipped; later ones are read.
        assert _runs(parity.same(stream)) == [*((1, n) for n in range(5)), (3, 102)]


@pytest.mark.parity("source behaviour: end before start in batch")
def test_a_batch_that_would_end_before_it_begins(parity: Parity) -> None:
    topic = parity.topics.create(2)
    parity.topics.put_numbers(topic, range(5))
    words = f"a batch would end before it begins: {topic}-0 from 50 to 5; startingOffsets is bey"
    parity.same_failure(
        lambda engine: engine.batch(
            subscribe=topic, startingOffsets=_json(topic, 50, 0), kafkaConsumer__pollTimeoutMs=3_000
        ),
        words,
    )


# --- records that are not there ------------------------------------------------------------------
@pytest.mark.parity("source behaviour: offset out of range in a read")
@pytest.mark.parametrize("fail", [True, False])
def test_offsets_that_went_before_they_were_read(cutting: tuple[Parity, Any], fail: bool) -> None:
    parity, cut = cutting

    def batch(engine: Engine) -> "DataFrame":
        topic = _short_lived(engine)
        _put(engine, topic, range(5))
        cut(engine, topic, 0, 5)
        _put(engine, topic, range(5, 8), at_ms=NOW_MS)
        ends = {"startingOffsets": _json(topic, 2), "endingOffsets": _json(topic, 7)}
        return _numbers(engine.batch(subscribe=topic, **ends, failOnDataLoss=fail))

    def behind_the_end(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        engine.topics.put_numbers(topic, range(5))
        ends = {"endingOffsets": _json(topic, 9), "kafkaConsumer__pollTimeoutMs": 2_000}
        return _numbers(engine.batch(subscribe=topic, **ends, failOnDataLoss=fail))

    if fail:
        text = parity.same_failure(batch, "offsets 2 to 7 were to be read, and 5 to 8 are there")
        assert "offset 2 of" in text and "failOnDataLoss=false to read on from offset 5" in text
        text = parity.same_failure(behind_the_end, "could not be read within 2000 ms")
        assert "offsets 5 to 9 of" in text and "0 to 5 are there" in text
    else:
        assert _values(parity.same(batch)) == [5, 6]
        assert _values(parity.same(behind_the_end)) == list(range(5))


@pytest.mark.parity("source behaviour: empty range")
def test_an_empty_range_has_no_task(parity: Parity, tmp_path: Path) -> None:
    topic = parity.topics.create(3)
    parity.topics.put_numbers(topic, range(3), 1)
    engine = Engine("klog", parity.topics)  # type: ignore[arg-type]
    found = parity.same(lambda each: _numbers(each.batch(subscribe=topic)))
    assert _values(found) == [0, 1, 2]
    assert engine.batch(subscribe=topic).rdd.getNumPartitions() == 1
    frame = engine.stream(subscribe=topic, **EARLIEST).selectExpr("spark_partition_id() as task")
    assert {row.task for row in engine.drain(frame, tmp_path).collect()} == {0}
    offsets = {"startingOffsets": _json(topic, 0, 3, 0), "endingOffsets": _json(topic, 0, 3, 0)}
    assert parity.same(lambda each: _numbers(each.batch(subscribe=topic, **offsets))).count() == 0


@pytest.mark.parity("source behaviour: no timestamp match")
def test_a_stream_whose_start_by_time_has_no_match(parity: Parity, tmp_path: Path) -> None:
    def stream(engine: Engine, strategy: str) -> "DataFrame":
        topic = engine.topics.create(2)
        engine.topics.put_numbers(topic, range(3))
        engine.topics.put(topic, [(None, b"100")], 1, at_ms=9_000)
        options = {"startingTimestamp": 5_000, "startingOffsetsByTimestampStrategy": strategy}
        frame = engine.stream(subscribe=topic, **options)
        first = _once(engine, frame, tmp_path / strategy)
        engine.topics.put_numbers(topic, [3])
        return _lists(engine, first, _once(engine, frame, tmp_path / strategy))

    words = "startingTimestamp finds no record at or after the timestamp in"
    parity.same_failure(lambda engine: stream(engine, "error"), words)
    found = parity.same(lambda engine: stream(engine, "latest"))
    assert _runs(found) == [(1, 100), (2, 3)]


# --- batches -------------------------------------------------------------------------------------
@pytest.mark.parity("source behaviour: batch earliest and latest")
def test_earliest_and_latest_are_resolved_when_the_query_runs(parity: Parity) -> None:
    def batch(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        engine.topics.put_numbers(topic, range(3))
        frame = engine.batch(subscribe=topic)
        engine.topics.put_numbers(topic, range(3, 5))
        return _numbers(frame)

    assert _values(parity.same(batch)) == [0, 1, 2, 3, 4]


@pytest.mark.parity("source behaviour: self-join")
def test_a_self_join(parity: Parity) -> None:
    topic = parity.topics.create(2)
    parity.topics.put_numbers(topic, range(3))
    parity.topics.put_numbers(topic, range(2, 5), 1)

    def join(engine: Engine) -> "DataFrame":
        frame = engine.batch(subscribe=topic).selectExpr("int(string(value)) as n", "partition")
        left, right = frame.where("partition = 0"), frame.where("partition = 1")
        return left.join(right.select("n"), "n").select("n")

    assert _values(parity.same(join)) == [2]


@pytest.mark.parity("source behaviour: union")
def test_a_union_of_two_relations(parity: Parity) -> None:
    one, two = parity.topics.create(1), parity.topics.create(1)
    parity.topics.put_numbers(one, range(3))
    parity.topics.put_numbers(two, range(10, 12))

    def union(engine: Engine) -> "DataFrame":
        first = engine.batch(subscribe=one, endingOffsets=_json(one, 2))
        again = engine.batch(subscribe=one, startingOffsets=_json(one, 2))
        return _numbers(first.union(engine.batch(subscribe=two)).union(again).union(first))

    assert _values(parity.same(union)) == [0, 0, 1, 1, 2, 10, 11]


@pytest.mark.parity("source behaviour: reuse of one DataFrame")
def test_one_frame_is_used_twice(parity: Parity) -> None:
    topic = parity.topics.create(2)
    parity.topics.put_numbers(topic, range(4))

    def twice(engine: Engine) -> "DataFrame":
        frame = _numbers(engine.batch(subscribe=topic))
        counted = frame.count()
        some = [row.n for row in frame.where("n > 1").collect()]
        return engine.frame([(counted, *sorted(some), frame.count())], "a int, b int, c int, d int")

    assert [tuple(row) for row in parity.same(twice).collect()] == [(4, 2, 3, 4)]


@pytest.mark.parity("source behaviour: reuse of one DataFrame", differs="one-load-one-end")
def test_one_frame_does_not_return_old_rows(parity: Parity) -> None:
    def grown(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        engine.topics.put_numbers(topic, range(3))
        frame = engine.batch(subscribe=topic)
        before = frame.count()
        engine.topics.put_numbers(topic, range(3, 5))
        return engine.frame([(before, frame.count())], "before int, after int")

    text = parity.failure("klog", grown)
    assert "-0 ended at offset 3 then and ends at 5 now; call load() again" in text
    peer = parity.peer_only(grown)
    assert peer is None or [tuple(row) for row in peer.collect()] == [(3, 5)]


# --- restarts and triggers -----------------------------------------------------------------------
@pytest.mark.parity("source behaviour: restart")
@pytest.mark.parity("source behaviour: data added while stopped")
@pytest.mark.parity("source behaviour: partitions added while stopped")
def test_restarts_lose_nothing_and_repeat_nothing(parity: Parity, tmp_path: Path) -> None:
    def stream(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        engine.topics.put_numbers(topic, range(4))
        frame = engine.stream(subscribe=topic, **EARLIEST, maxOffsetsPerTrigger=3)
        runs = [_once(engine, frame, tmp_path), _once(engine, frame, tmp_path)]
        engine.topics.put_numbers(topic, range(4, 6))
        runs.append(_once(engine, frame, tmp_path))
        engine.topics.grow(topic, 2)
        engine.topics.put_numbers(topic, range(100, 102), 1)
        return _lists(engine, *runs, _once(engine, frame, tmp_path))

    expected = [(1, 0), (1, 1), (1, 2), (1, 3), (3, 4), (3, 5), (4, 100), (4, 101)]
    assert _runs(parity.same(stream)) == expected


@pytest.mark.parity("source behaviour: a start that can move is durable", differs="moving-start")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"startingOffsets": '{"$":{"0":-1}}'},
        {"startingTimestamp": 9_000, "startingOffsetsByTimestampStrategy": "latest"},
    ],
)
def test_a_start_that_can_move_is_durable(
    parity: Parity, tmp_path: Path, options: dict[str, Any]
) -> None:
    def stream(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        engine.topics.put_numbers(topic, range(4))
        given = {name: str(value).replace("$", topic) for name, value in options.items()}
        frame = engine.stream(subscribe=topic, **given)
        first = _once(engine, frame, tmp_path)
        if not engine.is_peer:
            folder = Path(engine.checkpoint(tmp_path))
            [end] = (folder / "offsets" / "0").read_text(encoding="utf-8").splitlines()[-1:]
            assert end == json.dumps({topic: {"0": 4}})
            # The driver died before batch 0 was committed.
            (folder / "commits" / "0").unlink()
            (folder / "commits" / ".0.crc").unlink()
        engine.topics.put_numbers(topic, range(4, 6))
        return _lists(engine, first, _once(engine, frame, tmp_path))

    assert _runs(parity.same(stream)) == [(2, 4), (2, 5)]


@pytest.mark.parity("release: 4.2 and later")
@pytest.mark.parity("source behaviour: AvailableNow")
def test_fifteen_records_at_most_five_are_three_batches(parity: Parity, tmp_path: Path) -> None:
    def sizes(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        engine.topics.put_numbers(topic, range(15))
        frame = engine.stream(subscribe=topic, **EARLIEST, maxOffsetsPerTrigger=5)
        return engine.batch_sizes(frame, tmp_path)

    assert [tuple(row) for row in parity.same(sizes).orderBy("batch").collect()] == [
        (1, 5),
        (2, 5),
        (3, 5),
    ]


def _while_running(
    engine: Engine, frame: "DataFrame", checkpoint: Path, happens: Callable[[], None]
) -> list[int]:
    """The numbers of an AvailableNow run in whose first batch with records something happens."""
    collected = Collected()
    done: list[int] = []

    def add(batch: "DataFrame", batch_id: int) -> None:
        collected.add(batch, batch_id)
        if collected.rows() and not done:
            done.append(batch_id)
            happens()

    writer = frame.writeStream.foreachBatch(add)
    writer = writer.option("checkpointLocation", engine.checkpoint(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return _values(_rows(engine, collected, frame))


@pytest.mark.parity("source behaviour: AvailableNow with added partitions")
def test_available_now_goes_on_when_partitions_are_added(parity: Parity, tmp_path: Path) -> None:
    def stream(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        engine.topics.put_numbers(topic, range(6))
        frame = engine.stream(subscribe=topic, **EARLIEST, maxOffsetsPerTrigger=2)

        def grow() -> None:
            engine.topics.grow(topic, 2)
            engine.topics.put_numbers(topic, [100], 1)
            engine.topics.put_numbers(topic, [6])

        # The end is fixed at the start: later records are for the next run.
        first = _while_running(engine, frame, tmp_path, grow)
        return _lists(engine, first, _once(engine, frame, tmp_path))

    expected = [*((1, n) for n in range(6)), (2, 6), (2, 100)]
    assert _runs(parity.same(stream)) == expected


@pytest.mark.parity("source behaviour: AvailableNow with a lost partition")
@pytest.mark.parametrize("shrinks", [False, True])
def test_available_now_fails_when_a_partition_is_lost_or_shrinks(
    parity: Parity, tmp_path: Path, shrinks: bool
) -> None:
    def stream(engine: Engine) -> "DataFrame":
        topics = [engine.topics.create(1), engine.topics.create(1)]
        for topic in topics:
            engine.topics.put_numbers(topic, range(6))
        frame = engine.stream(
            subscribe=",".join(topics),
            **EARLIEST,
            maxOffsetsPerTrigger=4,
            failOnDataLoss=False,
            **QUICK,
        )

        def lose() -> None:
            engine.topics.delete(topics[1])
            if shrinks:
                eventually(lambda: engine.topics.create(1, topics[1]), deadline_s=60)
                engine.topics.put_numbers(topics[1], [0])

        return _lists(engine, _while_running(engine, frame, tmp_path, lose))

    words = (
        "was deleted and made again while a query with the trigger AvailableNow was running; give"
        if shrinks
        else "-0 vanished while a query with the trigger AvailableNow was running: start it again"
    )
    parity.same_failure(stream, words)


@pytest.mark.parity("source behaviour: Once")
def test_once_is_one_batch_without_limit(parity: Parity, tmp_path: Path) -> None:
    def sizes(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        engine.topics.put_numbers(topic, range(15))
        frame = engine.stream(subscribe=topic, **EARLIEST, maxOffsetsPerTrigger=5)
        return engine.batch_sizes(frame, tmp_path, once=True)

    assert [tuple(row) for row in parity.same(sizes).collect()] == [(1, 15)]


@pytest.mark.parity("source behaviour: Long.Max limit")
def test_the_largest_limit_does_not_overflow(parity: Parity, tmp_path: Path) -> None:
    def sizes(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(2)
        engine.topics.put_numbers(topic, range(4))
        engine.topics.put_numbers(topic, range(3), 1)
        frame = engine.stream(subscribe=topic, **EARLIEST, maxOffsetsPerTrigger=2**63 - 1)
        return engine.batch_sizes(frame, tmp_path)

    assert [tuple(row) for row in parity.same(sizes).collect()] == [(1, 7)]


@pytest.mark.parity("source behaviour: idle source in a union")
@pytest.mark.parity("source behaviour: two sources in one query")
def test_two_sources_keep_their_own_offsets(parity: Parity, tmp_path: Path) -> None:
    def stream(engine: Engine) -> "DataFrame":
        busy, idle = engine.topics.create(1), engine.topics.create(1)
        engine.topics.put_numbers(busy, range(3))
        engine.topics.put_numbers(idle, [100])

        def run() -> list[int]:
            frames = [engine.stream(subscribe=topic, **EARLIEST) for topic in (busy, idle)]
            return _once(engine, frames[0].union(frames[1]), tmp_path)

        first = run()
        engine.topics.put_numbers(busy, range(3, 5))
        second = run()
        engine.topics.put_numbers(idle, [101])
        return _lists(engine, first, second, run())

    expected = [(1, 0), (1, 1), (1, 2), (1, 100), (2, 3), (2, 4), (3, 101)]
    assert _runs(parity.same(stream)) == expected


@pytest.mark.parity("source behaviour: minPartitions splits")
@pytest.mark.parametrize(
    ("counts", "least", "expected"),
    [
        ((8,), 4, [2, 2, 2, 2]),  # 1 to N
        ((4, 4), 2, [4, 4]),  # N to N
        ((4, 4, 4), 2, [4, 4, 4]),  # fewer than partitions
        ((90, 3), 4, [3, 30, 30, 30]),  # skewed: the small range keeps its task together
    ],
)
def test_min_partitions_drops_no_offset(
    parity: Parity, counts: tuple[int, ...], least: int, expected: list[int]
) -> None:
    topic = parity.topics.create(len(counts))
    for partition, count in enumerate(counts):
        parity.topics.put_numbers(topic, range(100 * partition, 100 * partition + count), partition)

    def batch(engine: Engine) -> "DataFrame":
        frame = engine.batch(subscribe=topic, minPartitions=least)
        rows = frame.selectExpr("spark_partition_id() as task", "partition", "offset").collect()
        sizes = Counter(row.task for row in rows)
        records = [(row.partition, row.offset, sizes[row.task]) for row in rows]
        return engine.frame(records, "partition int, offset long, in_task long")

    found = sorted(parity.same(batch).collect())
    records = [(partition, n) for partition, count in enumerate(counts) for n in range(count)]
    assert [(row.partition, row.offset) for row in found] == records
    assert sorted(row.in_task for row in found) == [n for n in expected for _ in range(n)]


@pytest.mark.parity("source behaviour: minPartitions splits")
def test_the_number_of_tasks_is_the_peers(parity: Parity) -> None:
    """Against the peer's own calculator, where it is there; else two cases worked out by hand."""
    chance = random.Random(11)
    cases: list[tuple[list[int], int | None, int | None]] = [
        ([1_000, 10, 300], 7, None),
        ([1_000, 10, 300], 9, 400),
    ]
    for _ in range(60):
        sizes = [chance.choice([1, 3, 10, 1_000, 12_345]) for _ in range(chance.randint(1, 5))]
        most = chance.choice([None, None, chance.randint(100, 20_000)])
        cases.append((sizes, chance.choice([None, *range(1, 40)]), most))
    counts = [_pieces(*case) for case in cases]
    assert counts[:2] == [[5, 1, 1], [6, 1, 2]]
    if parity.has_peer:
        for case, count in zip(cases, counts, strict=True):
            assert count == _pieces_of_the_peer(parity, *case), case


def _pieces(sizes: list[int], least: int | None, most: int | None) -> list[int]:
    """How many pieces each range is cut into."""
    ranges = [OffsetRange("t", n, 50, 50 + size) for n, size in enumerate(sizes)]
    cut = Counter(piece.partition for piece in split(ranges, least, most))
    return [cut[number] for number in range(len(sizes))]


def _pieces_of_the_peer(
    parity: Parity, sizes: list[int], least: int | None, most: int | None
) -> list[int]:
    jvm: Any = parity.spark._jvm
    options = jvm.java.util.HashMap()
    for name, value in (("minPartitions", least), ("maxRecordsPerPartition", most)):
        if value is not None:
            options.put(name, str(value))
    given = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(options)
    peer = jvm.org.apache.spark.sql.kafka010
    ranges = jvm.java.util.ArrayList()
    for number, size in enumerate(sizes):
        place = jvm.org.apache.kafka.common.TopicPartition("t", number)
        ranges.add(peer.KafkaOffsetRange(place, 50, 50 + size, jvm.scala.Option.empty()))
    convert = jvm.scala.jdk.javaapi.CollectionConverters
    nobody = convert.asScala(jvm.java.util.ArrayList()).toSeq()
    found = peer.KafkaOffsetRangeCalculator.apply(given).getRanges(
        convert.asScala(ranges).toSeq(), nobody
    )
    cut = Counter(piece.partition() for piece in convert.asJava(found))
    return [cut[number] for number in range(len(sizes))]
