"""A rate limit for warnings that bad input can cause, with a count of the suppressed ones."""


class RateLimit:
    """Allows one log line per ``interval_ms``. Pure: the time is an argument."""

    def __init__(self, interval_ms: int = 10_000) -> None:
        self._interval_ms = interval_ms
        self._next_ms: int | None = None
        self._left_out = 0

    def allows(self, now_ms: int) -> bool:
        """Return whether to write the log line now; a line that is not allowed is counted."""
        if self._next_ms is not None and now_ms < self._next_ms:
            self._left_out += 1
            return False
        self._next_ms = now_ms + self._interval_ms
        return True

    def take_left_out(self) -> int:
        """Return how many log lines :meth:`allows` has refused since the last call, and start
        counting from 0."""
        left_out, self._left_out = self._left_out, 0
        return left_out

    def take_note(self) -> str:
        """Return the count of `take_left_out` as a suffix for a log line; "" for a count of 0."""
        left_out = self.take_left_out()
        return f" ({left_out} similar ones since the last line)" if left_out else ""
