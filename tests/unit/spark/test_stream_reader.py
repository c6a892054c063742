"""The stream source's decisions, with made-up brokers."""

import pickle
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import DataLost, OffsetError, OptionError
from pyspark_klog.spark.offsets import EARLIEST, LATEST, Offsets
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.planning.discovery import Discovery
from pyspark_klog.spark.planning.losses import Loss, topic_deleted
from pyspark_klog.spark.planning.samples import Sample
from pyspark_klog.spark.source.reader import RangePartition
from pyspark_klog.spark.source.stream_reader import LimitedStreamReader, PlainStreamReader


class _Paper(Discovery):
    """Partitions with a begin and an end each.

    ``questions`` counts requests for ends, ``looks`` requests for the existing partitions;
    ``known`` is the argument of the last such request.
    """

    def __init__(self, options: Options, **topic: tuple[int, int]) -> None:
        self._options = options
        self._pattern = None
        self.questions = 0
        self.looks = 0
        self.known: Collection[TopicPartition] | None = None
        self.log = {TopicPartition("t", int(n[1:])): bounds for n, bounds in topic.items()}
        self.ids = {"t": UUID(int=1)}
        self.transactions: dict[TopicPartition, str] = {}

    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.log)

    def existing_partitions(
        self, known: Collection[TopicPartition] | None = None
    ) -> frozenset[TopicPartition]:
        self.looks += 1
        self.known = known
        return frozenset(self.log)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def recreated_topics(self, known: Mapping[str, UUID]) -> dict[str, UUID]:
        return {t: found for t, found in self.topic_ids(known).items() if found != known[t]}

    def absence(self, partition: TopicPartition, until: str) -> Loss:
        return topic_deleted(partition, until)

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {p: self.log[p][0] for p in partitions}

    def latest(
        self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int]
    ) -> Offsets:
        self.questions += 1
        return {p: self.log[p][1] for p in partitions}

    def open_transactions(
        self, start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str]:
        behind = {p for p, end in ends.items() if end < start.get(p, 0)}
        return {p: text for p, text in self.transactions.items() if p in behind}

    def at_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> Offsets:
        """The record at each offset is as old as its offset."""
        found = {p: max(time, self.log[p][0]) for p, time in timestamps_ms.items()}
        return {p: offset for p, offset in found.items() if offset < self.log[p][1]}


class _Clock:
    """Stands for the client: every look at the clock is ``step_ms`` later."""

    def __init__(self) -> None:
        self.now = 0
        self.step_ms = 1_000
        self.waits: list[int] = []

    def now_ms(self) -> int:
        self.now += self.step_ms
        return self.now

    def sleep_ms(self, wait_ms: int) -> None:
        self.waits.append(wait_ms)
        self.now += wait_ms


def _options(**given: str) -> Options:
    servers = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}
    return read_options(servers | given).for_stream()


def _reader(paper_topic: dict[str, tuple[int, int]], **given: str) -> tuple[Any, _Paper]:
    options = _options(**given)
    reader = LimitedStreamReader(options, None)
    paper = _Paper(options, **paper_topic)
    reader._discovery = paper
    reader._client = cast(Any, _Clock())
    return reader, paper


def _ranges(partitions: Iterable[object]) -> list[tuple[Any, ...]]:
    return [tuple(cast(RangePartition, p).offsets) for p in partitions]


def test_a_start_that_cannot_move_is_given_at_once() -> None:
    reader, paper = _reader({"p0": (3, 9)}, startingOffsets="earliest")
    assert reader.initialOffset() == {"t": {"0": 3}}
    paper.log[TopicPartition("t", 0)] = (5, 9)
    assert reader.initialOffset() == {"t": {"0": 3}}


@pytest.mark.parametrize("starting", ["latest", '{"t":{"0":4,"1":-1}}'])
def test_a_start_that_can_move_is_made_durable_by_an_empty_batch(starting: str) -> None:
    reader, paper = _reader({"p0": (3, 9), "p1": (0, 7)}, startingOffsets=starting)
    assert reader.initialOffset() == {}
    end = reader.latestOffset({}, ReadAllAvailable())
    assert end == {"t": {"0": 9 if starting == "latest" else 4, "1": 7}}
    assert reader.partitions({}, end) == []
    paper.log[TopicPartition("t", 1)] = (0, 8)
    following = reader.latestOffset(end, ReadAllAvailable())
    assert ("t", 1, 7, 8) in _ranges(reader.partitions(end, following))


