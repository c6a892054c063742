"""Checks the owner of the data directories before the broker connects to ZooKeeper."""

from collections.abc import Sequence
from pathlib import Path

from klog_broker.metadata.errors import StoreRefused
from klog_broker.metadata.local_file import FILE_NAME, owner_of
from klog_broker.runtime.disk.files import Files
from pyspark_klog.ids import BrokerId


def refuse_a_lone_brokers(files: Files, directories: Sequence[Path]) -> None:
    """Raise StoreRefused if a data directory belongs to a standalone broker."""
    for directory in directories:
        path = directory / FILE_NAME
        if files.exists(path):
            raise StoreRefused(
                f"the data directory {directory} belongs to a broker that runs alone ({path}),"
                " whose topics no cluster knows; give the broker in the cluster another directory"
                " (log.dirs), or take zookeeper.connect out"
            )


def stored_id(files: Files, directories: Sequence[Path]) -> BrokerId | None:
    """Return the broker id in the first readable meta.properties, or None. Whether the directories
    agree is checked later, when their logs are loaded."""
    owners = (owner_of(files, each) for each in directories)
    return next((BrokerId(each.broker_id) for each in owners if each is not None), None)
