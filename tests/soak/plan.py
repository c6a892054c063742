"""The steps of a soak, drawn from a seed, so that a seed gives the same run again."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """A step. The main query, its producer and the broker run on from one step to the next."""

    RUN = "run"
    KILL_DRIVER = "kill the driver"
    KILL_BROKER = "kill the broker"
    ADD_PARTITION = "add a partition"
    LATEST = "start at latest, kill"
    AVAILABLE_NOW = "AvailableNow in a loop"
    IDLE = "idle"
    STEADY = "steady, memory measured"


class When(Enum):
    """The moment at which the driver of a new query with startingOffsets=latest is killed."""

    AT_ONCE = "at once"
    BATCH_0 = "during batch 0"
    BATCH_1 = "during batch 1"


@dataclass(frozen=True)
class Step:
    """A step that runs, or keeps the broker down, for ``seconds`` after its preparations."""

    kind: Kind
    seconds: float = 0.0
    when: When | None = None
    rounds: int = 0

    def __str__(self) -> str:
        words = [self.kind.value]
        if self.when is not None:
            words.append(self.when.value)
        if self.rounds:
            words.append(f"{self.rounds} times")
        if self.seconds:
            words.append(f"for {self.seconds:.1f} s")
        return " ".join(words)


MOST_PARTITIONS = 10
FIRST_PARTITIONS = 3
_STEADY_SHARE = 0.25


def faults(seed: int) -> Iterator[list[Step]]:
    """Endless cycles, each with every kind of fault in random order."""
    chance = random.Random(seed)
    partitions = FIRST_PARTITIONS
    moments = list(When)
    chance.shuffle(moments)
    while True:
        moments = moments[1:] + moments[:1]
        cycle = [
            Step(Kind.KILL_DRIVER),
            Step(Kind.KILL_BROKER, round(chance.uniform(0.2, 6), 1)),
            Step(Kind.LATEST, round(chance.uniform(2, 6), 1), moments[0]),
            Step(Kind.AVAILABLE_NOW, rounds=chance.randint(2, 4)),
            Step(Kind.IDLE, round(chance.uniform(3, 10), 1)),
        ]
        if partitions < MOST_PARTITIONS:
            partitions += 1
            cycle.append(Step(Kind.ADD_PARTITION))
        chance.shuffle(cycle)
        runs = [Step(Kind.RUN, round(chance.uniform(2, 8), 1)) for _ in cycle]
        yield [step for pair in zip(runs, cycle, strict=True) for step in pair]


def long_plan(minutes: float, seed: int, now_s: Callable[[], float]) -> Iterator[Step]:
    """Faults for three quarters of the time, one cycle at least, then none for the rest.

    The next step is requested when the last one is done; ``now_s`` is a clock in seconds.
    """
    began_s = now_s()
    faults_end_s = began_s + minutes * 60 * (1 - _STEADY_SHARE)
    for number, cycle in enumerate(faults(seed)):
        for step in cycle:
            if number and now_s() >= faults_end_s:
                left_s = began_s + minutes * 60 - now_s()
                yield Step(Kind.STEADY, max(left_s, minutes * 60 * _STEADY_SHARE / 2))
                return
            yield step


def short_plan() -> list[Step]:
    """Each kind of fault once, with few starts of a JVM."""
    return [
        Step(Kind.RUN, 2),
        Step(Kind.KILL_DRIVER),
        Step(Kind.RUN, 1),
        Step(Kind.KILL_BROKER, 0.5),
        Step(Kind.ADD_PARTITION),
        Step(Kind.RUN, 1),
        Step(Kind.LATEST, 1, When.BATCH_0),
        Step(Kind.AVAILABLE_NOW, rounds=2),
        Step(Kind.IDLE, 1),
    ]
