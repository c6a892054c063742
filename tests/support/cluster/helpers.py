"""Helper threads without threads: their work runs in the test's thread, when the test says so."""

from collections import deque
from collections.abc import Callable
from typing import Any

from klog_broker.runtime.event_loop.loop import Loop

Work = Callable[[], Any]
OnDone = Callable[[Any, BaseException | None], None]


class Helpers:
    """Runs submitted work at once; while `is_held`, only when the test calls a method below.

    With a ``loop`` the outcome is posted to the loop; otherwise it is passed on directly.
    """

    def __init__(self, loop: Loop | None = None, *, is_held: bool = False) -> None:
        self.is_held = is_held
        self.waiting: deque[tuple[Work, OnDone]] = deque()
        self._loop = loop

    @classmethod
    def held(cls, loop: Loop | None = None) -> "Helpers":
        """Return helpers that run their work only when the test says so."""
        return cls(loop, is_held=True)

    def submit(self, work: Work, on_done: OnDone) -> None:
        if self.is_held:
            self.waiting.append((work, on_done))
        else:
            self.run(work, on_done)

    def run(self, work: Work, on_done: OnDone) -> None:
        """Run a piece of work, then pass its outcome to its callback."""
        try:
            result = work()
        except Exception as error:
            self._pass_on(on_done, None, error)
        else:
            self._pass_on(on_done, result, None)

    def _pass_on(self, on_done: OnDone, result: Any, error: BaseException | None) -> None:
        if self._loop is None:
            on_done(result, error)
        else:
            self._loop.post(lambda: on_done(result, error))

    def run_one(self) -> None:
        """Run the oldest waiting work."""
        self.run(*self.waiting.popleft())

    def run_all(self) -> None:
        """Run waiting work until none is left."""
        while self.waiting:
            self.run_one()

    def release(self) -> None:
        """Run the waiting work; work that is submitted from now on runs at once."""
        self.is_held = False
        self.run_all()

    def close(self) -> None:
        self.run_all()
