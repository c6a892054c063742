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
        first time. While the cleaner cleans as many logs at once as the setting log.cleaner.threads
        allows, it does not look for more."""
