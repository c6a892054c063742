"""Measuring in turns: klog, peer, then peer, klog; medians of what they gave."""

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

_DEFAULT_TURNS = 3
# A run that is over in a blink is repeated in its turn, or the scheduler is what it measures.
_SHORT_RUN_S = 0.3
_MOST_REPEATS = 5


def turns() -> int:
    """How many times each side has its turn: $KLOG_BENCH_TURNS, else 3."""
    return max(1, int(os.environ.get("KLOG_BENCH_TURNS", _DEFAULT_TURNS)))


def sized(count: int) -> int:
    """``count`` times $KLOG_BENCH_SIZE (1 unless set; 0.1 for a quick look), 1 at least."""
    return max(1, round(count * float(os.environ.get("KLOG_BENCH_SIZE", "1"))))


def in_turns(
    *sides: Callable[[], T], warm_ups: int = 1, now_s: Callable[[], float] = time.monotonic
) -> list[list[T]]:
    """What each side gave, turn by turn, after equal runs of each that do not count.

    Every second turn goes backwards: what a run leaves behind (memory, dirty pages, a warm or a
    throttled processor) would else always meet the same side. In a turn a short run is done again,
    up to five times; every run counts.
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
    """The median; of an even number the mean of the middle two."""
    return statistics.median(values)


def progress(text: str) -> None:
    """A line for who waits."""
    print(f"bench:   {text}", file=sys.stderr, flush=True)
