"""Which alert names each failure of the operator's pages; printed in docs/metrics.md.

A test compares the rows with the tables of these pages, so that a failure that is added there needs
an alert.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple


class Failure(NamedTuple):
    """A row of a table in an operator's page: the page, the heading, the beginning of the first
    cell, and the alerts, at least one of which fires."""

    page: str
    heading: str
    cell: str
    alerts: tuple[str, ...]


_DISK = ("operations.md", "When the disk fails")
_LOST = ("clusters-of-brokers.md", "When something is lost")
_COMPACTION = ("compaction.md", "What can go wrong")
_EXIT = ("operations.md", "Exit codes")
_DOWN = "KlogBrokerDown"

FAILURES = (
    Failure(*_DISK, "nearly full", ("KlogDiskBelowFloor", "KlogDiskFills")),
    Failure(*_DISK, "full", ("KlogDiskBelowFloor", "KlogStorageErrors")),
    Failure(*_DISK, "a sync fails", ("KlogDirectoryOffline", "KlogMetadataFailed", _DOWN)),
    Failure(*_DISK, "a read fails", ("KlogDirectoryOffline", "KlogNotCompacted", _DOWN)),
    Failure(
        *_DISK,
        "one of several directories is offline",
        ("KlogDirectoryOffline", "KlogTopicDeletionWaits", _DOWN),
    ),
    Failure(*_DISK, "one log fails because of a bug", ("KlogReplicaOffline", "KlogBug")),
    Failure("operations.md", "Descriptors", "", ("KlogConnectionsRunOut", "KlogDescriptorsRunOut")),
    Failure("operations.md", "A clock that jumps", "", ("KlogClockWrong",)),
    *(Failure(*_EXIT, code, (_DOWN,)) for code in ("1", "2", "3", "4", "5", "6", "7", "70")),
    Failure(*_LOST, "a broker (killed, hung, cut off)", (_DOWN, "KlogUnderReplicated")),
    Failure(*_LOST, "the controller", (_DOWN, "KlogNoController")),
    Failure(*_LOST, "a disk", (_DOWN, "KlogUnderReplicated")),
    Failure(*_LOST, "a broker for good", (_DOWN, "KlogUnderReplicated")),
    Failure(*_LOST, "ZooKeeper", ("KlogNoZooKeeperSession",)),
    Failure(*_LOST, "ZooKeeper's data", (_DOWN,)),
    Failure(
        *_LOST,
        "all in-sync replicas of a partition",
        ("KlogPartitionOffline", "KlogUncleanElection"),
    ),
    Failure(*_COMPACTION, "a crash or power cut", (_DOWN,)),
    Failure(*_COMPACTION, "a batch has a bad CRC", ("KlogNotCompacted",)),
    Failure(*_COMPACTION, "the disk is full", ("KlogDiskBelowFloor",)),
    Failure(*_COMPACTION, "the keys of a single batch", ("KlogNotCompacted",)),
)
"""Failures that the docs describe in prose have an empty first cell."""


def failure_table() -> Iterable[str]:
    """Return the rows of the table of failures in docs/metrics.md."""
    for (page, heading, alerts), rows in groupby(
        FAILURES, lambda each: (each.page, each.heading, each.alerts)
    ):
        anchor = heading.lower().replace(" ", "-")
        failures = ", ".join(each.cell or heading for each in rows)
        names = ", ".join(f"`{alert}`" for alert in alerts)
        yield f"| [{heading}]({page}#{anchor}) | {failures} | {names} |"
