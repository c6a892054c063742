"""Check at a standalone broker's start that no data directory or log which klog-metadata knows is
missing.

A disk that is not mounted looks like an empty directory. If the broker took the directory for a new
one, its partitions would begin again at offset 0. Records that the broker acknowledged in this
state would be hidden as soon as the disk is mounted again.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.log.directory.partition_folders import DirectoryFolders
from klog_broker.log.errors import LogDirectoryError
from klog_broker.log.manager.adoption import listed
from klog_broker.metadata.local_file import FILE_NAME
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.system.descriptors import is_exhausted
from klog_broker.topics.adoption import AdoptingStore
from pyspark_klog.ids import NO_TOPIC_ID, DirectoryId, TopicPartition
from pyspark_klog.storage.text_files import encode_topic_id

_log = logging.getLogger("klog.topics")


class _MissingLog(NamedTuple):
    topic_partition: TopicPartition
    directory: str
    """The path of the data directory that the log was created in; the directory's id if its path is
    unknown."""
    folder: Path | None
    """The partition's folder in another data directory; None if no directory has one."""


class MissingData:
    """The check for missing data during one start-up.

    A standalone broker calls `check` before it opens any log. If data is missing, the broker does
    not start, unless ``is_accepted`` is true (--accept-missing): then a partition begins empty if
    no data directory has its log. `finish` is called once the logs are loaded.
    """

    def __init__(
        self, files: Files, metadata: AdoptingStore, *, is_accepted: bool, adopts: bool
    ) -> None:
        self._files = files
        self._metadata = metadata
        self._is_accepted = is_accepted
        self._adopts = adopts
        self._missing: list[_MissingLog] = []

    def check(self, directories: Sequence[LogDirectory], found: Sequence[DirectoryFolders]) -> None:
        """Raise LogDirectoryError if data is missing, and --accept-missing does not accept the
        loss.

        The error names the missing directories and partitions. `found` has the folders of the
        directories that are online. The check changes no file and no metadata.
        """
        if self._metadata.is_new:
            if not self._adopts:
                self._check_first(directories)
            return
        missing_directories = self._missing_directories(directories)
        self._missing = self._missing_logs(directories, found)
        if (missing_directories or self._missing) and not self._is_accepted:
            raise LogDirectoryError(_text(missing_directories, self._missing))
        for text in missing_directories:
            _log.warning("%s: klog-metadata drops this data directory (--accept-missing)", text)

    def finish(self, directories: Sequence[LogDirectory]) -> None:
        """Record these data directories in the metadata of a standalone broker, and begin a new
        leader epoch for each partition whose log `check` found missing."""
        ids = {each.directory_id: each.path for each in directories if each.directory_id}
        self._metadata.record_directories(ids, [each.topic_partition for each in self._missing])
        for (topic, partition), directory, folder in self._missing:
            _log.warning(
                "topic=%s partition=%d log_dir=%s missing: %s in a new leader epoch"
                " (--accept-missing)",
                topic,
                partition,
                directory,
                "a new log begins" if folder is None else f"the log in {folder.parent} is used",
            )

    def _check_first(self, directories: Sequence[LogDirectory]) -> None:
        """Raise LogDirectoryError if another directory shows that a broker is not new, although it
        counts as new.

        A broker without klog-metadata in the first directory counts as new. Another directory with
        klog-metadata shows that the order of log.dirs has changed. Each start-up writes
        meta.properties in the first directory before it writes to the others, so if only another
        directory has that file, the contents of the first directory are missing.
        """
        first, *others = directories
        for other in others:
            if self._files.exists(other.path / FILE_NAME):
                raise LogDirectoryError(
                    f"{other.path / FILE_NAME} exists, but klog reads {FILE_NAME} only from the "
                    f"first directory of log.dirs, {first.path}: name {other.path} first in "
                    "log.dirs"
                )
            if first.meta is None and other.meta is not None:
                raise LogDirectoryError(
                    f"the first data directory {first.path} has neither meta.properties nor "
                    f"{FILE_NAME}, but {other.path} was used by this broker before: mount the disk "
                    f"of {first.path}, or put both files back; if they are lost, start once with "
                    f"--adopt"
                )

    def _missing_directories(self, directories: Sequence[LogDirectory]) -> list[str]:
        """Return the reason, as a text, for each data directory that the metadata lists and that is
        missing."""
        ids = {each.directory_id for each in directories}
        by_path = {str(each.path.absolute()): each for each in directories}
        return [
            _missing_reason(key, path, by_path.get(path))
            for key, path in self._metadata.assignments.directories.items()
            if key not in ids
        ]

    def _missing_logs(
        self, directories: Sequence[LogDirectory], found: Sequence[DirectoryFolders]
    ) -> list[_MissingLog]:
        """Return the missing logs. A log is missing if klog-metadata records it in a data directory
        that is missing, or if no data directory has a folder of the log.

        A log in an offline directory is not missing: its partition is offline, too.
        """
        present = {each.directory_id: each for each in directories if each.directory_id}
        folders = self._folders(found)
        assignments = self._metadata.assignments
        missing: list[_MissingLog] = []
        for topic in self._metadata.image.topics.values():
            for number, directory_id in sorted(assignments.of_topic(topic.topic_id).items()):
                topic_partition = TopicPartition(topic.name, number)
                directory, folder = present.get(directory_id), folders.get(topic_partition)
                if directory is None or (folder is None and not directory.is_offline):
                    path = assignments.directories.get(directory_id, encode_topic_id(directory_id))
                    missing.append(_MissingLog(topic_partition, path, folder))
        return missing

    def _folders(self, found: Sequence[DirectoryFolders]) -> dict[TopicPartition, Path]:
        """Return the folders of all partitions, without empty folders.

        An empty folder is not a log: the folder of a created log has files, and one of them holds
        the topic id.
        """
        return {
            each.topic_partition: each.path
            for folders in found
            for each in folders.partitions
            if each.topic_id != NO_TOPIC_ID or not self._is_empty(each.path)
        }

    def _is_empty(self, folder: Path) -> bool:
        try:
            return not self._files.list_dir(folder)
        except OSError as error:
            if is_exhausted(error):
                raise
            # The folder exists, but cannot be read: the log is not missing. The data directory goes
            # offline when the broker tries to load the log.
            return False


def _missing_reason(directory_id: DirectoryId, path: str, there: LogDirectory | None) -> str:
    text = encode_topic_id(directory_id)
    if there is None:
        return f"the data directory {path} (directory.id {text}) is not in log.dirs"
    if there.directory_id is None:
        return (
            f"the data directory {path} has no meta.properties with directory.id {text} (is its"
            " disk mounted?)"
        )
    other = encode_topic_id(there.directory_id)
    return f"the data directory {path} has directory.id {other} instead of {text}"


def _text(missing_directories: Sequence[str], missing: Sequence[_MissingLog]) -> str:
    by_directory: dict[str, list[TopicPartition]] = {}
    for each in missing:
        if each.folder is None:
            by_directory.setdefault(each.directory, []).append(each.topic_partition)
    lacking = [
        f"there is no folder of {listed(partitions)}, created in {directory}"
        for directory, partitions in by_directory.items()
    ]
    return (
        f"data is missing, and nothing was changed: {'; '.join([*missing_directories, *lacking])};"
        " mount the disk, put the directory back into log.dirs, or restore the folders; if they are"
        " lost or were removed on purpose, start once with --accept-missing: partitions without a"
        " folder are then empty"
    )
