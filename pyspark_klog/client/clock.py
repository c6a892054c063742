"""The machine's clocks, for the drivers, which tell modules without I/O the time."""

import time


def monotonic_ms() -> int:
    """Milliseconds of a clock that never goes back."""
    return time.monotonic_ns() // 1_000_000


def monotonic_s() -> float:
    """The same clock in seconds."""
    return time.monotonic()


def epoch_ms() -> int:
    """Milliseconds since 1970-01-01 UTC; may jump either way."""
    return time.time_ns() // 1_000_000


def sleep(seconds: float) -> None:
    """Blocks for so long."""
    time.sleep(seconds)
