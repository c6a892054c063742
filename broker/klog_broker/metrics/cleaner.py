"""What the log cleaner has done since the broker started."""


class CleanerCounts:
    """Of the rounds that were finished."""

    def __init__(self) -> None:
        self.rounds = 0
        self.bytes_read = 0
        self.bytes_kept = 0
        self.took_ms = 0
        self.last_ended_ms: int | None = None
        """Monotonic time."""
