"""Checks and completes meta.properties of data directories: cluster, broker and directory ids."""

from base64 import urlsafe_b64encode
from collections.abc import Sequence

from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.log.errors import LogDirectoryError
from klog_broker.runtime.system.chance import Chance
from pyspark_klog.ids import BrokerId, DirectoryId
from pyspark_klog.storage.text_files import (
    MetaProperties,
    encode_topic_id,
    is_reserved_directory_id,
)


def check_owners(
    directories: Sequence[LogDirectory],
    broker_id: BrokerId,
    cluster_id: str | None,
    chance: Chance,
) -> str:
    """Read each directory's meta.properties, and return the cluster id: the given id, or else the
    id in the directories, or a random id if all directories are new. Writes nothing.

    Raises LogDirectoryError if a directory belongs to another broker or cluster, or if two
    directories have the same directory.id.
    """
    ids: dict[DirectoryId, LogDirectory] = {}
    for directory in directories:
        directory.read_meta()
        meta = directory.meta
        if meta is None:
            continue
        if meta.broker_id != broker_id:
            raise LogDirectoryError(
                f"the data directory {directory.path} belongs to broker {meta.broker_id}, this "
                f"is broker {broker_id}; set broker.id to {meta.broker_id} or log.dirs "
                f"to another directory"
            )
        if cluster_id is None:
            cluster_id = meta.cluster_id
        if meta.cluster_id != cluster_id:
            raise LogDirectoryError(
                f"the data directory {directory.path} belongs to cluster {meta.cluster_id}, "
                f"this broker to {cluster_id}; set log.dirs to this cluster's directory"
            )
        if meta.directory_id is not None:
            other = ids.setdefault(meta.directory_id, directory)
            if other is not directory:
                raise LogDirectoryError(
                    f"the data directories {other.path} and {directory.path} have the same "
                    f"directory.id {encode_topic_id(meta.directory_id)} in meta.properties: one is "
                    f"a copy of the other; take the copy out of log.dirs"
                )
    return cluster_id or urlsafe_b64encode(chance.uuid().bytes).decode().rstrip("=")


def complete_meta(
    directory: LogDirectory, cluster_id: str, broker_id: BrokerId, chance: Chance
) -> None:
    """Write meta.properties durably if the file is missing or lacks a directory.id, which older
    versions of klog and Kafka before 3.7 did not write. Blocks. Raises OSError."""
    meta = directory.meta or MetaProperties(cluster_id, broker_id)
    if meta.directory_id is None:
        directory.write_meta(meta._replace(directory_id=_new_id(chance)))


def _new_id(chance: Chance) -> DirectoryId:
    """Return a random id that Kafka does not reserve and whose text does not begin with `-`.
    Command line tools would take such a text for an option."""
    while True:
        found = DirectoryId(chance.uuid())
        if not is_reserved_directory_id(found) and not encode_topic_id(found).startswith("-"):
            return found
