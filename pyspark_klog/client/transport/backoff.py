"""How long to wait before the next attempt. Pure: time and chance come as arguments."""

from collections.abc import Callable
from dataclasses import dataclass

JITTER = 0.2
"""Part of a wait by which it is varied, up and down, as Kafka's client does (KIP-580)."""

_CONCURRENT_MS = 5
_MOST_CONCURRENT_MS = 100


def concurrent_wait_ms(failures: int) -> int:
    """The wait after ``failures`` (>= 1) answers CONCURRENT_TRANSACTIONS in a row. They come after
    nearly every transaction, until its markers are written, which takes a few ms."""
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
        # 2^63 ms is longer than anything: the exponent is bounded so that the power stays small.
        grown = self.initial_ms << min(max(failures - 1, 0), 40)
        ceiling = max(self.max_ms, self.initial_ms)
        base = min(grown, ceiling)
        varied = base * (1 - JITTER + 2 * JITTER * random())
        return max(1, min(int(varied), int(ceiling * (1 + JITTER))))
