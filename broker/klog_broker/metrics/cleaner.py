"""Totals of the log cleaner since the broker started."""


class CleanerCounts:
    """Totals over all cleaning rounds that have finished. A failed round is in no total."""

    def __init__(self) -> None:
        self.rounds = 0
        self.bytes_read = 0
        self.bytes_kept = 0
        self.total_ms = 0
        self.last_check_ms: int | None = None
        """Monotonic time when the log cleaner last began to look for logs to clean; None before the
        first time. The cleaner looks every log.cleaner.backoff.ms and after each log that it has
        cleaned, but as a rule not while it cleans as many logs at once as log.cleaner.threads
        allows."""
