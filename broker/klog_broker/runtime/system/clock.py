"""Time as a parameter: what wants to know it is given a Clock, or the time itself."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: the wall's, for what is stored, and one that never goes back, for waiting."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump either way."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back."""

    def monotonic_ns(self) -> int:
        """The same in nanoseconds."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    # Read several times a turn: the function itself.
    monotonic_ns = staticmethod(time.monotonic_ns)
