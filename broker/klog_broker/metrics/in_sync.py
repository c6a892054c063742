"""What has become of the in-sync sets that this broker asked the controller for, as a leader."""


class InSyncCounts:
    """Since the broker started."""

    def __init__(self) -> None:
        self.expanded = 0
        self.shrunk = 0
        self.refused = 0

    def committed(self, before: int, after: int) -> None:
        """A set of `before` replicas has `after` now."""
        self.expanded += after > before
        self.shrunk += after < before
