"""A histogram of durations with fixed buckets."""

from bisect import bisect_left

BOUNDS_MS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000)
"""Upper bounds of the buckets: a bucket counts the durations above the previous bound, up to and
including its own bound."""

BOUNDS_NS = tuple(round(each * 1_000_000) for each in BOUNDS_MS)
BUCKETS = len(BOUNDS_NS) + 1
"""The number of buckets. The last bucket counts the durations above all bounds."""
SUM = BUCKETS
"""Index, in a row of `new_row`, of the sum of all durations (ns): it stands after the buckets."""


def new_row() -> list[int]:
    """Return a row of zeros: a count for each bucket, then the sum (ns).

    A row is a plain list, not an object with methods, to be fast: every event-loop turn adds to
    the row of each API and version that it has served.
    """
    return [0] * (BUCKETS + 1)


class Durations:
    """A histogram of the durations of one kind of rare event. For the durations of requests the
    broker uses plain lists (`new_row`), which are faster."""

    def __init__(self) -> None:
        self.row = new_row()

    def add(self, took_ns: int) -> None:
        self.row[bisect_left(BOUNDS_NS, took_ns)] += 1
        self.row[SUM] += took_ns
