"""The reasons why a broker does not start: a CannotStart for each, with sentence and exit code."""

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
    """The refusal for an error that ended a start; None if the error has no sentence here."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if isinstance(cause, OSError) and descriptors.is_exhausted(cause):
        return CannotStart(
            ExitCode.REFUSED,
            f"{descriptors.why(cause)}; a broker needs {descriptors.LEAST_DESCRIPTORS} at"
            f" least and more for more connections; nothing was changed",
        )
    if isinstance(error, CannotStart):
        return error
    if isinstance(error, StoreFailed):
        text = f"{error}; start the broker again once the disk is in order"
        return CannotStart(ExitCode.REFUSED_DIRECTORY, text)
    return None


def refused_directory(error: LogDirectoryError | StoreRefused) -> CannotStart:
    """This broker must not use a data directory, or the data in it."""
    return CannotStart(ExitCode.REFUSED_DIRECTORY, str(error))


def given_up() -> CannotStart:
    """The broker was told to stop while it loaded its logs."""
    return CannotStart(
        ExitCode.OK,
        "told to stop while the logs were loaded; nothing is lost, the next start looks through "
        "what this one has not come to",
    )


def told_to_stop() -> CannotStart:
    """The broker was told to stop while it waited for ZooKeeper."""
    return CannotStart(ExitCode.OK, "told to stop while it waited for ZooKeeper")


def no_zookeeper(connect: str, patience_ms: int, *, was_connected: bool) -> CannotStart:
    """No server could be used in time."""
    what = "answered all that a start has to ask" if was_connected else "could be reached"
    return CannotStart(
        ExitCode.NO_ZOOKEEPER,
        f"no ZooKeeper server of zookeeper.connect={connect} {what} within {patience_ms} ms"
        " (zookeeper.connection.timeout.ms); check that they run and can be reached from here",
    )


def refused_by_cluster(text: str) -> CannotStart:
    """The cluster does not take this broker."""
    return CannotStart(ExitCode.REFUSED_BY_CLUSTER, text)


def disks_lost(directories: Iterable[Path], *, are_all: bool) -> CannotStart:
    """These data directories went offline during the start."""
    paths = ", ".join(sorted(map(str, directories)))
    what = (
        "no data directory can be used"
        if are_all
        else ("a data directory cannot be used, and in a cluster a broker needs all of them")
    )
    return CannotStart(
        ExitCode.DISKS_LOST,
        f"{what}, the log says why: {paths}; start the broker again once the disk is in order",
    )


def refused_address(listener: Listener, error: OSError) -> CannotStart:
    """A listener's address or port cannot be opened."""
    return CannotStart(ExitCode.REFUSED_ADDRESS, _why_not(listener, error))


def refused_metrics(host: str, port: int, error: OSError) -> CannotStart:
    """The address of metrics.listener cannot be opened."""
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
