"""How long to wait after a failed attempt until the next. Pure: random numbers are arguments."""

from collections.abc import Callable
from dataclasses import dataclass

JITTER = 0.2
"""The largest share of the wait before a retry that is randomly added to this wait or subtracted
from it, as in Kafka's client (KIP-580)."""

_CONCURRENT_MS = 5
_MOST_CONCURRENT_MS = 100


def concurrent_wait_ms(failures: int) -> int:
    """The wait in ms after a response CONCURRENT_TRANSACTIONS to a request that has now failed
    ``failures`` (>= 1) times. A broker sends these responses for a few ms after nearly every
    transaction, until the transaction's markers are written."""
    return min(_CONCURRENT_MS << min(failures - 1, 10), _MOST_CONCURRENT_MS)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from ``initial_ms`` up to ``max_ms``. Each is randomly lengthened or
    shortened by up to 20 %."""

    initial_ms: int
    max_ms: int

    def wait_ms(self, failures: int, random: Callable[[], float]) -> int:
        """The wait in ms after ``failures`` (>= 1) failed attempts in a row; 0 if ``initial_ms`` is
        0. ``random`` gives [0, 1)."""
        if self.initial_ms <= 0:
            return 0
        # The bound on the exponent keeps the number small: even 1 ms, doubled 40 times, is a wait
        # of more than 30 years.
        grown = self.initial_ms << min(max(failures - 1, 0), 40)
        ceiling = max(self.max_ms, self.initial_ms)
        base = min(grown, ceiling)
        varied = base * (1 - JITTER + 2 * JITTER * random())
        return max(1, min(int(varied), int(ceiling * (1 + JITTER))))
