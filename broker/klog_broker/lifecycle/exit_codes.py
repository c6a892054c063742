"""The exit codes of a broker's process, and the exception of a broker that cannot start."""

from enum import IntEnum

from pyspark_klog.errors import KlogError


class ExitCode(IntEnum):
    """The exit codes of the broker's process; docs/operations.md has the table."""

    OK = 0
    REFUSED = 1
    """This process may have too few file descriptors."""
    REFUSED_DIRECTORY = 3
    """A data directory is held by another broker, or of another version, cluster or broker, or has
    data of topics that the metadata does not know, or lacks data that it knows."""
    REFUSED_ADDRESS = 4
    """A listener's address or port cannot be opened."""
    DISKS_LOST = 5
    """The last data directory went offline."""
    NO_ZOOKEEPER = 6
    """No server of zookeeper.connect could be used within zookeeper.connection.timeout.ms."""
    REFUSED_BY_CLUSTER = 7
    """The cluster does not take the broker: its number or address is another's, or it is on its way
    to KRaft."""
    BUG = 70
    """Something in the loop failed that no request can cause; the log has the traceback."""


class CannotStart(KlogError):
    """The broker does not start; the text says in a sentence why and what to do."""

    def __init__(self, exit_code: ExitCode, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code
