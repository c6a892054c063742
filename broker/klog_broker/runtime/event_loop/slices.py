"""Splits long work of the loop into slices, so that other requests are served in between.

Work is a generator that yields the cost of each step in elements. An element is about the time to
look up a partition and to add it to a response: 5 us. In each turn, all work that waits since
earlier turns shares one slice of 1,000 elements, and all newly started work shares another slice.
Because of this, several long requests together take no more time of a turn than one long request.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import NamedTuple

from klog_broker.runtime.event_loop.loop import Loop

SLICE_ELEMENTS = 1000
"""How many elements (parts of work that take 5 us) one event-loop turn does of all the work that
waits since earlier turns, and as many again of all newly started work: about 5 ms each."""

_ROUND_ELEMENTS = 250

Steps = Generator[int, None, None]


class _Work(NamedTuple):
    steps: Steps
    is_wanted: Callable[[], bool]


class Slices:
    """Runs the long work of one loop in slices (parts for one turn), each of about ``elements``
    elements, which take 5 us each."""

    def __init__(self, loop: Loop, elements: int = SLICE_ELEMENTS) -> None:
        self._loop = loop
        self._elements = elements
        self._waiting: deque[_Work] = deque()
        self._turn = -1
        self._left = 0

    def run(self, steps: Steps, is_wanted: Callable[[], bool], spent: int = 0) -> None:
        """Run ``steps`` (a generator that yields the cost of each step) now, until all work that
        was started in this event-loop turn has cost as much as a slice (``elements`` of 5 us); run
        the remaining steps later, usually in the next turns.

        ``spent`` is the cost of the steps that the caller has already run in this turn. Once
        ``is_wanted`` returns False, the remaining steps are dropped.
        """
        if self._turn != self._loop.turn:
            self._turn = self._loop.turn
            self._left = self._elements
        self._left -= spent
        if self._left > 0:
            is_over, spent = _advance(steps, self._left)
            self._left -= spent
            if is_over:
                return
        if not self._waiting:
            self._loop.call_soon(self._continue_waiting_work)
        self._waiting.append(_Work(steps, is_wanted))

    def _continue_waiting_work(self) -> None:
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
            # Remove the work only now: while it runs, `_waiting` must not be empty, so that `run`
            # does not schedule `_continue_waiting_work` a second time.
            waiting.popleft()
            if not is_over:
                waiting.append(work)
        if waiting:
            self._loop.call_soon(self._continue_waiting_work)


def _advance(steps: Steps, most: int) -> tuple[bool, int]:
    """Run ``steps`` (a generator that yields the cost of each step) until their costs (in elements
    of 5 us) add up to ``most`` or more.

    Returns whether the work is finished, and the sum of the costs.
    """
    spent = 0
    for cost in steps:
        spent += cost
        if spent >= most:
            return False, spent
    return True, spent
