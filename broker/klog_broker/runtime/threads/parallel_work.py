"""Blocking work in parallel threads, while the caller waits: for start-up and shutdown.

System calls and compiled functions release the interpreter's lock (GIL), so that the threads run in
parallel.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.threads.helpers import HelperThreads

Work = Callable[[], Any]


class ParallelWork(Protocol):
    """Runs groups of blocking functions in parallel. A simulation in the tests runs the functions
    one after another, in an order that its random numbers decide."""

    def __call__(
        self,
        groups: Sequence[Sequence[Work]],
        threads: int,
        take: Callable[[int, int, Any], None],
        /,
    ) -> None:
        """Run the functions of all groups: the functions of each group begin in their order, up to
        ``threads`` of each group at a time.

        After each function, calls ``take(index of its group, its index in the group, its result)``
        in the caller's thread. Blocks until all functions have returned. After an error no further
        function starts; the first error is raised once the running functions have returned.
        """


def run_in_order(
    groups: Sequence[Sequence[Work]], _: int, take: Callable[[int, int, Any], None]
) -> None:
    """Implements :class:`ParallelWork` without threads: runs all functions in order."""
    for group, works in enumerate(groups):
        for number, work in enumerate(works):
            take(group, number, work())


class ThreadedParallelWork:
    """Implements :class:`ParallelWork` with helper threads that end before the call returns.

    Call from the loop's thread. The call runs loop turns while it waits, so that descriptors and
    timers that are already registered in the loop are served.
    """

    def __init__(self, loop: Loop, name: str) -> None:
        self._loop = loop
        self._name = name

    def __call__(
        self, groups: Sequence[Sequence[Work]], threads: int, take: Callable[[int, int, Any], None]
    ) -> None:
        at_once = sum(min(threads, len(works)) for works in groups)
        helpers = HelperThreads(self._loop, at_once, self._name)
        waiting = [enumerate(works) for works in groups]
        errors: list[BaseException] = []
        running = 0

        def start_next_work(group: int) -> None:
            nonlocal running
            following = next(waiting[group], None)
            if following is not None and not errors:
                number, work = following
                running += 1
                helpers.submit(work, partial(over, group, number))

        def over(group: int, number: int, result: Any, error: BaseException | None) -> None:
            nonlocal running
            running -= 1
            if error is None:
                try:
                    take(group, number, result)
                except BaseException as raised:
                    error = raised
            if error is not None:
                errors.append(error)
            start_next_work(group)

        for group, works in enumerate(groups):
            for _ in range(min(threads, len(works))):
                start_next_work(group)
        try:
            while running:
                self._loop.run_turn()
        finally:
            helpers.close()
        if errors:
            raise errors[0]
