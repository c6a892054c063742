"""Lists the partition folders of data directories: at start-up before any log is opened, and later
for given topics."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.log.errors import LogDirectoryError
from klog_broker.runtime.disk.files import Files
from pyspark_klog.ids import NO_TOPIC_ID, TopicId, TopicPartition
from pyspark_klog.storage import names
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.text_files import decode_partition_metadata

_log = logging.getLogger("klog.log")


class PartitionFolder(NamedTuple):
    """The folder of a partition. ``topic_id`` is NO_TOPIC_ID if partition.metadata is missing."""

    topic_partition: TopicPartition
    topic_id: TopicId
    path: Path


@dataclass(frozen=True)
class DirectoryFolders:
    """The folders of one data directory."""

    directory: LogDirectory
    partitions: tuple[PartitionFolder, ...]
    deleted: tuple[Path, ...]
    """Folders of deleted partitions, whose files must still be removed."""
    kraft_metadata: Path | None
    """The folder of KRaft's metadata log, which is no partition of a topic; None without it."""


def find_folders(files: Files, directory: LogDirectory) -> DirectoryFolders:
    """List the folders of the directory. Writes nothing.

    Logs and skips a folder whose name is not that of a partition. Raises OSError, and
    LogDirectoryError for a damaged partition.metadata.
    """
    partitions: list[PartitionFolder] = []
    deleted: list[Path] = []
    kraft_metadata: Path | None = None
    for name in files.list_dir(directory.path):
        path = directory.path / name
        if not files.is_dir(path):
            continue
        if names.is_deleted_directory(name):
            deleted.append(path)
        elif name == names.KRAFT_METADATA_DIRECTORY:
            kraft_metadata = path
        else:
            try:
                topic_partition = names.parse_partition_directory_name(name)
            except StorageFormatError as error:
                _log.warning("ignoring a folder in log_dir=%s: %s", directory.path, error)
                continue
            partitions.append(PartitionFolder(topic_partition, _read_topic_id(files, path), path))
    return DirectoryFolders(directory, tuple(partitions), tuple(deleted), kraft_metadata)


def check_unique_partitions(partitions: Iterable[PartitionFolder]) -> None:
    """Raise LogDirectoryError if a partition is in more than one folder."""
    seen: dict[TopicPartition, Path] = {}
    for topic_partition, _, path in partitions:
        other = seen.setdefault(topic_partition, path)
        if other != path:
            raise LogDirectoryError(
                f"{topic_partition} is both in {other} and in {path}; move one of them away"
            )


def folders_of_topics(
    files: Files, directories: Iterable[LogDirectory], topics: Iterable[str]
) -> dict[str, list[tuple[int, Path]]]:
    """Return the (partition number, path) of each folder of the given topics in all directories,
    by topic. Raises OSError."""
    wanted = set(topics)
    found: dict[str, list[tuple[int, Path]]] = {}
    for directory in directories:
        for name in files.list_dir(directory.path):
            topic, _, number = name.rpartition("-")
            if topic in wanted and number.isascii() and number.isdigit():
                path = directory.path / name
                found.setdefault(topic, []).append((int(number[:10]), path))
    return found


def _read_topic_id(files: Files, path: Path) -> TopicId:
    file = path / names.PARTITION_METADATA
    if not files.exists(file):
        return NO_TOPIC_ID
    try:
        return decode_partition_metadata(files.read_bytes(file))
    except StorageFormatError as error:
        raise LogDirectoryError(
            f"{file} cannot be read: {error}; restore it, or move {path} away"
        ) from None
