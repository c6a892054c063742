"""The data directories of a standalone broker, and the directory that each log was created in.

Kafka calls the directory of a replica's log its directory assignment (KIP-858). The file
klog-metadata has the directories and the assignments, so that a starting broker can tell a log
that is missing from a log that was never created.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pyspark_klog.ids import DirectoryId, TopicId, TopicPartition
from pyspark_klog.storage.text_files import decode_topic_id, encode_topic_id

LogsByTopic = Mapping[TopicId, Mapping[int, DirectoryId]]
"""By topic id and partition number: the id of the directory that the partition's log is in."""

DirectoryOf = Callable[[TopicPartition], DirectoryId | None]
"""Returns the id of the directory that a partition's log is in, or None without a log."""

_NO_LOGS: Mapping[int, DirectoryId] = MappingProxyType({})


def _no_directories() -> Mapping[DirectoryId, str]:
    return MappingProxyType({})


def _no_topics() -> LogsByTopic:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DirectoryAssignments:
    """The data directories, and the directory of each log. Immutable, as a metadata image is."""

    directories: Mapping[DirectoryId, str] = field(default_factory=_no_directories)
    """By directory id: the path that the directory had at the last start."""
    logs: LogsByTopic = field(default_factory=_no_topics)
    """The directory of each log. A partition whose log was never created is absent."""

    def of_topic(self, topic_id: TopicId) -> Mapping[int, DirectoryId]:
        """Return the directory ids of the topic's logs, by partition number."""
        return self.logs.get(topic_id, _NO_LOGS)

    def with_directories(self, directories: Mapping[DirectoryId, str]) -> "DirectoryAssignments":
        """Return a copy of the assignments whose data directories are exactly `directories` (paths
        by id)."""
        if directories == self.directories:
            return self
        return replace(self, directories=MappingProxyType(dict(directories)))

    def with_logs(self, logs: LogsByTopic) -> "DirectoryAssignments":
        """Return a copy of the assignments with the directory of each log in `logs`, which replaces
        an earlier directory of the same log."""
        merged = {topic_id: {**self.of_topic(topic_id), **logs[topic_id]} for topic_id in logs}
        return replace(self, logs=MappingProxyType({**self.logs, **merged}))

    def without_topic(self, topic_id: TopicId) -> "DirectoryAssignments":
        """Return a copy of the assignments without the topic's logs."""
        if topic_id not in self.logs:
            return self
        logs = {key: value for key, value in self.logs.items() if key != topic_id}
        return replace(self, logs=MappingProxyType(logs))

    def without_logs(self, topic_id: TopicId, partitions: Iterable[int]) -> "DirectoryAssignments":
        """Return a copy of the assignments without the logs of the topic's `partitions`."""
        gone = set(partitions)
        kept = {key: value for key, value in self.of_topic(topic_id).items() if key not in gone}
        return replace(self, logs=MappingProxyType({**self.logs, topic_id: kept}))


def directory_fields(directories: Mapping[DirectoryId, str]) -> dict[str, str]:
    """Return the value of `directories` in klog-metadata's header: the directories' paths by id."""
    return {encode_topic_id(key): path for key, path in directories.items()}


def directories_of_header(header: Mapping[str, Any]) -> Mapping[DirectoryId, str]:
    """Return the directories' paths by id from klog-metadata's header. The result is empty if a
    release of klog without directory ids wrote the file. Raises ValueError if an id is damaged."""
    rows = header.get("directories", {}).items()
    return MappingProxyType({_directory_id(text): str(path) for text, path in rows})


def log_fields(logs: Mapping[int, DirectoryId]) -> dict[str, list[int]]:
    """Return the value of `directories` in a topic's line of klog-metadata: for each directory id,
    the numbers of the partitions whose logs are in the directory."""
    fields: dict[DirectoryId, list[int]] = {}
    for partition, directory_id in sorted(logs.items()):
        fields.setdefault(directory_id, []).append(partition)
    return {encode_topic_id(key): partitions for key, partitions in fields.items()}


def logs_of_topic(row: Mapping[str, Any], partition_count: int) -> Mapping[int, DirectoryId]:
    """Return the directory ids by partition number from a topic's line of klog-metadata.

    Raises ValueError if the line has a partition twice, or a partition that does not exist.
    """
    logs: dict[int, DirectoryId] = {}
    for text, partitions in row.get("directories", {}).items():
        directory_id = _directory_id(text)
        for partition in map(int, partitions):
            if partition in logs or not 0 <= partition < partition_count:
                raise ValueError(f"partition {partition} is unknown, or listed twice, in {text}")
            logs[partition] = directory_id
    return MappingProxyType(logs)


def _directory_id(text: str) -> DirectoryId:
    return DirectoryId(decode_topic_id(text))
