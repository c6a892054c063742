"""The state of a broker's ZooKeeper session, and its changes since the broker started."""


class ZooKeeperCounts:
    """The present state of the session, and totals over all sessions of the broker."""

    def __init__(self) -> None:
        self.is_connected = False
        """Whether a ZooKeeper server serves the broker's session, as far as the broker knows."""
        self.connects = 0
        """How many times a session has connected to a ZooKeeper server."""
        self.disconnects = 0
        """How many times a session has lost its connection. The session may continue on another
        connection, until a server ends it."""
        self.expirations = 0
        """How many sessions a ZooKeeper server has ended. The broker registers again after each."""
