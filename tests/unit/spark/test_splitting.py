"""Ranges cut into tasks: the cases of Spark's KafkaOffsetRangeCalculator, with their numbers."""

import pytest

from pyspark_klog.spark.planning.ranges import OffsetRange
from pyspark_klog.spark.planning.splitting import split


def _ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("t", n, 100, 100 + size) for n, size in enumerate(sizes)]


def _cut(sizes: list[int], tasks: int | None, most: int | None = None) -> list[list[int]]:
    """The sizes of the pieces of each range, which must follow each other."""
    found: list[list[int]] = [[] for _ in sizes]
    ends = [100 for _ in sizes]
    for piece in split(_ranges(*sizes), tasks, most):
        assert piece.start == ends[piece.partition]
        ends[piece.partition] = piece.end
        found[piece.partition].append(piece.end - piece.start)
    assert [end - 100 for end in ends] == sizes
    return found


def test_nothing_is_cut_without_options() -> None:
    assert split(_ranges(5, 1_000), None, None) == _ranges(5, 1_000)
    assert split([], 5, 5) == []


@pytest.mark.parametrize(
    ("sizes", "tasks", "expected"),
    [
        ([10], 4, [[2, 2, 3, 3]]),  # 1 to N
        ([10, 10, 10], 3, [[10], [10], [10]]),  # N to N
        ([10, 10, 10, 10], 3, [[10], [10], [10], [10]]),  # fewer than partitions
        ([10, 10], 4, [[5, 5], [5, 5]]),  # more
        ([100, 2], 4, [[33, 33, 34], [2]]),  # skewed: the small one stays whole
        ([3], 8, [[1, 1, 1]]),  # no piece without an offset
        ([1, 4, 1_000], 6, [[1], [4], [250, 250, 250, 250]]),
        ([5, 10], 3, [[5], [5, 5]]),
    ],
)
@pytest.mark.parity("source behaviour: minPartitions splits")
def test_min_partitions(sizes: list[int], tasks: int, expected: list[list[int]]) -> None:
    assert _cut(sizes, tasks) == expected


@pytest.mark.parametrize(
    ("sizes", "tasks", "most", "expected"),
    [
        ([10, 3], None, 4, [[3, 3, 4], [3]]),
        ([10, 3], None, 10, [[10], [3]]),
        ([10, 3], 2, 4, [[3, 3, 4], [3]]),  # already more than the minimum
        ([8], 4, 4, [[2, 2, 2, 2]]),  # the maximum first, then the minimum
        ([8, 1], 4, 4, [[2, 2, 2, 2], [1]]),
    ],
)
def test_max_records_per_partition_comes_first(
    sizes: list[int], tasks: int | None, most: int, expected: list[list[int]]
) -> None:
    assert _cut(sizes, tasks, most) == expected
