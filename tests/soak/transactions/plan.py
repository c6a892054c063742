"""Which copy is hit, when and how, from a seed: pure, so that a seed hits the same way again."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

COPIES = 4


class Hit(Enum):
    """What is done to a copy, or to the broker."""

    KILL = "kill -9 of a copy"
    PAUSE = "a copy stands still"
    BROKER = "kill -9 of the broker"


@dataclass(frozen=True)
class Fault:
    """``after_s`` seconds after the fault before; the one that was hit is away for ``away_s``."""

    after_s: float
    hit: Hit
    copy: int
    away_s: float


_WEIGHTS = {Hit.KILL: 12, Hit.PAUSE: 3, Hit.BROKER: 2}
_SOON = 0.6
"""The share of killed copies that are there again before anybody can have missed them."""


def faults(seed: int, gap_s: float) -> Iterator[Fault]:
    """Faults without an end, ``gap_s`` apart on average; the first three are one of each kind.

    A copy that stands still is away longer than its session, at times longer than its transaction
    may be open: what it does when it goes on must be refused.
    """
    chance = random.Random(seed)
    first = list(Hit)
    chance.shuffle(first)
    while True:
        hit = first.pop() if first else chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if hit is Hit.PAUSE:
            away_s = chance.uniform(4, 12)
        elif hit is Hit.BROKER:
            away_s = chance.uniform(0, 2)
        else:
            away_s = 0.0 if chance.random() < _SOON else chance.uniform(1, 8)
        after_s = chance.uniform(0.3, 1.7) * gap_s
        yield Fault(round(after_s, 2), hit, chance.randrange(COPIES), round(away_s, 2))
