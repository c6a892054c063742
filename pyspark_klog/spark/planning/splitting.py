"""Splits ranges of offsets into tasks by maxRecordsPerPartition, then by minPartitions. Pure.

The number of tasks is that of Spark's KafkaOffsetRangeCalculator (4.x). The sizes of the pieces of
a range differ by at most one offset; in Spark they differ by more where both options are set.
"""

import itertools
import math
from collections.abc import Sequence

from pyspark_klog.spark.planning.ranges import OffsetRange


def split(
    ranges: Sequence[OffsetRange], min_tasks: int | None, max_offsets: int | None
) -> list[OffsetRange]:
    """Cut ``ranges``, none of which is empty, into the ranges that single tasks read, in order.

    No task has more than ``max_offsets`` offsets. If there are fewer tasks than ``min_tasks``,
    ranges are cut into more pieces in proportion to their size; because of rounding, the number of
    tasks can then be a little above or below ``min_tasks``.
    """
    parts = [1 if max_offsets is None else -(-size(r) // max_offsets) for r in ranges]
    if min_tasks is not None and min_tasks > sum(parts):
        parts = _at_least(min_tasks, ranges, parts)
    return [piece for r, count in zip(ranges, parts, strict=True) for piece in _cut(r, count)]


def size(offsets: OffsetRange) -> int:
    """How many offsets a range has; records may be fewer."""
    return offsets.end - offsets.start


def _at_least(min_tasks: int, ranges: Sequence[OffsetRange], parts: Sequence[int]) -> list[int]:
    """The number of pieces of each range, if ``parts``, the numbers so far, have a sum below
    ``min_tasks``.

    A piece whose share of ``min_tasks`` rounds to 1 is too small to be cut: its range keeps its
    pieces. The pieces of the other ranges share the remaining tasks in proportion to their sizes.
    """
    total = sum(size(r) for r in ranges)
    pieces = [_sizes(r, count) for r, count in zip(ranges, parts, strict=True)]
    small = [{s: n for s, n in row.items() if _share(s, total, min_tasks) == 1} for row in pieces]
    tasks_left = max(min_tasks - sum(n for row in small for n in row.values()), 1)
    offsets_left = total - sum(s * n for row in small for s, n in row.items())
    return [
        count if stays else sum(n * _share(s, offsets_left, tasks_left) for s, n in row.items())
        for count, row, stays in zip(parts, pieces, small, strict=True)
    ]


def _sizes(offsets: OffsetRange, parts: int) -> dict[int, int]:
    """The sizes of the pieces if a range is cut into ``parts`` even pieces, each size with the
    number of pieces that have it."""
    least, larger = divmod(size(offsets), parts)
    return {least: parts - larger, least + 1: larger} if larger else {least: parts}


def _share(offsets: int, total: int, tasks: int) -> int:
    """The number of tasks for a piece of ``offsets`` offsets out of ``total``: its share of
    ``tasks``, at least 1, rounded half up, in doubles as in Spark."""
    return max(math.floor(offsets / total * tasks + 0.5), 1)


def _cut(offsets: OffsetRange, parts: int) -> list[OffsetRange]:
    """Cut a range into even pieces, the larger ones last, as in Spark's connector."""
    count = min(parts, size(offsets))
    least, larger = divmod(size(offsets), count)
    edges = [offsets.start + n * least + max(n - (count - larger), 0) for n in range(count + 1)]
    return [
        OffsetRange(offsets.topic, offsets.partition, begin, end)
        for begin, end in itertools.pairwise(edges)
    ]
