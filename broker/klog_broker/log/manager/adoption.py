"""Finds partition folders that the metadata lacks, and plans which topics to add to the metadata.

Only `sync_folder` touches files: it makes files durable that a user has copied into a folder.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from klog_broker.log.directory.partition_folders import PartitionFolder
from klog_broker.log.errors import LogDirectoryError
from klog_broker.runtime.disk.files import Files
from pyspark_klog.ids import NO_TOPIC_ID, TopicId, TopicPartition
from pyspark_klog.storage.text_files import encode_topic_id

# How many partitions or folders an error message names; further ones are only counted.
_LISTED = 20


class KnownTopic(NamedTuple):
    """A topic's name, id and number of partitions in the broker's metadata."""

    name: str
    topic_id: TopicId
    partition_count: int


class AdoptedTopic(NamedTuple):
    """A topic, or more partitions of a known topic, to be added to the metadata, because the data
    directories have partition folders that the metadata lacks.

    A topic with NO_TOPIC_ID gets a new id.
    """

    name: str
    topic_id: TopicId
    first_new: int
    """The first partition number that the metadata does not know: the number of partitions that the
    topic has in the metadata (0 for an unknown topic)."""
    partition_count: int

    def new_partitions(self) -> list[TopicPartition]:
        """The partitions to be added to the metadata."""
        numbers = range(self.first_new, self.partition_count)
        return [TopicPartition(self.name, number) for number in numbers]


class MetadataTopics:
    """The topics that the metadata knows, including those whose deletion is not finished."""

    def __init__(self, topics: Iterable[KnownTopic], deleting: Iterable[KnownTopic]) -> None:
        self._topics = {topic.name: topic for topic in topics}
        self._deleting = tuple(deleting)
        self._by_id = {each.topic_id: each for each in (*self._topics.values(), *self._deleting)}

    def unknown(self, partitions: Iterable[PartitionFolder]) -> list[PartitionFolder]:
        """Return the folders of partitions that are not in the metadata.

        A folder without a topic id (without a file partition.metadata) counts as a folder of the
        topic with the same name.
        """
        return [found for found in partitions if not self._is_known(found)]

    def _is_known(self, found: PartitionFolder) -> bool:
        topic = self._by_id.get(found.topic_id)
        if found.topic_id == NO_TOPIC_ID:
            topic = self._topics.get(found.topic_partition.topic)
        return (
            topic is not None
            and topic.name == found.topic_partition.topic
            and found.topic_partition.partition < topic.partition_count
        )

    def check_conflicts(self, unknown: Iterable[PartitionFolder]) -> None:
        """Raise LogDirectoryError if a folder of ``unknown``, the partition folders that the
        metadata lacks, conflicts with a topic in the metadata.

        A folder conflicts if it has the name of such a topic and another id, or the id of such a
        topic and another name, or the name of a topic whose deletion is not finished.
        """
        for (name, _), topic_id, path in unknown:
            known = self._topics.get(name)
            if known is None:
                known = next((each for each in self._deleting if each.name == name), None)
            if known is not None and topic_id not in (NO_TOPIC_ID, known.topic_id):
                raise LogDirectoryError(
                    f"{path} is of another topic named {name}: its id is "
                    f"{encode_topic_id(topic_id)}, that of klog-metadata is "
                    f"{encode_topic_id(known.topic_id)}; move it out of the data directory"
                )
            owner = self._by_id.get(topic_id)
            if owner is not None and owner.name != name:
                raise _same_id(name, owner.name, topic_id)
            if known is not None and known.name not in self._topics:
                raise LogDirectoryError(
                    f"{path} is of topic {name}, whose deletion is not finished; move it out of "
                    f"the data directory"
                )

    def plan(self, unknown: Iterable[PartitionFolder]) -> list[AdoptedTopic]:
        """Return the topics and partitions to be added to the metadata for ``unknown``, the
        partition folders that the metadata lacks.

        Raises LogDirectoryError if partition numbers are missing, if the folders of one topic have
        different topic ids, or if the folders of two topics have the same topic id.
        """
        by_topic: dict[str, list[PartitionFolder]] = defaultdict(list)
        for found in unknown:
            by_topic[found.topic_partition.topic].append(found)
        owners: dict[TopicId, str] = {}
        plans = []
        for name, folders in sorted(by_topic.items()):
            known = self._topics.get(name)
            first_new = known.partition_count if known is not None else 0
            topic_id = known.topic_id if known is not None else _id_of_all(name, folders)
            numbers = {found.topic_partition.partition for found in folders}
            _check_no_gap(name, first_new, numbers)
            other = owners.setdefault(topic_id, name)
            if other != name and topic_id != NO_TOPIC_ID:
                raise _same_id(name, other, topic_id)
            plans.append(AdoptedTopic(name, topic_id, first_new, max(numbers) + 1))
        return plans


def _id_of_all(name: str, folders: Iterable[PartitionFolder]) -> TopicId:
    """Return the topic id in the files partition.metadata of a topic's partition folders;
    NO_TOPIC_ID if no folder has such a file.

    Raises LogDirectoryError if they have different ids.
    """
    paths: dict[TopicId, Path] = {}
    for found in folders:
        if found.topic_id != NO_TOPIC_ID:
            paths.setdefault(found.topic_id, found.path)
    if len(paths) > 1:
        each = ", ".join(f"{path} has {encode_topic_id(key)}" for key, path in paths.items())
        raise LogDirectoryError(
            f"the partitions of {name} are of different topics: {each}; move those of all but one "
            f"out of the data directory"
        )
    return next(iter(paths), NO_TOPIC_ID)


def _check_no_gap(name: str, first: int, numbers: set[int]) -> None:
    count = max(numbers) + 1
    missing_count = count - first - len(numbers)
    if missing_count == 0:
        return
    missing = (number for number in range(first, count) if number not in numbers)
    texts = [f"{name}-{number}" for number in islice(missing, _LISTED)]
    raise LogDirectoryError(
        f"{name}-{count - 1} is there, but not {_joined(texts, missing_count)}; copy the missing "
        f"partitions in, or make an empty folder for each that is to begin empty, or move "
        f"{name}-{count - 1} out of the data directory"
    )


def _same_id(name: str, other: str, topic_id: TopicId) -> LogDirectoryError:
    return LogDirectoryError(
        f"the topics {other} and {name} have the same id {encode_topic_id(topic_id)}: one is a "
        f"copy of the other; move one out of the data directory, or remove the file "
        f"partition.metadata from the folders of the copy, which then gets an id of its own"
    )


def sync_folder(files: Files, path: Path) -> None:
    """Sync the folder's files, which a user may just have copied. Blocks. Raises OSError."""
    for name in files.list_dir(path):
        if not files.is_dir(path / name):
            file = files.open(path / name, writable=False)
            try:
                file.sync()
            finally:
                file.close()
    files.sync_dir(path)


def listed(names: Iterable[object]) -> str:
    """Return the first _LISTED names as a text that also says how many further names there are."""
    texts = [str(name) for name in names]
    return _joined(texts[:_LISTED], len(texts))


def _joined(texts: list[str], count: int) -> str:
    rest = count - len(texts)
    return ", ".join(texts) + (f" and {rest} more" if rest else "")
