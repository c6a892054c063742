"""A clock for tests and the simulation."""


class ManualClock:
    """A clock that stands still until it is moved: for tests and the simulation."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def monotonic_ns(self) -> int:
        return self._now_ms * 1_000_000

    def advance(self, by_ms: int) -> None:
        """Move both clocks on."""
        if by_ms < 0:
            raise ValueError(f"a clock cannot be advanced by {by_ms} ms")
        self._now_ms += by_ms
