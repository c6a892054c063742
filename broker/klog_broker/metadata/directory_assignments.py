"""The data directories of a broker that runs alone, and the directory that each log was created in.

Kafka's name for the latter is a replica's directory assignment (KIP-858). klog-metadata keeps both,
so that a start can tell data that is missing from data that has never been there.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pyspark_klog.ids import DirectoryId, TopicId, TopicPartition
from pyspark_klog.storage.text_files import decode_topic_id, encode_topic_id

LogsByTopic = Mapping[TopicId, Mapping[int, DirectoryId]]
"""By topic and partition: the directory that the partition's log is in."""

DirectoryOf = Callable[[TopicPartition], DirectoryId | None]
"""The directory that a partition's log is in; None if the partition has no log."""

_NO_LOGS: Mapping[int, DirectoryId] = MappingProxyType({})


def _no_directories() -> Mapping[DirectoryId, str]:
    return MappingProxyType({})


def _no_topics() -> LogsByTopic:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DirectoryAssignments:
    """Immutable, as an image is."""

    directories: Mapping[DirectoryId, str] = field(default_factory=_no_directories)
    """The paths that the directories had at the last start."""
    logs: LogsByTopic = field(default_factory=_no_topics)
    """A partition whose log has never been created is not in it."""

    def of_topic(self, topic_id: TopicId) -> Mapping[int, DirectoryId]:
        """The directories of the topic's logs, by partition."""
        return self.logs.get(topic_id, _NO_LOGS)

    def with_directories(self, directories: Mapping[DirectoryId, str]) -> "DirectoryAssignments":
        """The same with exactly these directories, by their paths."""
        if directories == self.directories:
            return self
        return replace(self, directories=MappingProxyType(dict(directories)))

    def with_logs(self, logs: LogsByTopic) -> "DirectoryAssignments":
        """The same with these logs added, or assigned to another directory."""
        merged = {topic_id: {**self.of_topic(topic_id), **logs[topic_id]} for topic_id in logs}
        return replace(self, logs=MappingProxyType({**self.logs, **merged}))

    def without_topic(self, topic_id: TopicId) -> "DirectoryAssignments":
        """The same without the topic's logs."""
        if topic_id not in self.logs:
            return self
        logs = {key: value for key, value in self.logs.items() if key != topic_id}
        return replace(self, logs=MappingProxyType(logs))

    def without_logs(self, topic_id: TopicId, partitions: Iterable[int]) -> "DirectoryAssignments":
        """The same without these logs of a topic."""
        gone = set(partitions)
        kept = {key: value for key, value in self.of_topic(topic_id).items() if key not in gone}
        return replace(self, logs=MappingProxyType({**self.logs, topic_id: kept}))


def directory_fields(directories: Mapping[DirectoryId, str]) -> dict[str, str]:
    """The value of `directories` in the header of klog-metadata."""
    return {encode_topic_id(key): path for key, path in directories.items()}


def directories_of_header(header: Mapping[str, Any]) -> Mapping[DirectoryId, str]:
    """The inverse; empty for a file of a release before directory ids. ValueError if damaged."""
    rows = header.get("directories", {}).items()
    return MappingProxyType({_directory_id(text): str(path) for text, path in rows})


def log_fields(logs: Mapping[int, DirectoryId]) -> dict[str, list[int]]:
    """The value of `directories` in a topic's line: the partitions by the directory's id."""
    fields: dict[DirectoryId, list[int]] = {}
    for partition, directory_id in sorted(logs.items()):
        fields.setdefault(directory_id, []).append(partition)
    return {encode_topic_id(key): partitions for key, partitions in fields.items()}


def logs_of_topic(row: Mapping[str, Any], partition_count: int) -> Mapping[int, DirectoryId]:
    """The inverse. ValueError if the line names a partition twice, or one that does not exist."""
    logs: dict[int, DirectoryId] = {}
    for text, partitions in row.get("directories", {}).items():
        directory_id = _directory_id(text)
        for partition in map(int, partitions):
            if partition in logs or not 0 <= partition < partition_count:
                raise ValueError(f"partition {partition} has no place in {text}")
            logs[partition] = directory_id
    return MappingProxyType(logs)


def _directory_id(text: str) -> DirectoryId:
    return DirectoryId(decode_topic_id(text))
