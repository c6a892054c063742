"""How long to wait before the next attempt. Pure: random numbers come as arguments."""

from collections.abc import Callable
from dataclasses import dataclass

JITTER = 0.2
"""The share of a wait by which it varies, up and down, as in Kafka's client (KIP-580)."""

_CONCURRENT_MS = 5
_MOST_CONCURRENT_MS = 100


def concurrent_wait_ms(failures: int) -> int:
    """The wait in ms after ``failures`` (>= 1) responses CONCURRENT_TRANSACTIONS in a row.
    Brokers send them after nearly every transaction until its markers are written, a few ms."""
    return min(_CONCURRENT_MS << min(failures - 1, 10), _MOST_CONCURRENT_MS)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from ``initial_ms`` up to ``max_ms``, each varied by 20 % of itself."""

    initial_ms: int
    max_ms: int

    def wait_ms(self, failures: int, random: Callable[[], float]) -> int:
        """The wait after ``failures`` (>= 1) failed attempts in a row; ``random`` gives [0, 1)."""
        if self.initial_ms <= 0:
            return 0
        # The bound on the exponent keeps the number small; 40 doublings exceed every maximum.
        grown = self.initial_ms << min(max(failures - 1, 0), 40)
        ceiling = max(self.max_ms, self.initial_ms)
        base = min(grown, ceiling)
        varied = base * (1 - JITTER + 2 * JITTER * random())
        return max(1, min(int(varied), int(ceiling * (1 + JITTER))))
