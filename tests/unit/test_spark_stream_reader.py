"""The stream source's decisions, with brokers that only exist on paper."""

import pickle
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.discovery import Discovery
from pyspark_klog.spark.errors import DataLost, OptionError
from pyspark_klog.spark.offsets import EARLIEST, LATEST, Offsets
from pyspark_klog.spark.options import SourceOptions, read_options
from pyspark_klog.spark.reader import RangePartition
from pyspark_klog.spark.stream_reader import LimitedStreamReader, PlainStreamReader


class _Paper(Discovery):
    """Partitions with a begin and an end each; `waits` counts pauses."""

    def __init__(self, options: SourceOptions, **topic: tuple[int, int]) -> None:
        self._options = options
        self.log = {TopicPartition("t", int(n[1:])): bounds for n, bounds in topic.items()}

    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.log)

    def existing_partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.log)

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {p: self.log[p][0] for p in partitions}

    def latest(
        self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int]
    ) -> Offsets:
        return {p: self.log[p][1] for p in partitions}


class _Clock(SimpleNamespace):
    """Stands for the client: every look at the clock is a second later."""

    def now_ms(self) -> int:
        self.now = getattr(self, "now", 0) + 1_000
        return cast(int, self.now)

    def pause(self, wait_ms: int) -> None:
        self.waited = getattr(self, "waited", 0) + wait_ms


def _options(**given: str) -> SourceOptions:
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


def test_an_empty_poll_waits_once_and_keeps_the_offsets() -> None:
    reader, _ = _reader({"p0": (0, 30)}, idleWaitMs="40")
    start = {"t": {"0": 30}}
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert reader._client.waited == 40


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
        ({"p1": (0, 5)}, "t-0 is gone"),
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
    paper.log[TopicPartition("t", 0)] = (0, 50)
    paper.log[TopicPartition("t", 1)] = (0, 50)
    position = reader.initialOffset()
    assert position == {"t": {"0": 0, "1": 0}} or position == {"t": {"0": 0}}
    position = {"t": {"0": 0}}
    for _ in range(3):
        position = reader.latestOffset(position, ReadMaxRows(2))
    assert position == {"t": {"0": 5}}
    assert reader.latestOffset(position, ReadMaxRows(2)) == position


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


# --- Spark 4.0 and 4.1 ---------------------------------------------------------------------------
def _plain(paper_topic: dict[str, tuple[int, int]], **given: str) -> tuple[Any, _Paper]:
    options = _options(**given)
    reader = PlainStreamReader(options, None)
    paper = _Paper(options, **paper_topic)
    reader._discovery = paper
    reader._client = cast(Any, _Clock())
    return reader, paper


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


def test_old_spark_tells_its_position_after_a_restart() -> None:
    reader, _ = _plain({"p0": (0, 9)})
    position = {"t": {"0": 4}}
    assert reader.partitions(position, position) == []
    end = reader.latestOffset()
    assert _ranges(reader.partitions(position, end)) == [("t", 0, 4, 9)]


def test_old_spark_has_no_limits() -> None:
    reader = PlainStreamReader(_options(maxOffsetsPerTrigger="5"), None)
    with pytest.raises(KlogError, match=r"maxOffsetsPerTrigger needs Spark 4\.2"):
        reader.latestOffset()


def test_bounds_have_their_peer_values() -> None:
    assert (LATEST, EARLIEST) == (-1, -2)
