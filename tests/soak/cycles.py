"""How long a soak repeats its plan."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def until_over(
    cycles: Iterable[Iterable[T]], minutes: float, now_s: Callable[[], float]
) -> Iterator[T]:
    """The items of the cycles until the time is over, but one whole cycle at least.

    The next item is requested when the last one is done; ``now_s`` is a clock in seconds.
    """
    end_s = now_s() + minutes * 60
    for number, cycle in enumerate(cycles):
        for each in cycle:
            if number and now_s() >= end_s:
                return
            yield each
