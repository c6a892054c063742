"""Counts of the ISR changes that this broker, as a partition leader, asked the controller for."""


class InSyncCounts:
    """ISR expansions, ISR shrinks, and ISR changes that were refused, since the broker started."""

    def __init__(self) -> None:
        self.expanded = 0
        self.shrunk = 0
        self.refused = 0

    def count_committed(self, before: int, after: int) -> None:
        """Count a committed ISR change from `before` to `after` replicas."""
        self.expanded += after > before
        self.shrunk += after < before
