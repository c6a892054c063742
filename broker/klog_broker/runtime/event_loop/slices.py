"""Long work of the loop in slices: between two of them everybody else is served.

Work is a generator that yields what its next step costs, in elements: an element is about what it
takes to look a partition up and to put it into an answer, some 5 us. All work shares one slice of a
turn, in rounds, and what is begun in a turn shares another: so many long requests take no more of a
turn than one.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import NamedTuple

from klog_broker.runtime.event_loop.loop import Loop

SLICE_ELEMENTS = 1000
"""Elements of all work that one turn goes on with, and of all work that it begins: some 5 ms."""

_ROUND_ELEMENTS = 250

Steps = Generator[int, None, None]


class _Work(NamedTuple):
    steps: Steps
    is_wanted: Callable[[], bool]


class Slices:
    """The work of one loop that is not over yet; ``elements`` are a turn's share of it."""

    def __init__(self, loop: Loop, elements: int = SLICE_ELEMENTS) -> None:
        self._loop = loop
        self._elements = elements
        self._waiting: deque[_Work] = deque()
        self._turn = -1
        self._left = 0

    def run(self, steps: Steps, is_wanted: Callable[[], bool]) -> None:
        """Does the work, now as far as the turn's share goes and the rest in later turns.

        Once it ``is_wanted`` no longer the rest is left undone.
        """
        if self._turn != self._loop.turn:
            self._turn = self._loop.turn
            self._left = self._elements
        if self._left > 0:
            is_over, spent = _advance(steps, self._left)
            self._left -= spent
            if is_over:
                return
        if not self._waiting:
            self._loop.call_soon(self._go_on)
        self._waiting.append(_Work(steps, is_wanted))

    def _go_on(self) -> None:
        left = self._elements
        waiting = self._waiting
        while waiting and left > 0:
            work = waiting[0]
            is_over = not work.is_wanted()
            if is_over:
                work.steps.close()
            else:
                is_over, spent = _advance(work.steps, min(left, _ROUND_ELEMENTS))
                left -= spent
            # Not before: while this one is worked on it waits, and nobody calls soon once more.
            waiting.popleft()
            if not is_over:
                waiting.append(work)
        if waiting:
            self._loop.call_soon(self._go_on)


def _advance(steps: Steps, most: int) -> tuple[bool, int]:
    """Whether the work is over, and what was spent; the last step may go beyond ``most``."""
    spent = 0
    for cost in steps:
        spent += cost
        if spent >= most:
            return False, spent
    return True, spent
