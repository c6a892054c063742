"""The reasons why a broker does not start: one CannotStart each, with a sentence and exit code."""

import errno
from collections.abc import Iterable
from pathlib import Path

from klog_broker.config import Listener
from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from klog_broker.log.errors import LogDirectoryError
from klog_broker.metadata.errors import StoreFailed, StoreRefused
from klog_broker.runtime.system import descriptors
from pyspark_klog.errors import KlogError


def refusal_of(error: OSError | KlogError) -> CannotStart | None:
    """The CannotStart for an error during the start; None for an unexpected error."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if isinstance(cause, OSError) and descriptors.is_exhausted(cause):
        return CannotStart(
            ExitCode.REFUSED,
            f"{descriptors.describe_exhaustion(cause)}; a broker needs at least"
            f" {descriptors.LEAST_DESCRIPTORS} and more for more connections; nothing was changed",
        )
    if isinstance(error, CannotStart):
        return error
    if isinstance(error, StoreFailed):
        text = f"{error}; start the broker again once the disk is in order"
        return CannotStart(ExitCode.REFUSED_DIRECTORY, text)
    return None


def refused_directory(error: LogDirectoryError | StoreRefused) -> CannotStart:
    """The CannotStart for a data directory that this broker must not use, or for metadata that it
    must not use."""
    return CannotStart(ExitCode.REFUSED_DIRECTORY, str(error))


def stopped_while_loading() -> CannotStart:
    """The CannotStart of a broker that was asked to stop while it loaded its logs."""
    return CannotStart(
        ExitCode.OK,
        "the broker was stopped while it loaded its logs; nothing is lost, and the next start "
        "recovers all of them again",
    )


def stopped_while_connecting() -> CannotStart:
    """The CannotStart of a broker that was asked to stop while it waited for ZooKeeper."""
    return CannotStart(ExitCode.OK, "the broker was stopped while it waited for ZooKeeper")


def no_zookeeper(connect: str, patience_ms: int, *, was_connected: bool) -> CannotStart:
    """The refusal if no ZooKeeper server was usable in time.

    ``was_connected`` means that a server was reached, but did not answer all requests of the start.
    """
    what = "answered all requests of the start" if was_connected else "could be reached"
    return CannotStart(
        ExitCode.NO_ZOOKEEPER,
        f"no ZooKeeper server of zookeeper.connect={connect} {what} within {patience_ms} ms"
        " (zookeeper.connection.timeout.ms); check that they run and can be reached from here",
    )


def refused_by_cluster(text: str) -> CannotStart:
    """The refusal of a broker by its cluster, for the reason ``text``."""
    return CannotStart(ExitCode.REFUSED_BY_CLUSTER, text)


def disks_lost(directories: Iterable[Path], *, are_all: bool) -> CannotStart:
    """Return the CannotStart that ends the start because these data directories went offline.

    ``are_all`` is true if no other data directory is left.
    """
    paths = ", ".join(sorted(map(str, directories)))
    what = (
        "no data directory can be used"
        if are_all
        else ("a data directory cannot be used, and in a cluster a broker needs all of them")
    )
    return CannotStart(
        ExitCode.DISKS_LOST,
        f"{what}, see the log: {paths}; start the broker again once the disk is in order",
    )


def refused_address(listener: Listener, error: OSError) -> CannotStart:
    """The refusal if a listener's address or port cannot be opened."""
    return CannotStart(ExitCode.REFUSED_ADDRESS, _why_not(listener, error))


def refused_metrics(host: str, port: int, error: OSError) -> CannotStart:
    """The refusal if the address of metrics.listener cannot be opened."""
    return CannotStart(
        ExitCode.REFUSED_ADDRESS,
        f"cannot listen on metrics.listener={host}:{port}: {error.strerror or error}; choose"
        " another port (0 takes a free one)",
    )


def _why_not(listener: Listener, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {listener.port} of {listener} is in use by another process: choose another"
            " with --port (0 takes a free one), or stop that process"
        )
    if error.errno == errno.EACCES:
        return f"port {listener.port} of {listener} needs more rights: choose one above 1023"
    return f"cannot listen on {listener}: {error.strerror or error}; check `listeners`"
