"""Any records, any filters: what is cut off has no row that a query keeps."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.partitioner import partition_for_key
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.pushdown import KEYS, TIMES
from pyspark_klog.spark.planning.pruning import Condition, cut, prune_by

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PARTITIONS = 3
_KEYS = st.sampled_from([b"", b"a", b"b", b"key-3"])
_LATEST_MS = 40


class _Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    time_ms: int


class _Log:
    """Some partitions with gaps, as a broker answers for them."""

    def __init__(self, rows: list[_Row], bounds: dict[TopicPartition, tuple[int, int]]) -> None:
        self.rows = rows
        self.start = {p: first for p, (first, _) in bounds.items()}
        self.end = {p: end for p, (_, end) in bounds.items()}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        found: Offsets = {}
        for row in self.rows:
            partition = TopicPartition(row.topic, row.partition)
            if partition in times_ms:
                assert times_ms[partition] >= 0, "-1 and -2 mean something else to a broker"
                if row.time_ms >= times_ms[partition]:
                    found.setdefault(partition, row.offset)
        return found


@st.composite
def _logs(draw: st.DrawFn, *, in_order: bool, by_key: bool) -> _Log:
    rows: list[_Row] = []
    bounds: dict[TopicPartition, tuple[int, int]] = {}
    # One seed for a log: what is drawn here need not become simpler, only smaller.
    choose = random.Random(draw(st.integers(0, 2**32)))
    count = draw(st.sampled_from([12, 6, 2, 0]))
    for topic in ("t", "u"):
        for number in range(_PARTITIONS):
            offset = first = choose.randrange(5)
            times = [choose.randrange(-1, _LATEST_MS) for _ in range(count)]
            for time_ms in sorted(times) if in_order else times:
                offset += choose.choice((1, 1, 1, 4))
                key = choose.choice((None, b"", b"a", b"b", b"key-3"))
                if by_key and key is not None and partition_for_key(key, _PARTITIONS) != number:
                    key = None
                at = _EPOCH + timedelta(milliseconds=time_ms)
                rows.append(_Row(topic, number, offset, at, key, time_ms))
            bounds[TopicPartition(topic, number)] = (first, offset + 1 if count else first)
    return _Log(rows, bounds)


_TIMES = st.integers(-3_000, _LATEST_MS * 1_000 + 2_000).map(
    lambda us: _EPOCH + timedelta(microseconds=us)
)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["t", "u", "s"]),
    "partition": st.integers(-1, _PARTITIONS),
    "offset": st.integers(-2, 25),
    "timestamp": _TIMES,
    "key": _KEYS,
}


@st.composite
def _conditions(draw: st.DrawFn) -> list[Condition]:
    found = []
    # What cuts most comes most often, and what is seldom right is seldom there.
    columns = [*_VALUES, "timestamp", "timestamp", "key"]
    for column in draw(st.lists(st.sampled_from(columns), min_size=1, max_size=2)):
        test = draw(st.sampled_from(["in", "<", "<=", ">", ">="]))
        most = 3 if test == "in" else 1
        values = draw(st.lists(_VALUES[column], min_size=1, max_size=most))
        if draw(st.integers(0, 7)) == 0:
            values[-1] = None
        negated = "not " if draw(st.integers(0, 5)) == 0 else ""
        found.append(Condition(column, negated + test, tuple(values)))
    return found


def _passes(row: _Row, condition: Condition) -> bool:
    """What SQL says: a comparison with null is neither true nor false, and drops the row."""
    actual = getattr(row, condition.column)
    test = condition.test.removeprefix("not ")
    given = condition.values
    if test == "in":
        known: bool | None = True if actual is not None and actual in given else None
        if known is None and actual is not None and None not in given:
            known = False
    elif actual is None or given[0] is None:
        known = None
    else:
        value = given[0]
        known = {
            "<": actual < value,
            "<=": actual <= value,
            ">": actual > value,
            ">=": actual >= value,
        }[test]
    if known is None:
        return False
    return known is not condition.test.startswith("not ")


def _read(log: _Log, conditions: list[Condition], assumptions: frozenset[str]) -> list[_Row]:
    counts = {"t": _PARTITIONS, "u": _PARTITIONS}
    pruning = prune_by(conditions, assumptions)
    start, end = cut(pruning, log.start, log.end, counts, log.at_times)
    assert start.keys() == end.keys() <= log.start.keys()
    for p in start:
        assert log.start[p] <= start[p] < end[p] <= log.end[p]
    read = []
    for row in log.rows:
        p = TopicPartition(row.topic, row.partition)
        if p in start and start[p] <= row.offset < end[p]:
            read.append(row)
    return read


def _kept(rows: list[_Row], conditions: list[Condition]) -> list[_Row]:
    return [row for row in rows if all(_passes(row, c) for c in conditions)]


@settings(max_examples=300)
@given(_logs(in_order=False, by_key=False), _conditions())
def test_nothing_is_lost_whatever_the_order_of_times_and_the_partitioner(
    log: _Log, conditions: list[Condition]
) -> None:
    read = _read(log, conditions, frozenset())
    assert _kept(read, conditions) == _kept(log.rows, conditions)


@settings(max_examples=300)
@given(_logs(in_order=True, by_key=True), _conditions())
def test_nothing_is_lost_where_what_is_assumed_holds(
    log: _Log, conditions: list[Condition]
) -> None:
    read = _read(log, conditions, frozenset({TIMES, KEYS}))
    assert _kept(read, conditions) == _kept(log.rows, conditions)


@pytest.mark.parity("beyond: 4 pushdown")
@given(_logs(in_order=True, by_key=True), st.lists(_TIMES, min_size=2, max_size=2), _KEYS)
def test_a_span_of_time_and_a_key_leave_just_what_they_mean(
    log: _Log, span: list[datetime], key: bytes
) -> None:
    low, high = sorted(span)
    conditions = [Condition("timestamp", ">=", (low,)), Condition("timestamp", "<", (high,))]
    conditions.append(Condition("key", "in", (key,)))
    conditions.append(Condition("offset", "<=", (20,)))
    read = _read(log, conditions, frozenset({TIMES, KEYS}))
    number = partition_for_key(key, _PARTITIONS)
    for row in read:
        assert row.partition == number
        assert row.offset <= 20
        # Records without a time are asked for by no broker.
        assert row.timestamp < high or high <= _EPOCH - timedelta(milliseconds=1)
        assert row.timestamp >= low or low < _EPOCH