def test_a_limit_is_shared_by_the_backlogs() -> None:
    reader, _ = _reader({"p0": (0, 30), "p1": (0, 70)}, maxOffsetsPerTrigger="10")
    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    start = {"t": {"0": 0, "1": 0}}
    assert reader.latestOffset(start, ReadMaxRows(10)) == {"t": {"0": 3, "1": 7}}
    assert reader.latestOffset(start, ReadAllAvailable()) == {"t": {"0": 30, "1": 70}}


@pytest.mark.parity("own option: idleWaitMs")
def test_only_a_poll_after_an_empty_one_waits_and_only_as_long_as_is_left() -> None:
    reader, paper = _reader({"p0": (0, 30)}, idleWaitMs="40")
    reader._client.step_ms = 10
    start = {"t": {"0": 30}}
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert reader._client.waits == []
    for _ in range(2):
        assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert reader._client.waits == [30, 30]
    assert paper.questions == 3, "an idle poll asks once for the ends"
    paper.log[TopicPartition("t", 0)] = (0, 31)
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.latestOffset(end, ReadAllAvailable())
    assert reader._client.waits == [30, 30, 30], "there was something to read: no wait"
    reader._client.step_ms = 40
    reader.latestOffset(end, ReadAllAvailable())
    assert reader._client.waits == [30, 30, 30], "the trigger has waited already"


@pytest.mark.parity("own option: idleWaitMs")
def test_partitions_are_looked_for_twice_a_second_and_ends_once_a_batch() -> None:
    reader, paper = _reader({"p0": (0, 30)})
    reader._client.step_ms = 0
    position = {"t": {"0": 30}}
    for batch in range(1, 5):
        paper.log[TopicPartition("t", 0)] = (0, 30 + batch)
        end = reader.latestOffset(position, ReadAllAvailable())
        assert len(reader.partitions(position, end)) == 1
        position = end
        reader._client.now += 150
    assert paper.questions == 4
    assert paper.looks == 1
    reader._client.now += 500
    reader.latestOffset(position, ReadAllAvailable())
    assert paper.looks == 2


def test_partitions_that_were_there_are_not_believed_to_be_gone_at_once() -> None:
    p0, p1 = TopicPartition("t", 0), TopicPartition("t", 1)
    reader, paper = _reader({"p0": (0, 3), "p1": (0, 3)}, failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    assert paper.known is None, "nothing but the options says what there is"
    reader, paper = _reader({"p0": (0, 3), "p1": (0, 3)}, failOnDataLoss="false")
    reader.latestOffset({"t": {"0": 3}}, ReadAllAvailable())
    assert set(paper.known or ()) == {p0}, "the checkpoint says so"
    del paper.log[p0]
    reader.latestOffset({"t": {"0": 3, "1": 3}}, ReadAllAvailable())
    assert set(paper.known or ()) == {p0, p1}
    reader.latestOffset({"t": {"1": 3}}, ReadAllAvailable())
    assert set(paper.known or ()) == {p1}


def test_no_idle_wait_if_it_is_zero() -> None:
    reader, _ = _reader({"p0": (0, 30)}, idleWaitMs="0")
    reader._client.step_ms = 0
    for _ in range(3):
        reader.latestOffset({"t": {"0": 30}}, ReadAllAvailable())
    assert reader._client.waits == []


def test_a_new_partition_is_read_from_its_earliest() -> None:
    reader, paper = _reader({"p0": (0, 3)})
    paper.log[TopicPartition("t", 1)] = (0, 5)
    end = reader.latestOffset({"t": {"0": 3}}, ReadAllAvailable())
    assert end == {"t": {"0": 3, "1": 5}}
    assert _ranges(reader.partitions({"t": {"0": 3}}, end)) == [("t", 1, 0, 5)]


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ({"p0": (0, 3), "p1": (2, 5)}, "t-1 is new and begins at offset 2"),
        ({"p1": (0, 5)}, "t-0 is gone: it was read up to offset 3"),
        ({"p0": (0, 1)}, "t-0 ends at offset 1, before offset 3"),
    ],
)
def test_what_is_lost_fails_the_query_before_it_is_logged(
    log: dict[str, tuple[int, int]], words: str
) -> None:
    reader, _ = _reader(log)
    with pytest.raises(DataLost, match=words) as caught:
        reader.latestOffset({"t": {"0": 3}}, ReadAllAvailable())
    assert "failOnDataLoss=false" in str(caught.value)


