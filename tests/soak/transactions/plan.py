"""Faults that hit copies and broker, drawn from a seed, so that a seed gives the same faults."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

COPIES = 4


class Hit(Enum):
    """A kind of fault of a copy, or of the broker."""

    KILL = "kill -9 of a copy"
    PAUSE = "a copy stands still"
    BROKER = "kill -9 of the broker"


@dataclass(frozen=True)
class Fault:
    """A fault ``after_s`` seconds after the one before; its target is away for ``away_s``."""

    after_s: float
    hit: Hit
    copy: int
    away_s: float


_WEIGHTS = {Hit.KILL: 12, Hit.PAUSE: 3, Hit.BROKER: 2}
_SOON = 0.6
"""The share of killed copies that restart before their session expires."""


def faults(seed: int, gap_s: float) -> Iterator[Fault]:
    """Endless faults, ``gap_s`` apart on average; the first three are one of each kind.

    A suspended copy is away longer than its session timeout, at times longer than its transaction
    timeout: the broker must then refuse what the copy sends.
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
