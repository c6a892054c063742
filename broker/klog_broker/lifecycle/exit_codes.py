"""The exit codes of a broker's process, and the exception of a broker that cannot start."""

from enum import IntEnum

from pyspark_klog.errors import KlogError


class ExitCode(IntEnum):
    """The exit codes of the broker's process; docs/operations.md has the table."""

    OK = 0
    REFUSED = 1
    """The process's limit of file descriptors is too low, or zookeeper.connect is set and kazoo is
    not installed."""
    REFUSED_DIRECTORY = 3
    """A data directory or the metadata in it cannot be used. For example, another broker has locked
    the directory, its meta.properties names another cluster or broker, a file is damaged, or the
    directory has data of topics that the metadata lacks."""
    REFUSED_ADDRESS = 4
    """A listener's address or port cannot be opened."""
    DISKS_LOST = 5
    """The last data directory went offline, or, in a cluster, any data directory."""
    NO_ZOOKEEPER = 6
    """No server of zookeeper.connect was usable within zookeeper.connection.timeout.ms."""
    REFUSED_BY_CLUSTER = 7
    """The cluster does not accept the broker, for example because another broker has its broker.id
    or address, or because the cluster is migrating to KRaft."""
    BUG = 70
    """The event loop failed because of a bug; the log has the traceback."""


class CannotStart(KlogError):
    """The broker cannot start; the text is a sentence with the reason, and usually the remedy."""

    def __init__(self, exit_code: ExitCode, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code