def test_without_fail_on_data_loss_the_query_goes_on_with_what_is_there() -> None:
    reader, _ = _reader({"p0": (0, 1), "p1": (2, 5)}, failOnDataLoss="false")
    start = {"t": {"0": 3, "2": 8}}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"t": {"0": 1, "1": 5}}
    assert _ranges(reader.partitions(start, end)) == [("t", 1, 2, 5)]


def test_when_everything_is_gone_the_position_is_kept() -> None:
    reader, _ = _reader({}, failOnDataLoss="false")
    assert reader.latestOffset({"t": {"0": 3}}, ReadAllAvailable()) == {"t": {"0": 3}}


def test_available_now_reads_to_the_end_that_was_there_at_its_start() -> None:
    reader, paper = _reader({"p0": (0, 5)}, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    position = reader.initialOffset()
    paper.log[TopicPartition("t", 0)] = (0, 50)
    paper.log[TopicPartition("t", 1)] = (0, 50)
    for _ in range(3):
        position = reader.latestOffset(position, ReadMaxRows(2))
    assert position == {"t": {"0": 5}}
    assert reader.latestOffset(position, ReadMaxRows(2)) == position


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_partition_that_comes_while_a_run_begins_is_no_loss(starting: str) -> None:
    reader, paper = _reader({}, startingOffsets=starting)
    reader.prepareForTriggerAvailableNow()
    paper.log[TopicPartition("t", 0)] = (2, 5)
    start = reader.initialOffset()
    paper.log[TopicPartition("t", 0)] = (2, 50)
    end = reader.latestOffset(start, ReadAllAvailable())
    if starting == "latest":
        # The first, empty batch makes the start durable; nothing is left to be read after it.
        assert reader.partitions(start, end) == []
        assert reader.latestOffset(end, ReadAllAvailable()) == end
    else:
        assert _ranges(reader.partitions(start, end)) == [("t", 0, 2, 5)]


def test_available_now_fails_if_what_it_reads_goes_away() -> None:
    reader, paper = _reader({"p0": (0, 5), "p1": (0, 5)}, failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    start, end = {"t": {"0": 0, "1": 0}}, {"t": {"0": 5, "1": 5}}
    del paper.log[TopicPartition("t", 1)]
    with pytest.raises(DataLost, match="t-1 vanished"):
        reader.partitions(start, end)
    paper.log[TopicPartition("t", 1)] = (0, 4)
    with pytest.raises(DataLost, match="t-1 ends at offset 4 now"):
        reader.partitions(start, end)


def test_the_ends_are_reported_for_the_progress() -> None:
    reader, _ = _reader({"p0": (0, 30)}, startingOffsets="earliest")
    assert reader.reportLatestOffset() is None
    reader.latestOffset({"t": {"0": 0}}, ReadMaxRows(3))
    assert reader.reportLatestOffset() == {"t": {"0": 30}}


def test_readers_travel_without_connections() -> None:
    reader, _ = _reader({"p0": (0, 3)}, startingOffsets="earliest")
    reader.initialOffset()
    copy = pickle.loads(pickle.dumps(reader))
    assert copy._options == reader._options
    assert copy._client is None and copy._discovery is None


def test_what_was_refused_is_said_at_the_first_use() -> None:
    reader = LimitedStreamReader(_options(), OptionError("no"))
    for use in (
        reader.initialOffset,
        reader.getDefaultReadLimit,
        reader.prepareForTriggerAvailableNow,
        lambda: reader.partitions({}, {}),
        lambda: reader.latestOffset({}, ReadAllAvailable()),
    ):
        with pytest.raises(OptionError, match=r"^no$"):
            use()


# --- advice by cause -----------------------------------------------------------------------------
@pytest.mark.parametrize("is_old_spark", [False, True])
@pytest.mark.parametrize("is_planned", [False, True])
def test_a_checkpoint_of_other_topics_is_taken_for_another_querys(
    is_old_spark: bool, is_planned: bool
) -> None:
    reader, _ = (_plain if is_old_spark else _reader)({"p0": (0, 3)})
    start, end = {"a": {"0": 3}, "b": {"0": 1}}, {"a": {"0": 5}, "b": {"0": 1}}
    with pytest.raises(DataLost) as caught:
        if is_planned:
            reader.partitions(start, end)
        elif is_old_spark:
            reader.partitions(start, start)
            reader.latestOffset()
        else:
            reader.latestOffset(start, ReadAllAvailable())
    assert str(caught.value) == (
        "the checkpoint has offsets of topic a, b, and option subscribe (t) selects none of them "
        "(is this another query's checkpointLocation?); give each query a checkpointLocation of "
        "its own, and a new one if it is to read other topics than before"
    )


def test_a_checkpoint_of_some_other_topics_is_not_taken_for_another_querys() -> None:
    reader, _ = _reader({"p0": (0, 3)})
    with pytest.raises(DataLost, match=r"^a-0 is gone: it was read up to offset 3"):
        reader.latestOffset({"a": {"0": 3}, "t": {"0": 1}}, ReadAllAvailable())


@pytest.mark.parametrize("is_old_spark", [False, True])
@pytest.mark.parametrize("offsets", ['{"0":9,"1":5}', '{"0":9,"1":-1}'])
def test_a_start_beyond_the_end_fails_before_it_is_in_the_checkpoint(
    is_old_spark: bool, offsets: str
) -> None:
    """A start in the checkpoint would be used again after the option is corrected."""
    reader, _ = (_plain if is_old_spark else _reader)(
        {"p0": (0, 5), "p1": (0, 5)}, startingOffsets=f'{{"t":{offsets}}}'
    )
    with pytest.raises(DataLost) as caught:
        reader.latestOffset(*(() if is_old_spark else (reader.initialOffset(), None)))
    assert str(caught.value) == (
        "startingOffsets is beyond the end: it names offset 9 of t-0, which ends at offset 5; give "
        "offsets up to the end, or latest, and check the topic and kafka.bootstrap.servers"
    )


def test_a_start_beyond_the_end_begins_at_the_end_without_fail_on_data_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader, paper = _reader({"p0": (0, 5)}, startingOffsets='{"t":{"0":9}}', failOnDataLoss="false")
    start = reader.initialOffset()
    assert start == {"t": {"0": 5}}
    assert caplog.messages == [
        "some data may have been lost: startingOffsets is beyond the end: it names offset 9 of "
        "t-0, which ends at offset 5"
    ]
    paper.log[TopicPartition("t", 0)] = (0, 7)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert _ranges(reader.partitions(start, end)) == [("t", 0, 5, 7)]


def test_a_start_behind_an_open_transaction_is_not_beyond_the_end() -> None:
    reader, paper = _reader({"p0": (0, 5)}, startingOffsets='{"t":{"0":9}}')
    paper.transactions = {TopicPartition("t", 0): "t-0 has an open transaction"}
    with pytest.raises(DataLost, match="nothing is lost: run the query again when"):
        reader.initialOffset()


# --- topics that were deleted and made again -----------------------------------------------------
_AGAIN = r"topic t was deleted and made again \(its id was 0{8}.*-0{11}1, and is 0{8}.*-0{11}2 now"


def _make_again(reader: Any, paper: _Paper, **topic: tuple[int, int]) -> None:
    """Another topic of the same name, which the reader can see now."""
    paper.ids = {"t": UUID(int=2)}
    paper.log = {TopicPartition("t", int(n[1:])): bounds for n, bounds in topic.items()}
    reader._client.now += 1_000


@pytest.mark.parity("source behaviour: topic made again unseen", differs="topic-made-again")
@pytest.mark.parametrize("length", [2, 3, 8])
@pytest.mark.parametrize("is_old_spark", [False, True])
def test_a_topic_made_again_fails_a_query_that_runs_whatever_its_length(
    length: int, is_old_spark: bool
) -> None:
    reader, paper = (_plain if is_old_spark else _reader)({"p0": (0, 3)})
    start = {"t": {"0": 3}}
    reader.partitions(start, start)
    look = (lambda: reader.latestOffset()) if is_old_spark else lambda: _look(reader, start)
    assert look() == start
    _make_again(reader, paper, p0=(0, length))
    with pytest.raises(DataLost, match=_AGAIN) as caught:
        look()
    assert '{"t": {"0": 3}}; give a stream a new checkpointLocation, or move' in str(caught.value)
    assert "failOnDataLoss" not in str(caught.value), "another run would not know the old id"


def _look(reader: Any, start: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    end: dict[str, dict[str, int]] = reader.latestOffset(start, ReadAllAvailable())
    return end


@pytest.mark.parametrize("length", [2, 3, 8])
@pytest.mark.parametrize("is_old_spark", [False, True])
def test_a_topic_made_again_is_read_from_its_beginning_without_fail_on_data_loss(
    length: int, is_old_spark: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch without records makes the loss durable, in plain offsets; the new topic follows."""
    made = (_plain if is_old_spark else _reader)(
        {"p0": (0, 3), "p1": (0, 9)}, failOnDataLoss="false"
    )
    reader, paper = made
    start = {"t": {"0": 3, "1": 9}}
    reader.partitions(start, start)
    look = (lambda _: reader.latestOffset()) if is_old_spark else lambda at: _look(reader, at)
    assert look(start) == start
    _make_again(reader, paper, p0=(1, length))
    caplog.clear()
    anew = look(start)
    assert anew == {"t": {"0": 1}}
    assert reader.partitions(start, anew) == []
    assert "ends at offset" not in caplog.text and "the new one is read from its" in caplog.text
    end = look(anew)
    assert end == {"t": {"0": length}}
    assert _ranges(reader.partitions(anew, end)) == [("t", 0, 1, length)]
    assert look(end) == end, "its id is known now"


def test_tasks_get_the_id_of_their_topic() -> None:
    reader, paper = _reader({"p0": (0, 3)}, failOnDataLoss="false")
    start, end = {"t": {"0": 0}}, {"t": {"0": 3}}
    [task] = reader.partitions(start, end)
    assert pickle.loads(pickle.dumps(task)).topic_id == UUID(int=1)
    _make_again(reader, paper, p0=(0, 8))
    assert reader.partitions(start, end) == [], "these offsets were the old topic's"
    assert _look(reader, start) == {"t": {"0": 8}}


def test_a_topic_that_was_absent_is_new_under_any_id() -> None:
    reader, paper = _reader({"p0": (0, 3)})
    position = _look(reader, {"t": {"0": 0}})
    _make_again(reader, paper, p0=(0, 8))
    end = _look(reader, {"s": {}})
    [task] = reader.partitions({"s": {}}, end)
    assert position != end
    assert (tuple(task.offsets), task.topic_id) == (("t", 0, 0, 8), UUID(int=2))


def test_brokers_without_ids_distinguish_no_topics() -> None:
    reader, paper = _reader({"p0": (0, 3)})
    paper.ids = {}
    [task] = reader.partitions({"t": {"0": 0}}, {"t": {"0": 3}})
    assert task.topic_id == UUID(int=0)
    paper.ids = {"t": UUID(int=1)}  # the brokers were upgraded
    reader._client.now += 1_000
    assert _look(reader, {"t": {"0": 3}}) == {"t": {"0": 3}}
    paper.ids = {}  # one broker was not upgraded
    reader._client.now += 1_000
    assert _look(reader, {"t": {"0": 3}}) == {"t": {"0": 3}}


def test_available_now_fails_if_what_it_reads_is_made_again() -> None:
    reader, paper = _reader({"p0": (0, 5)}, failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    _make_again(reader, paper, p0=(0, 9))
    with pytest.raises(DataLost, match="made again while a query with the trigger AvailableNow"):
        reader.partitions({"t": {"0": 0}}, {"t": {"0": 5}})


# --- starts by time ------------------------------------------------------------------------------
def test_a_start_by_time_is_given_at_once_under_the_strategy_error() -> None:
    reader, _ = _reader({"p0": (3, 9), "p1": (0, 7)}, startingTimestamp="5")
    assert reader.initialOffset() == {"t": {"0": 5, "1": 5}}
    reader, _ = _reader(
        {"p0": (3, 9), "p1": (0, 7)}, startingOffsetsByTimestamp='{"t":{"0":8,"1":1}}'
    )
    assert reader.initialOffset() == {"t": {"0": 8, "1": 1}}


def test_a_start_by_time_without_a_match() -> None:
    reader, _ = _reader({"p0": (3, 9), "p1": (0, 7)}, startingTimestamp="7")
    with pytest.raises(OffsetError, match=r"startingTimestamp finds no record .* in t-1 at 7; "):
        reader.initialOffset()
    reader, paper = _reader(
        {"p0": (3, 9), "p1": (0, 7)},
        startingTimestamp="7",
        startingOffsetsByTimestampStrategy="latest",
    )
    assert reader.initialOffset() == {}
    end = reader.latestOffset({}, ReadAllAvailable())
    assert end == {"t": {"0": 7, "1": 7}}
    assert reader.partitions({}, end) == []
    paper.log[TopicPartition("t", 1)] = (0, 8)
    assert reader.latestOffset(end, ReadAllAvailable()) == {"t": {"0": 9, "1": 8}}


# --- a pattern that nothing matches yet ----------------------------------------------------------
@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_what_appears_where_there_was_nothing_is_new(starting: str) -> None:
    reader, paper = _reader({}, startingOffsets=starting)
    assert reader.initialOffset() == {}
    assert reader.latestOffset({}, ReadAllAvailable()) == {}
    assert reader.partitions({}, {}) == []
    paper.log[TopicPartition("t", 0)] = (0, 4)
    end = reader.latestOffset({}, ReadAllAvailable())
    assert end == {"t": {"0": 4}}
    assert _ranges(reader.partitions({}, end)) == [("t", 0, 0, 4)]


def test_it_is_also_new_after_a_restart() -> None:
    reader, _ = _reader({"p0": (0, 4)}, startingOffsets="latest")
    end = reader.latestOffset({}, ReadAllAvailable())
    assert end == {"t": {"0": 4}}
    assert _ranges(reader.partitions({}, end)) == [("t", 0, 0, 4)]


def test_a_first_batch_that_is_planned_twice_is_empty_twice() -> None:
    """A self-union has two relations that share a reader."""
    reader, paper = _reader({"p0": (0, 4)}, startingOffsets="latest")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    old, _ = _plain({"p0": (0, 4)}, startingOffsets="latest")
    assert old.latestOffset() == end and old.initialOffset() == {}
    for each in (reader, old):
        assert [each.partitions({}, end) for _ in range(3)] == [[], [], []]
    paper.log[TopicPartition("t", 0)] = (0, 6)
    following = reader.latestOffset(end, ReadAllAvailable())
    for _ in range(2):
        assert _ranges(reader.partitions(end, following)) == [("t", 0, 4, 6)]


def test_a_batch_that_was_logged_but_not_committed_is_planned_again_after_a_restart() -> None:
    reader, _ = _reader({"p0": (0, 4)}, startingOffsets="latest")
    assert reader.partitions({}, {"t": {"0": 3}}) != []
    reader, _ = _reader({"p0": (0, 4)}, startingOffsets="latest")
    assert reader.initialOffset() == {}, "Spark asks for it only if batch 0 is planned again"
    assert reader.partitions({}, {"t": {"0": 3}}) == []


# --- minimum and delay ---------------------------------------------------------------------------
def test_a_minimum_is_waited_for_after_the_first_batch() -> None:
    reader, paper = _reader({"p0": (0, 2)}, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="6")
    assert reader.getDefaultReadLimit() == ReadMaxRows(6)
    first = reader.latestOffset({"t": {"0": 0}}, ReadMaxRows(6))
    assert first == {"t": {"0": 2}}
    paper.log[TopicPartition("t", 0)] = (0, 6)
    assert reader.latestOffset(first, ReadMaxRows(6)) == first
    assert reader.reportLatestOffset() == {"t": {"0": 6}}
    paper.log[TopicPartition("t", 0)] = (0, 20)
    assert reader.latestOffset(first, ReadMaxRows(6)) == {"t": {"0": 8}}


def test_the_delay_bounds_the_wait() -> None:
    reader, _ = _reader({"p0": (0, 6)}, minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    assert reader.getDefaultReadLimit() == ReadAllAvailable()
    assert reader.latestOffset({"t": {"0": 0}}, ReadAllAvailable()) == {"t": {"0": 6}}
    waiting = {"t": {"0": 4}}
    reader._client.step_ms = 100
    assert reader.latestOffset(waiting, ReadAllAvailable()) == waiting
    reader._client.now += 10_000
    assert reader.latestOffset(waiting, ReadAllAvailable()) == {"t": {"0": 6}}


def test_available_now_has_no_minimum() -> None:
    reader, _ = _reader({"p0": (0, 6)}, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5")
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset({"t": {"0": 0}}, ReadMaxRows(5))
    assert end == {"t": {"0": 5}}
    assert reader.latestOffset(end, ReadMaxRows(5)) == {"t": {"0": 6}}


def test_available_now_asks_a_leader_again_that_was_behind_at_its_start() -> None:
    reader, paper = _reader({"p0": (0, 5), "p1": (0, 5)})
    reader.prepareForTriggerAvailableNow()
    paper.log[TopicPartition("t", 0)] = (0, 9)
    end = reader.latestOffset({"t": {"0": 8, "1": 5}}, ReadAllAvailable())
    assert end == {"t": {"0": 9, "1": 5}}


# --- bytes ---------------------------------------------------------------------------------------
def test_deleted_records_are_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that fell behind goes over them at once, not with one offset a micro-batch."""
    reader, paper = _reader({"p0": (0, 2_000), "p1": (0, 900)}, maxBytesPerTrigger="10000")

    def sample_partitions(_: object, places: Offsets, _size: int) -> dict[TopicPartition, Sample]:
        there = {p for p, o in places.items() if paper.log[p][0] <= o < paper.log[p][1]}
        return {p: Sample(1_000, 10, None) for p in there}

    monkeypatch.setattr("pyspark_klog.spark.planning.samples.fetch_samples", sample_partitions)
    everything = ReadMaxRows(2**63 - 1)
    start = {"t": {"0": 0, "1": 0}}
    paper.log = {TopicPartition("t", 0): (1_500, 2_000), TopicPartition("t", 1): (900, 900)}
    end = reader.latestOffset(start, everything)
    assert end == {"t": {"0": 1_600, "1": 900}}
    assert reader.latestOffset(end, everything) == {"t": {"0": 1_700, "1": 900}}


# --- splitting -----------------------------------------------------------------------------------
def test_a_batch_is_cut_into_tasks() -> None:
    reader, _ = _reader({"p0": (0, 10), "p1": (0, 1)}, minPartitions="3")
    found = reader.partitions({"t": {"0": 0, "1": 0}}, {"t": {"0": 10, "1": 1}})
    assert _ranges(found) == [("t", 0, 0, 5), ("t", 0, 5, 10), ("t", 1, 0, 1)]
    reader, _ = _reader({"p0": (0, 10)}, maxRecordsPerPartition="4")
    found = reader.partitions({"t": {"0": 0}}, {"t": {"0": 10}})
    assert _ranges(found) == [("t", 0, 0, 3), ("t", 0, 3, 6), ("t", 0, 6, 10)]


# --- checkpoints ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "offset",
    [
        {"@version": {"1": 2}},
        {"version": 2, "offsets": {"t": {"0": 1}}},
        {"t": [1, 2]},
        {"t": {"0": {"offset": 1}}},
    ],
)
@pytest.mark.parity("source behaviour: a checkpoint of a newer format")
def test_a_checkpoint_of_a_newer_format_is_refused_in_one_sentence(offset: Any) -> None:
    reader, _ = _reader({"p0": (0, 9)})
    for use in (
        lambda: reader.latestOffset(offset, ReadAllAvailable()),
        lambda: reader.partitions(offset, offset),
        lambda: reader.partitions({"t": {"0": 1}}, offset),
    ):
        with pytest.raises(OffsetError) as caught:
            use()
        text = str(caught.value)
        assert "in the checkpoint" in text and "if a newer klog wrote it, run that one" in text
        assert "another checkpointLocation" in text and "\n" not in text


# --- Spark 4.0 and 4.1 ---------------------------------------------------------------------------
def _plain(paper_topic: dict[str, tuple[int, int]], **given: str) -> tuple[Any, _Paper]:
    options = _options(**given)
    reader = PlainStreamReader(options, None)
    paper = _Paper(options, **paper_topic)
    reader._discovery = paper
    reader._client = cast(Any, _Clock())
    return reader, paper


@pytest.mark.parity("release: 4.0 and 4.1: resolved once")
def test_old_spark_asks_for_the_end_first() -> None:
    reader, paper = _plain({"p0": (0, 4)})
    end = reader.latestOffset()
    assert end == {"t": {"0": 4}}
    assert reader.initialOffset() == {}
    assert reader.partitions({}, end) == []
    paper.log[TopicPartition("t", 0)] = (0, 6)
    following = reader.latestOffset()
    assert _ranges(reader.partitions(end, following)) == [("t", 0, 4, 6)]


def test_old_spark_with_a_fixed_start() -> None:
    reader, _ = _plain({"p0": (1, 4)}, startingOffsets="earliest")
    end = reader.latestOffset()
    assert reader.initialOffset() == {"t": {"0": 1}}
    assert _ranges(reader.partitions(reader.initialOffset(), end)) == [("t", 0, 1, 4)]


def test_old_spark_passes_its_position_after_a_restart() -> None:
    reader, _ = _plain({"p0": (0, 9)})
    position = {"t": {"0": 4}}
    assert reader.partitions(position, position) == []
    end = reader.latestOffset()
    assert _ranges(reader.partitions(position, end)) == [("t", 0, 4, 9)]


def test_old_spark_plans_a_first_batch_again_whose_commit_was_lost() -> None:
    logged = {"t": {"0": 4}}
    reader, _ = _plain({"p0": (0, 9)})
    assert reader.partitions(logged, logged) == []
    assert reader.initialOffset() == {}
    assert reader.partitions({}, logged) == []
    reader, _ = _plain({"p0": (1, 9)}, startingOffsets="earliest")
    assert reader.partitions(logged, logged) == []
    assert reader.initialOffset() == {"t": {"0": 1}}
    assert _ranges(reader.partitions({"t": {"0": 1}}, logged)) == [("t", 0, 1, 4)]
    assert reader.latestOffset() == {"t": {"0": 9}}


def test_old_spark_reads_what_appears_where_there_was_nothing() -> None:
    reader, paper = _plain({})
    assert reader.latestOffset() == {}
    assert reader.initialOffset() == {}
    assert reader.partitions({}, {}) == []
    paper.log[TopicPartition("t", 0)] = (0, 4)
    end = reader.latestOffset()
    assert end == {"t": {"0": 4}}
    assert _ranges(reader.partitions({}, end)) == [("t", 0, 0, 4)]
    restarted, _ = _plain({"p0": (0, 4)})
    assert restarted.partitions({}, {}) == []
    assert restarted.latestOffset() == end
    assert _ranges(restarted.partitions({}, end)) == [("t", 0, 0, 4)]


@pytest.mark.parity("release: 4.0 and 4.1: limits")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxOffsetsPerTrigger", "5"),
        ("minOffsetsPerTrigger", "5"),
        ("maxTriggerDelay", "1h"),
        ("lagDetails", "true"),
    ],
)
def test_old_spark_has_no_limits(name: str, value: str) -> None:
    reader = PlainStreamReader(_options(**{name: value}), None)
    with pytest.raises(KlogError, match=rf"{name} needs Spark 4\.2"):
        reader.latestOffset()


def test_bounds_have_their_peer_values() -> None:
    assert (LATEST, EARLIEST) == (-1, -2)


@pytest.mark.parametrize("available_now", [False, True])
def test_a_start_behind_an_open_transaction_waits_for_its_end(
    caplog: pytest.LogCaptureFixture, available_now: bool
) -> None:
    start = {"t": {"0": 9}}
    reader, paper = _reader({"p0": (0, 5)}, failOnDataLoss="false")
    paper.transactions = {TopicPartition("t", 0): "t-0 has an open transaction"}
    if available_now:
        reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(start, ReadAllAvailable()) == start, (
        "never back, and no record twice"
    )
    assert caplog.messages == [
        "some data may have been lost: t-0 has an open transaction, before offset 9, where reading "
        "was to begin"
    ]
    strict, paper = _reader({"p0": (0, 5)})
    paper.transactions = {TopicPartition("t", 0): "t-0 has an open transaction"}
    with pytest.raises(DataLost, match="nothing is lost: run the query again when") as caught:
        strict.latestOffset(start, ReadAllAvailable())
    assert "set option failOnDataLoss=false" not in str(caught.value)
