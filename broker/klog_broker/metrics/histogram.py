"""Durations in fixed buckets."""

from bisect import bisect_left

BOUNDS_MS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000)
"""A bucket has what took longer than the bound before and not longer than its own."""

BOUNDS_NS = tuple(round(each * 1_000_000) for each in BOUNDS_MS)
BUCKETS = len(BOUNDS_NS) + 1
"""The last one has what took longer than all bounds."""
SUM = BUCKETS
"""Behind the buckets: all durations together."""


def new_row() -> list[int]:
    """Buckets and sum. A list and no object: a turn adds to it for each kind of request."""
    return [0] * (BUCKETS + 1)


class Durations:
    """Of something that happens less often than requests."""

    def __init__(self) -> None:
        self.row = new_row()

    def add(self, took_ns: int) -> None:
        self.row[bisect_left(BOUNDS_NS, took_ns)] += 1
        self.row[SUM] += took_ns
