"""What a soak does, step by step, from a seed: pure, so that a seed gives the same run again."""

import random
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """A step. The main query, its producer and the broker go on from one to the next."""

    RUN = "run"
    KILL_DRIVER = "kill the driver"
    KILL_BROKER = "kill the broker"
    ADD_PARTITION = "add a partition"
    LATEST = "start at latest, kill"
    AVAILABLE_NOW = "AvailableNow in a loop"
    IDLE = "idle"
    STEADY = "steady, memory measured"


class When(Enum):
    """At which moment of a new query with startingOffsets=latest its driver is killed."""

    AT_ONCE = "at once"
    BATCH_0 = "during batch 0"
    BATCH_1 = "during batch 1"


@dataclass(frozen=True)
class Step:
    """``seconds`` is how long the step runs, or the broker is down, once all is set up."""

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


_DRIVER_START_S = 12.0
_OVERHEAD_S = {
    Kind.KILL_DRIVER: _DRIVER_START_S,
    Kind.KILL_BROKER: 4.0,
    Kind.LATEST: 2 * _DRIVER_START_S + 10,
    Kind.AVAILABLE_NOW: 3.0,
    Kind.IDLE: 5.0,
}
_OVERHEAD_A_ROUND_S = 3.0
MOST_PARTITIONS = 10
FIRST_PARTITIONS = 3


def cost_s(step: Step) -> float:
    """About how long a step takes, on a machine that has little else to do."""
    return step.seconds + _OVERHEAD_S.get(step.kind, 0.0) + step.rounds * _OVERHEAD_A_ROUND_S


def long_plan(minutes: float, seed: int) -> list[Step]:
    """Cycles with every kind of fault, then a quarter of the time without any."""
    chance = random.Random(seed)
    steady_s = minutes * 60 * 0.25
    left_s = minutes * 60 - steady_s - _DRIVER_START_S
    steps: list[Step] = []
    partitions = FIRST_PARTITIONS
    moments = list(When)
    chance.shuffle(moments)
    while left_s > 0:
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
        for step in cycle:
            if left_s <= 0 and len(steps) > 2 * len(cycle):
                break  # the first cycle is whole, however little time there is
            run = Step(Kind.RUN, round(chance.uniform(2, 8), 1))
            steps += [run, step]
            left_s -= cost_s(run) + cost_s(step)
    return [*steps, Step(Kind.STEADY, steady_s)]


def short_plan() -> list[Step]:
    """Each kind of fault once, with as few starts of a JVM as that takes."""
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
