"""The machine's clocks. Modules that call themselves pure do not read the clocks: they get the time
as an argument."""

import time


def monotonic_ms() -> int:
    """Milliseconds of the system's monotonic clock, which never goes back."""
    return time.monotonic_ns() // 1_000_000


def monotonic_s() -> float:
    """Seconds of the system's monotonic clock."""
    return time.monotonic()


def epoch_ms() -> int:
    """Milliseconds since 1970-01-01 UTC; the system may set this clock forward or back."""
    return time.time_ns() // 1_000_000


def sleep(seconds: float) -> None:
    """Block the thread for ``seconds``."""
    time.sleep(seconds)
