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

    def pop_suppressed_count(self) -> int:
        """Return how many log lines :meth:`allows` has refused since the last call, and start
        counting from 0."""
        left_out, self._left_out = self._left_out, 0
        return left_out

    def pop_suppressed_note(self) -> str:
        """Return the result of `pop_suppressed_count` as a suffix for a log line; "" for 0."""
        count = self.pop_suppressed_count()
        return f" ({count} similar ones since the last line)" if count else ""
