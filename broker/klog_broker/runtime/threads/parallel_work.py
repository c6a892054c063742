"""Blocking work that is done side by side, while its caller waits for all of it: at the start.

System calls and kernels release the interpreter's lock, so that several threads get on together.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.threads.helpers import HelperThreads

Work = Callable[[], Any]


class SideBySide(Protocol):
    """Does work of several groups; a simulation does it in an order that its seed says."""

    def __call__(
        self,
        groups: Sequence[Sequence[Work]],
        threads: int,
        take: Callable[[int, int, Any], None],
        /,
    ) -> None:
        """Of each group ``threads`` works at once, begun in order. As each is over ``take`` gets
        the numbers of its group and of itself in it, and its result, in the caller's thread.

        Blocks until all are over. After an error nothing is begun any more; the first one is raised
        once what was begun is over.
        """


def one_after_another(
    groups: Sequence[Sequence[Work]], _: int, take: Callable[[int, int, Any], None]
) -> None:
    """As :class:`SideBySide`, without threads."""
    for group, works in enumerate(groups):
        for number, work in enumerate(works):
            take(group, number, work())


class LoopsThreads:
    """As :class:`SideBySide`, in threads that end with it. The caller's thread is that of the loop,
    which turns meanwhile: what is registered there already is served."""

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

        def begin(group: int) -> None:
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
            begin(group)

        for group, works in enumerate(groups):
            for _ in range(min(threads, len(works))):
                begin(group)
        try:
            while running:
                self._loop.run_turn()
        finally:
            helpers.close()
        if errors:
            raise errors[0]
