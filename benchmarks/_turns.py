"""Measures in turns: klog, peer, then peer, klog; with medians of the results."""

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

_DEFAULT_TURNS = 3
# A very short run is repeated in its turn; otherwise it would measure the scheduler.
_SHORT_RUN_S = 0.3
_MOST_REPEATS = 5


def turns() -> int:
    """How many times each side has its turn: $KLOG_BENCH_TURNS, else 3."""
    return max(1, int(os.environ.get("KLOG_BENCH_TURNS", _DEFAULT_TURNS)))


def sized(count: int) -> int:
    """``count`` times $KLOG_BENCH_SIZE (1 unless set; 0.1 for a quick look), at least 1."""
    return max(1, round(count * float(os.environ.get("KLOG_BENCH_SIZE", "1"))))


def in_turns(
    *sides: Callable[[], T], warm_ups: int = 1, now_s: Callable[[], float] = time.monotonic
) -> list[list[T]]:
    """The results of each side, turn by turn, after as many warm-up runs of each.

    Every second turn goes backwards, because a run leaves memory, dirty pages, and a warm or a
    throttled processor behind, which would otherwise always affect the same side. In a turn a short
    run is repeated up to five times; every run counts.
    """
    for side in sides * warm_ups:
        side()
    given: list[list[T]] = [[] for _ in sides]
    in_order = list(zip(sides, given, strict=True))
    for turn in range(turns()):
        for side, results in in_order[:: -1 if turn % 2 else 1]:
            end = now_s() + _SHORT_RUN_S
            for _repeat in range(_MOST_REPEATS):
                results.append(side())
                if now_s() >= end:
                    break
    return given


def median(values: Sequence[float]) -> float:
    """The median; for an even number the mean of the middle two."""
    return statistics.median(values)


def progress(text: str) -> None:
    """Print a line for a waiting person."""
    print(f"bench:   {text}", file=sys.stderr, flush=True)
