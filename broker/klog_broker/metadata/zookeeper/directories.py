"""What the data directories say before ZooKeeper is asked: whose they are."""

from collections.abc import Sequence
from pathlib import Path

from klog_broker.metadata.errors import StoreRefused
from klog_broker.metadata.local_file import FILE_NAME, owner_of
from klog_broker.runtime.disk.files import Files
from pyspark_klog.ids import BrokerId


def refuse_a_lone_brokers(files: Files, directories: Sequence[Path]) -> None:
    """StoreRefused if a directory is that of a broker that runs alone."""
    for directory in directories:
        path = directory / FILE_NAME
        if files.exists(path):
            raise StoreRefused(
                f"the data directory {directory} belongs to a broker that runs alone ({path}),"
                " whose topics no cluster knows; give the broker in the cluster another directory"
                " (log.dirs), or take zookeeper.connect out"
            )


def stored_id(files: Files, directories: Sequence[Path]) -> BrokerId | None:
    """The number that a meta.properties names; the directories are checked against each other
    when they are loaded."""
    owners = (owner_of(files, each) for each in directories)
    return next((BrokerId(each.broker_id) for each in owners if each is not None), None)
