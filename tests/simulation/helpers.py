"""Helper threads without threads: the seed decides when work takes effect and when it is over."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from klog_broker.runtime.event_loop.loop import Loop
from tests.simulation.world import World

Work = Callable[[], Any]
OnDone = Callable[[Any, BaseException | None], None]


class SeededHelpers:
    """Work takes effect at one moment of its time, and work submitted later may overtake it.

    A BaseException that is no Exception (the disk's power cut) goes to ``on_crash``: the broker has
    ended, so that no caller waits for the work any more.
    """

    def __init__(
        self,
        world: World,
        loop: Loop,
        on_crash: Callable[[BaseException], None],
        slowness: int,
    ) -> None:
        self._world = world
        self._loop = loop
        self._on_crash = on_crash
        self._open: dict[int, Callable[[], None]] = {}
        self._count = 0
        self._is_closed = False
        self._held: list[Callable[[], None]] | None = None
        self.slowness = slowness
        """A factor on how long all work takes: a slow disk."""

    @property
    def waiting(self) -> int:
        """How many pieces of work are not over."""
        return len(self._open)

    def submit(self, work: Work, on_done: OnDone) -> None:
        if self._is_closed:
            return
        self._count += 1
        number = self._count
        world = self._world
        before_ms = world.between(0, 4) * self.slowness
        after_ms = world.between(0, 6) * self.slowness
        if world.chance(0.05):
            after_ms += world.between(0, 300)

        def run_work() -> None:
            finish: Callable[[], None] | None
            try:
                finish = partial(on_done, *self._outcome(work))
            except BaseException as crash:
                self._on_crash(crash)
                return

            def be_over() -> None:
                # The traceback of an error leads to the frame of `run_work`: if that frame kept
                # the error, files of the work would stay open until a garbage collection.
                nonlocal finish
                posted, finish = finish, None
                if self._open.pop(number, None) is not None and posted is not None:
                    self._loop.post(posted)

            self._open[number] = be_over
            world.after(after_ms, lambda: self._run_step(number, be_over))

        self._open[number] = run_work
        world.after(before_ms, lambda: self._run_step(number, run_work))

    def hold(self) -> None:
        """Stop all work: the process is suspended."""
        self._held = []

    def release(self) -> None:
        """Resume all work: the process runs again."""
        held, self._held = self._held or [], None
        for action in held:
            action()

    def _run_step(self, number: int, step: Callable[[], None]) -> None:
        if self._held is not None:
            self._held.append(lambda: self._run_step(number, step))
        elif self._open.get(number) is step:
            step()

    @staticmethod
    def _outcome(work: Work) -> tuple[Any, BaseException | None]:
        try:
            return work(), None
        except Exception as error:
            return None, error

    def close(self) -> None:
        """Finish all submitted work now."""
        self._is_closed = True
        while self._open:
            number = next(iter(self._open))
            self._open[number]()

    def vanish(self) -> None:
        """Drop all work: the process is gone."""
        self._is_closed = True
        self._open.clear()


class SeededParallelWork:
    """Runs groups of work without threads; the seed chooses which begun work finishes next."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def __call__(
        self, groups: Sequence[Sequence[Work]], threads: int, take: Callable[[int, int, Any], None]
    ) -> None:
        waiting = [list(enumerate(works)) for works in groups]
        while any(waiting):
            group = self._random.choice([number for number, each in enumerate(waiting) if each])
            begun = min(threads, len(waiting[group]))
            number, work = waiting[group].pop(self._random.randrange(begun))
            take(group, number, work())
