"""Spark's filters as conditions, and what conditions mean for offsets, partitions and times."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import datasource as spark

from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.partitioner import partition_for_key
from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.pushdown import KEYS, TIMES
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.planning.pruning import Condition, cut, prune_by
from pyspark_klog.spark.source.pruning_reader import PruningReader, condition_of, pruning_reader

_ALL = frozenset({TIMES, KEYS})
_AT = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=500)


def _options(**given: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", **given}


def test_filters_are_known_by_their_names() -> None:
    column = ("offset",)
    for given, expected in (
        (spark.EqualTo(column, 5), Condition("offset", "in", (5,))),
        (spark.EqualNullSafe(column, 5), Condition("offset", "in", (5,))),
        (spark.In(column, (5, 6)), Condition("offset", "in", (5, 6))),
        (spark.LessThan(column, 5), Condition("offset", "<", (5,))),
        (spark.LessThanOrEqual(column, 5), Condition("offset", "<=", (5,))),
        (spark.GreaterThan(column, 5), Condition("offset", ">", (5,))),
        (spark.GreaterThanOrEqual(column, 5), Condition("offset", ">=", (5,))),
        (spark.Not(spark.EqualTo(column, 5)), Condition("offset", "not in", (5,))),
        (spark.EqualNullSafe(("key",), None), None),
        (spark.IsNotNull(column), None),
        (spark.StringStartsWith(("topic",), "t"), None),
        (spark.Not(spark.IsNull(column)), None),
        (spark.EqualTo(("headers", "key"), "k"), None),
    ):
        assert condition_of(given) == expected


def test_every_filter_goes_back_to_spark() -> None:
    reader = pruning_reader(read_options(_options(pushdown="true")).for_batch())
    assert isinstance(reader, PruningReader)
    given: list[spark.Filter] = [spark.EqualTo(("partition",), 1), spark.IsNotNull(("key",))]
    assert list(reader.pushFilters(given)) == given


@pytest.mark.parity("own option: pushdown")
def test_a_spark_that_pushes_nothing_down_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("pyspark.sql.datasource.DataSourceReader.pushFilters")
    with pytest.raises(OptionError) as caught:
        pruning_reader(read_options(_options(pushdown="true")).for_batch())
    assert str(caught.value) == "option pushdown needs Spark 4.1 or later: leave it out"


class _Asked:
    """Two partitions of ten records, a record each 100 ms; ``times`` are what was asked for."""

    def __init__(self) -> None:
        self.times: list[int] = []

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        self.times += sorted(set(times_ms.values()))
        return {p: max(-(-ms // 100), 0) for p, ms in times_ms.items() if ms <= 900}

    def ranges(
        self, *conditions: Condition, assumed: frozenset[str] = _ALL
    ) -> dict[int, tuple[int, int]]:
        start = {TopicPartition("t", n): 0 for n in range(2)}
        end = dict.fromkeys(start, 10)
        pruning = prune_by(conditions, assumed)
        start, end = cut(pruning, start, end, {"t": 2}, self.at_times)
        return {p.partition: (start[p], end[p]) for p in start}


def _timestamp(test: str, at: datetime) -> Condition:
    return Condition("timestamp", test, (at,))


def test_times_are_whole_milliseconds_to_a_broker() -> None:
    later = _AT + timedelta(microseconds=1)
    for condition, asked in (
        (_timestamp(">=", _AT), [500]),
        (_timestamp(">", _AT), [501]),
        (_timestamp(">=", later), [501]),
        (_timestamp("<", _AT), [500]),
        (_timestamp("<=", _AT), [501]),
        (_timestamp("<", later), [501]),
        (_timestamp("in", _AT), [500, 501]),
        (_timestamp("in", later), [501, 501]),
        (_timestamp("not in", _AT), []),
        (Condition("timestamp", ">=", (_AT.replace(tzinfo=None),)), []),
    ):
        world = _Asked()
        world.ranges(condition)
        assert world.times == asked, condition


def test_an_end_by_time_needs_the_users_word() -> None:
    before = _timestamp("<", _AT)
    assert _Asked().ranges(before) == {0: (0, 5), 1: (0, 5)}
    assert _Asked().ranges(before, assumed=frozenset()) == {0: (0, 10), 1: (0, 10)}
    assert _Asked().ranges(_timestamp(">=", _AT), assumed=frozenset())[0] == (5, 10)
    assert _Asked().ranges(_timestamp(">", _AT + timedelta(seconds=1))) == {}


def test_a_key_needs_it_too_and_the_number_of_partitions() -> None:
    condition = Condition("key", "in", (b"a", None))
    number = partition_for_key(b"a", 2)
    assert _Asked().ranges(condition) == {number: (0, 10)}
    assert len(_Asked().ranges(condition, assumed=frozenset())) == 2
    assert _Asked().ranges(condition, Condition("key", "in", (b"b",))) == {}
    p = TopicPartition("t", 1 - number)
    kept, _ = cut(prune_by([condition], _ALL), {p: 0}, {p: 9}, {}, _Asked().at_times)
    assert kept == {p: 0}, "nobody knows how many partitions there are"


def test_an_end_before_the_start_stays_for_the_error_that_says_so() -> None:
    p = TopicPartition("t", 0)
    pruning = prune_by([Condition("partition", "in", (1,))], _ALL)
    assert cut(pruning, {p: 9}, {p: 3}, {}, _Asked().at_times) == ({p: 9}, {p: 3})
