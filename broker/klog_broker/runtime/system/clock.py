"""Time as a parameter: code that needs the time receives a Clock, or the time itself."""

import time
from typing import Protocol


class Clock(Protocol):
    """A wall clock, for stored timestamps, and a monotonic clock, for timeouts and durations."""

    def now_ms(self) -> int:
        """Return the milliseconds since 1970-01-01 UTC; this clock may jump either way."""

    def monotonic_ms(self) -> int:
        """Return the milliseconds since an unspecified moment; this clock never goes back."""

    def monotonic_ns(self) -> int:
        """Return the monotonic clock's time in nanoseconds."""


class SystemClock:
    """The clocks of the machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    # The event loop reads this clock several times in each turn, so the method is the system's
    # function itself, without the cost of a second call.
    monotonic_ns = staticmethod(time.monotonic_ns)
