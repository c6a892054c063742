"""The part of a batch that can pass a query's filters: option ``pushdown``. Pure.

Filters say which rows a query keeps; here they become the partitions and ranges of offsets outside
of which there is no such row. Spark filters the rows that are read all the same, so that reading
too much costs time alone: a filter that is not understood cuts nothing.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.partitioner import partition_for_key
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.pushdown import KEYS, TIMES
from pyspark_klog.spark.options.values import LONG_MAX

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Condition(NamedTuple):
    """One filter; a row has to pass all of them."""

    column: str
    test: str
    """``in  <  <=  >  >=``, or one of these with ``not `` before it."""
    values: tuple[Any, ...]
    """The values that the column is compared with: several for ``in``, else one."""


@dataclass(slots=True)
class Pruning:
    """The partitions, offsets and times that conditions leave over."""

    of_partitions: list[Condition] = field(default_factory=list)
    """Conditions on topic and partition, which are the same for all rows of a partition."""
    keys: frozenset[bytes] | None = None
    """The only keys that pass; None for any."""
    offsets: tuple[int, int] = (0, LONG_MAX)
    """The first offset, and the end (exclusive)."""
    from_ms: int | None = None
    """Older records do not pass. Records without a time have a negative one."""
    until_ms: int | None = None
    """Only records that are older pass."""

    def admits(self, partition: TopicPartition, partition_count: int | None) -> bool:
        """Whether the partition can have such rows; ``partition_count`` is its topic's."""
        for condition in self.of_partitions:
            by_name = condition.column == "topic"
            if not _holds(condition, partition.topic if by_name else partition.partition):
                return False
        if self.keys is None or not partition_count:
            return True
        numbers = (partition_for_key(key, partition_count) for key in self.keys)
        return partition.partition in numbers


def prune_by(conditions: Iterable[Condition], assumptions: frozenset[str]) -> Pruning:
    """The pruning of all conditions. Conditions on keys, and ends by time, count only under their
    assumptions."""
    result = Pruning()
    for condition in conditions:
        if condition.column in ("topic", "partition"):
            result.of_partitions.append(condition)
        elif condition.column == "offset":
            low, high = result.offsets
            first, end = _bounds(condition, _number)
            result.offsets = (max(low, first or 0), high if end is None else min(high, end))
        elif condition.column == "timestamp":
            _take_times(result, condition, assumptions)
        elif condition.column == "key" and KEYS in assumptions:
            keys = _keys(condition)
            if keys is not None:
                result.keys = keys if result.keys is None else result.keys & keys
    return result


def cut(
    pruning: Pruning,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    partition_counts: Mapping[str, int],
    at_times: Callable[[Mapping[TopicPartition, int]], Offsets],
) -> tuple[Offsets, Offsets]:
    """Where the rows that may pass begin and end; partitions without any are left out.

    ``at_times`` gives the first offset whose record is not older than a time, for the partitions
    that have such a record; it is asked after ``end`` was found. Partitions whose ``end`` lies
    before ``start`` stay as they are: that is an error of the options, not of filters.
    """
    begin = dict(start)
    until = {p: end[p] for p in begin}
    wrong = {p for p in begin if until[p] < begin[p]}
    low, high = pruning.offsets

    def left() -> list[TopicPartition]:
        return [p for p in begin if begin[p] < until[p]]

    for partition in left():
        if pruning.admits(partition, partition_counts.get(partition.topic)):
            begin[partition] = max(begin[partition], low)
            until[partition] = min(until[partition], high)
        else:
            until[partition] = begin[partition]
    # Negative timestamps have a meaning of their own there.
    if pruning.from_ms is not None and pruning.from_ms >= 0 and left():
        found = at_times(dict.fromkeys(left(), pruning.from_ms))
        for partition in left():
            first = found.get(partition, until[partition])
            begin[partition] = max(begin[partition], first)
    if pruning.until_ms is not None and pruning.until_ms >= 0 and left():
        for partition, first in at_times(dict.fromkeys(left(), pruning.until_ms)).items():
            until[partition] = min(until[partition], first)
    kept = {*left(), *wrong}
    return {p: begin[p] for p in kept}, {p: until[p] for p in kept}


def _take_times(result: Pruning, condition: Condition, assumptions: frozenset[str]) -> None:
    first_us, end_us = _bounds(condition, _microseconds)
    if first_us is not None:
        # Rounded up: a record has whole milliseconds.
        from_ms = -(-first_us // 1000)
        result.from_ms = from_ms if result.from_ms is None else max(result.from_ms, from_ms)
    if end_us is not None and TIMES in assumptions:
        until_ms = -(-end_us // 1000)
        result.until_ms = until_ms if result.until_ms is None else min(result.until_ms, until_ms)


def _bounds(
    condition: Condition, convert: Callable[[Any], int | None]
) -> tuple[int | None, int | None]:
    """From and up to (exclusive) as whole numbers; None is no bound."""
    given = _given(condition)
    numbers = [n for n in map(convert, given) if n is not None]
    if not numbers or len(numbers) != len(given):
        return None, None
    low, high = min(numbers), max(numbers)
    bounds: dict[str, tuple[int | None, int | None]] = {
        "in": (low, high + 1),
        ">": (low + 1, None),
        ">=": (low, None),
        "<": (None, high),
        "<=": (None, high + 1),
    }
    return bounds.get(condition.test, (None, None))


def _given(condition: Condition) -> tuple[Any, ...]:
    """The values that a column is compared with, without null, which equals nothing."""
    return tuple(value for value in condition.values if value is not None)


def _number(value: Any) -> int | None:
    return value if type(value) is int else None


def _microseconds(value: Any) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND


def _keys(condition: Condition) -> frozenset[bytes] | None:
    """The only keys that can pass; None if any can, as far as is known."""
    given = _given(condition)
    if condition.test != "in" or not all(isinstance(value, bytes) for value in given):
        return None
    return frozenset(given)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _holds(condition: Condition, actual: int | str) -> bool:
    """Whether a row's value passes; True for a test that is not understood."""
    given = _given(condition)
    if not given or any(type(value) is not type(actual) for value in given):
        return True
    test = condition.test.removeprefix("not ")
    if test == "in":
        passes = actual in given
    elif test in _COMPARISONS:
        passes = _COMPARISONS[test](actual, given[0])
    else:
        return True
    return passes != condition.test.startswith("not ")
