"""The faults of a cluster, drawn from a seed, so that a seed gives the same faults again."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from tests.soak.cycles import until_over


class Kind(Enum):
    """A fault. A random broker is hit, unless the text names a leader or the controller."""

    KILL_LEADER = "kill -9 of a leader"
    KILL_CONTROLLER = "kill -9 of the controller"
    KILL_TWO = "kill -9 of two brokers"
    KILL_ALL = "kill -9 of all brokers"
    STOP = "SIGTERM of a broker"
    ROLLING = "rolling restart by SIGTERM"
    PAUSE = "a broker stands still for a moment"
    PAUSE_PAST_SESSION = "a broker stands still past its session"
    PAUSE_CONTROLLER = "the controller stands still past its session"
    SPLIT = "a split between two brokers"
    ONE_WAY = "nothing passes from one broker to another"
    ALONE = "a broker is split from all but clients past its session"
    NO_ZOOKEEPER = "a broker is split from ZooKeeper past its session"
    BREAK = "all connections between brokers, and to ZooKeeper, break"
    EXPIRE = "ZooKeeper ends a broker's session"
    ZOOKEEPER_RESTART = "kill -9 of ZooKeeper"
    ZOOKEEPER_PAUSE = "ZooKeeper stands still past all sessions"
    MOVE = "preferred leaders are elected"


SESSION_S = 4.0
_PAST_SESSION = frozenset(
    {
        *(Kind.PAUSE_PAST_SESSION, Kind.PAUSE_CONTROLLER),
        *(Kind.ALONE, Kind.NO_ZOOKEEPER, Kind.ZOOKEEPER_PAUSE),
    }
)
_LASTS = frozenset(Kind) - {Kind.ROLLING, Kind.BREAK, Kind.EXPIRE, Kind.MOVE}
_REST_SHARE = 0.67
_LONGEST_S = 6.0


@dataclass(frozen=True)
class Fault:
    """A fault that hits ``broker`` and perhaps ``other``, and lasts ``seconds``.

    The next fault waits until the cluster is whole if this one ``rests``.
    """

    kind: Kind
    broker: int
    other: int
    seconds: float = 0.0
    rests: bool = True

    def __str__(self) -> str:
        lasts = f" for {self.seconds:g} s" if self.kind in _LASTS else ""
        return f"{self.kind.value}{lasts}"


def faults(seed: int, brokers: int = 3) -> Iterator[list[Fault]]:
    """Endless cycles, each with every kind of fault in random order."""
    chance = random.Random(seed)
    while True:
        cycle = []
        for kind in Kind:
            broker, other = chance.sample(range(1, brokers + 1), 2)
            seconds = chance.uniform(0.2, _LONGEST_S)
            if kind in _PAST_SESSION:
                seconds = SESSION_S + chance.uniform(0.5, 3)
            rests = chance.random() < _REST_SHARE
            cycle.append(Fault(kind, broker, other, round(seconds, 1), rests))
        chance.shuffle(cycle)
        yield cycle


def long_plan(minutes: float, seed: int, now_s: Callable[[], float]) -> Iterator[Fault]:
    """Faults until the time is over, but one whole cycle at least (`until_over`)."""
    return until_over(faults(seed), minutes, now_s)


def short_plan() -> list[Fault]:
    """Faults for a short test: each way in which a broker, the controller or ZooKeeper fails."""
    past_s = SESSION_S + 0.5
    return [
        Fault(Kind.KILL_LEADER, 1, 2, 0.5, rests=False),
        Fault(Kind.BREAK, 2, 3, rests=False),
        Fault(Kind.KILL_CONTROLLER, 2, 3, SESSION_S + 1),
        Fault(Kind.SPLIT, 1, 3, 2.0, rests=False),
        Fault(Kind.ALONE, 2, 3, past_s),
        Fault(Kind.NO_ZOOKEEPER, 3, 1, past_s),
        Fault(Kind.PAUSE_CONTROLLER, 2, 1, past_s, rests=False),
        Fault(Kind.EXPIRE, 1, 2, rests=False),
        Fault(Kind.ZOOKEEPER_RESTART, 1, 2, 0.5),
        Fault(Kind.ROLLING, 1, 2),
    ]
