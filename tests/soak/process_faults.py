"""The kills of the exactly-once soak, from a seed: which process, when, and what follows."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from tests.soak.cycles import until_over
from tests.soak.traps import FIRST_BATCH, IN_COMMIT, IN_TASK, Point


class Kind(Enum):
    """A fault. With a point, it happens when one of Spark's processes is there."""

    DRIVER = "kill the driver"
    WORKER = "kill a Python worker"
    COMMITTER = "kill the process that commits"
    EXECUTOR = "kill an executor"
    BROKER = "kill the broker"
    PAST_TIMEOUT = "kill the driver, which stays down past the transaction time-out"
    ASLEEP = "a process sleeps past the transaction time-out and goes on"
    ZOMBIE = "a worker sleeps, its driver is killed, and it goes on after another run's commit"


PLAIN, EACH = "plain", "each"
QUERIES = (PLAIN, EACH)
"""A copy by writeStream, and one by foreachBatch."""
CLUSTER = "local-cluster[2,1,1024]"
MASTERS = ("local[1,4]", "local[2,4]", "local[4,4]", CLUSTER)
"""Spark masters with retries of tasks; the number of cores decides how the plain copy is split."""

POINTS: dict[Kind, tuple[Point | None, ...]] = {
    Kind.DRIVER: (None, *IN_TASK, *IN_COMMIT),
    Kind.WORKER: (None, *IN_TASK),
    Kind.COMMITTER: IN_COMMIT,
    Kind.EXECUTOR: (None, *IN_TASK),
    Kind.BROKER: (None, *IN_TASK, *IN_COMMIT),
    Kind.PAST_TIMEOUT: (Point.HANDED_OVER, Point.COMMIT_BEGINS, Point.BEFORE_END, Point.AFTER_END),
    Kind.ASLEEP: (
        *(Point.ROWS_WRITTEN, Point.ROW_WRITTEN, Point.HANDED_OVER),
        *(Point.COMMIT_BEGINS, Point.BEFORE_END, Point.AFTER_END),
    ),
    Kind.ZOMBIE: (
        *(Point.ID_TAKEN, Point.ROWS_WRITTEN, Point.ROW_WRITTEN),
        *(Point.HANDED_OVER, Point.TASK_ENDED),
    ),
}
"""The points where each kind may happen; None: at any moment."""


@dataclass(frozen=True)
class Fault:
    """A kill at ``point``, or after ``seconds`` if ``point`` is None.

    A killed broker is also down for ``seconds``. ``master`` is Spark's master for the next driver.
    """

    kind: Kind
    point: Point | None = None
    query: str = PLAIN
    master: str = MASTERS[1]
    seconds: float = 0.5

    @property
    def in_first_batch(self) -> bool:
        """Whether only a query that starts is sure to reach the point."""
        return self.point in FIRST_BATCH

    def __str__(self) -> str:
        where = f"after {self.seconds:g} s" if self.point is None else f"when {self.point.value}"
        of = f" of {self.query}" if self.in_first_batch else ""
        return f"{self.kind.value} {where}{of} (then {self.master})"


def faults(seed: int) -> Iterator[list[Fault]]:
    """Endless cycles, each with every kind of fault in random order.

    Every kind passes through all of its points before one of them comes again.
    """
    chance = random.Random(seed)
    left: dict[Kind, list[Point | None]] = {kind: [] for kind in Kind}
    while True:
        cycle = []
        for kind in Kind:
            if not left[kind]:
                left[kind] = chance.sample(POINTS[kind], len(POINTS[kind]))
            cycle.append(
                Fault(
                    kind,
                    left[kind].pop(),
                    chance.choice(QUERIES),
                    chance.choice(MASTERS),
                    round(chance.uniform(0.1, 3), 1),
                )
            )
        chance.shuffle(cycle)
        yield cycle


def long_plan(minutes: float, seed: int, now_s: Callable[[], float]) -> Iterator[Fault]:
    """Faults until the time is over, but one whole cycle at least (`until_over`)."""
    return until_over(faults(seed), minutes, now_s)


def short_plan() -> list[Fault]:
    """Faults for a test with little time: five kinds, with two drivers in all."""
    return [
        Fault(Kind.WORKER, Point.ROW_WRITTEN),
        Fault(Kind.COMMITTER, Point.AFTER_END, EACH),
        Fault(Kind.ASLEEP, Point.BEFORE_END, PLAIN),
        Fault(Kind.BROKER, Point.ROWS_WRITTEN, seconds=0.2),
        Fault(Kind.ZOMBIE, Point.ROW_WRITTEN, master="local[4,4]"),
    ]
