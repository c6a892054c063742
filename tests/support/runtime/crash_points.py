"""The disk before each step of one run: what a crash at that step would leave.

One run of a scenario gives all its crash points; to run it again up to each step would take time
that grows with the square of the number of steps.
"""

from collections.abc import Callable
from random import Random
from typing import Generic, NamedTuple, TypeVar

from tests.support.runtime.memory_files import Crashed, MemoryFiles

State = TypeVar("State")


class CrashPoint(NamedTuple, Generic[State]):
    """A moment of a run: the process, or the power, is lost before the step is performed."""

    step: int  # of the run, from 1
    files: MemoryFiles
    state: State  # what the run had promised until then


def crash_points(
    files: MemoryFiles,
    run: Callable[[], object],
    state: Callable[[], State],
    *,
    stride: int = 1,
) -> list[CrashPoint[State]]:
    """Run, and return the crash points of the first step and of each ``stride``-th after it."""
    points: list[CrashPoint[State]] = []
    steps_before = files.steps

    def before_step() -> None:
        step = files.steps - steps_before + 1
        if (step - 1) % stride == 0:
            points.append(CrashPoint(step, files.copy(), state()))

    files.before_step = before_step
    try:
        run()
    finally:
        files.before_step = lambda: None
    return points


class Restarts:
    """Starts of a log after a crash, which crash in turn.

    The start with number n crashes at step n * ``stride``; the first start that ends before its
    crash is the last one. The disk after a start depends only on the content before it, on the
    promise and on the step of the crash: equal starts are performed once.
    """

    def __init__(
        self, check: Callable[[MemoryFiles, int], None], *, most: int, stride: int
    ) -> None:
        self._check = check
        self._most = most
        self._stride = stride
        self._disks: dict[object, MemoryFiles] = {}

    def run(self, point: CrashPoint[int], *, is_power_cut: bool) -> None:
        files, random = point.files, Random(point.step)
        for start in range(1, self._most + 1):
            found = files.crash(random) if is_power_cut else files.copy()
            files = self._start(found, point, start * self._stride)
            if not files.is_crashed:
                break
        self._start(files.copy(), point, None)

    def _start(
        self, found: MemoryFiles, point: CrashPoint[int], crash_at_step: int | None
    ) -> MemoryFiles:
        """Return the disk after the start and its check: crashed, if the check came so far."""
        key = (found.content(), point.state, crash_at_step)
        if key not in self._disks:
            found.crash_at_step = crash_at_step
            try:
                self._check(found, point.state)
            except Crashed:
                assert crash_at_step is not None
            except BaseException as error:
                error.add_note(f"step {point.step}, a start with a crash at step {crash_at_step}")
                raise
            self._disks[key] = found
        return self._disks[key]
