"""Checks, before a broker connects to ZooKeeper, that its data directories do not belong to a
standalone broker, and reads the broker id in them."""

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
    """Return the broker id in the first readable meta.properties of the data directories, or None.
    The log manager checks later, when it loads the logs, that all directories have the same id."""
    owners = (owner_of(files, each) for each in directories)
    return next((BrokerId(each.broker_id) for each in owners if each is not None), None)
