"""Warnings that bad input can cause are written once in a while, with how many were left out."""


class RateLimit:
    """At most one ``True`` for each ``interval_ms``; pure, time is an argument."""

    def __init__(self, interval_ms: int = 10_000) -> None:
        self._interval_ms = interval_ms
        self._next_ms: int | None = None
        self._left_out = 0

    def allows(self, now_ms: int) -> bool:
        """Whether to write now; if not, it is counted."""
        if self._next_ms is not None and now_ms < self._next_ms:
            self._left_out += 1
            return False
        self._next_ms = now_ms + self._interval_ms
        return True

    def take_left_out(self) -> int:
        """How many were refused since the last call."""
        left_out, self._left_out = self._left_out, 0
        return left_out

    def take_note(self) -> str:
        """The same as the end of a line; empty if none was."""
        left_out = self.take_left_out()
        return f" ({left_out} similar ones since the last line)" if left_out else ""
