"""The metadata of a broker that runs alone, in one file of its first data directory.

The whole state is written with every change (temporary file, fsync, rename, fsync of the
directory), so a crash leaves the old state or the new one. The file is lines of JSON: a header, one
line for each topic, and a last line with the CRC-32C of all before it. docs/operations.md has an
example.
"""

import errno
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from klog_broker.metadata.errors import (
    PartitionsChanged,
    StoreFailed,
    StoreRefused,
    TopicExists,
    UnknownTopic,
)
from klog_broker.metadata.image import (
    Broker,
    MetadataImage,
    PartitionState,
    Topic,
    check_no_collision,
    check_topic_name,
    collision,
    new_id,
    plain_name,
)
from klog_broker.metadata.interface import PRODUCER_ID_BLOCK_SIZE, NewTopic, ProducerIdBlock
from klog_broker.runtime.chance import Chance
from klog_broker.runtime.descriptors import is_exhausted, why
from klog_broker.runtime.files import Files
from klog_broker.runtime.locks import make_lock
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import BrokerId, LeaderEpoch, ProducerId, TopicId
from pyspark_klog.records.checksums import crc32c
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.names import META_PROPERTIES
from pyspark_klog.storage.text_files import (
    decode_meta_properties,
    decode_topic_id,
    encode_topic_id,
)

FILE_NAME = "klog-metadata"
FORMAT = "klog-metadata"
VERSION = 1


@dataclass(frozen=True)
class _State:
    """What one file holds."""

    image: MetadataImage
    broker_id: BrokerId
    next_producer_id: ProducerId


class _Line(NamedTuple):
    """What was written for a topic."""

    topic: Topic
    data: bytes


class LocalStore:
    """A `MetadataStore` in a file. Only one process may have it: the data directory's lock."""

    def __init__(
        self, files: Files, path: Path, state: _State, *, is_new: bool, chance: Chance
    ) -> None:
        """Use `open`."""
        self._files = files
        self._path = path
        self._state = state
        self._is_new = is_new
        self._chance = chance
        self._lock = make_lock()
        self._failure: OSError | None = None
        # Each topic's line is kept, by id and whether the topic is being deleted, so that a change
        # encodes one topic and not all of them.
        self._lines: dict[tuple[TopicId, bool], _Line] = {}

    @classmethod
    def open(
        cls,
        files: Files,
        directory: Path,
        broker_id: BrokerId,
        cluster_id: str | None = None,
        others: Sequence[Path] = (),
        chance: Chance | None = None,
    ) -> "LocalStore":
        """Read the store in `directory`. Writes nothing: `register_broker` begins a new file.

        A new store belongs to `cluster_id`, else to the cluster of the meta.properties in the
        directory or in `others` (a crash, or a new disk, may have left those alone), else to one
        that is made up. StoreRefused if the file cannot be read, is damaged, of another version,
        or of another broker or cluster. The caller holds the directory's lock before it changes
        anything.
        """
        path = directory / FILE_NAME
        chance = chance or Chance()
        data = _read(files, path)
        if data is not None:
            state = _decode(data, path)
            _check_owner(state, path, broker_id, cluster_id)
            return cls(files, path, state, is_new=False, chance=chance)
        clusters = (_cluster_of(files, each) for each in (directory, *others))
        cluster_id = cluster_id or next((each for each in clusters if each), None)
        image = MetadataImage(
            cluster_id or encode_topic_id(new_id(chance)), controller_id=broker_id
        )
        return cls(files, path, _State(image, broker_id, ProducerId(0)), is_new=True, chance=chance)

    @property
    def image(self) -> MetadataImage:
        """The newest durable state."""
        return self._state.image

    @property
    def is_new(self) -> bool:
        """Whether there is no file yet."""
        return self._is_new

    def adopt(self, topics: Sequence[Topic], after: int) -> None:
        """Add or replace the topics, all of them or none, and hand out no producer id up to
        `after`. Blocks; durable when it returns. StoreFailed."""
        with self._lock:
            image = self._state.image.with_topics(topics)
            # The rest of its block and the next one may be somebody's, too.
            first = (after // PRODUCER_ID_BLOCK_SIZE + 2) * PRODUCER_ID_BLOCK_SIZE
            producer_id = ProducerId(max(self._state.next_producer_id, first))
            self._write(replace(self._state, image=image, next_producer_id=producer_id))

    def register_broker(self, broker: Broker) -> None:
        """Make this broker's addresses known. They are not kept in the file."""
        with self._lock:
            state = replace(self._state, image=self._state.image.with_broker(broker))
            if self._is_new:
                self._write(state)
            self._state = state

    def create_topic(
        self,
        name: str,
        assignment: Sequence[Sequence[BrokerId]],
        configs: Mapping[str, str],
        topic_id: TopicId | None = None,
    ) -> Topic:
        """See MetadataStore."""
        with self._lock:
            topic = self._new_topic(name, assignment, configs, topic_id)
            self._commit(self._state.image.with_topics([topic]))
            return topic

    def create_topics(self, topics: Sequence[NewTopic]) -> list[Topic | KlogError]:
        """See MetadataStore."""
        results: list[Topic | KlogError] = []
        created: dict[str, Topic] = {}
        with self._lock:
            for new in topics:
                plain = plain_name(new.name)
                try:
                    if plain in created:
                        raise _exists_or_collides(new.name, created[plain])
                    topic = self._new_topic(new.name, new.assignment, new.configs, None)
                except KlogError as error:
                    results.append(error)
                else:
                    created[plain] = topic
                    results.append(topic)
            if created:
                try:
                    self._commit(self._state.image.with_topics(created.values()))
                except StoreFailed as error:
                    return [error if isinstance(each, Topic) else each for each in results]
        return results

    def _new_topic(
        self,
        name: str,
        assignment: Sequence[Sequence[BrokerId]],
        configs: Mapping[str, str],
        topic_id: TopicId | None,
    ) -> Topic:
        """A topic that may be added to the image."""
        check_topic_name(name)
        image = self._state.image
        if name in image.topics:
            raise TopicExists(f"topic {name} already exists")
        if any(topic.name == name for topic in image.deleting.values()):
            raise TopicExists(f"topic {name} is still being deleted")
        check_no_collision(name, image)
        return Topic(
            name,
            topic_id if topic_id is not None else TopicId(new_id(self._chance)),
            _first_states(assignment),
            MappingProxyType(dict(configs)),
        )

    def create_partitions(
        self, name: str, first_partition: int, assignment: Sequence[Sequence[BrokerId]]
    ) -> Topic:
        """See MetadataStore."""
        with self._lock:
            topic = self._find(name)
            if len(topic.partitions) != first_partition:
                raise PartitionsChanged(
                    f"topic {name} has {len(topic.partitions)} partitions by now, not"
                    f" {first_partition}"
                )
            partitions = (*topic.partitions, *_first_states(assignment))
            return self._replace_topic(replace(topic, partitions=partitions))

    def update_topic_configs(
        self, name: str, update: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> Topic:
        """See MetadataStore."""
        with self._lock:
            topic = self._find(name)
            configs = MappingProxyType(dict(update(topic.configs)))
            return self._replace_topic(replace(topic, configs=configs))

    def begin_topic_deletion(self, topic_id: TopicId) -> Topic:
        """See MetadataStore."""
        with self._lock:
            topic = self._state.image.topic_by_id(topic_id)
            if topic is None:
                raise UnknownTopic(f"there is no topic with the id {encode_topic_id(topic_id)}")
            self._commit(self._state.image.with_deletion_begun(topic))
            return topic

    def finish_topic_deletion(self, topic_id: TopicId) -> None:
        """See MetadataStore."""
        with self._lock:
            if topic_id in self._state.image.deleting:
                self._commit(self._state.image.with_deletion_finished(topic_id))

    def allocate_producer_ids(self) -> ProducerIdBlock:
        """See MetadataStore."""
        with self._lock:
            first = self._state.next_producer_id
            end = ProducerId(first + PRODUCER_ID_BLOCK_SIZE)
            self._write(replace(self._state, next_producer_id=end))
            return ProducerIdBlock(first, end)

    def close(self) -> None:
        """Nothing is open between two writes."""

    def _find(self, name: str) -> Topic:
        topic = self._state.image.topic(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name}")
        return topic

    def _replace_topic(self, topic: Topic) -> Topic:
        self._commit(self._state.image.with_topics([topic]))
        return topic

    def _commit(self, image: MetadataImage) -> None:
        self._write(replace(self._state, image=image))

    def _write(self, state: _State) -> None:
        if self._failure is not None:
            raise StoreFailed(
                f"{self._path} takes no changes since a write of it failed ({self._failure});"
                " look at the disk and start the broker again"
            )
        try:
            self._files.write_atomically(self._path, self._encode(state))
        except OSError as error:
            # A full disk may have room again later, and the next write is a whole new file. After
            # any other error nobody knows what the disk holds.
            if is_exhausted(error):
                raise StoreFailed(f"cannot write {self._path}: {why(error)}") from error
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                self._failure = error
            raise StoreFailed(f"cannot write {self._path}: {error}") from error
        self._state = state
        self._is_new = False

    def _encode(self, state: _State) -> bytes:
        header = {
            "format": FORMAT,
            "version": VERSION,
            "cluster_id": state.image.cluster_id,
            "broker_id": state.broker_id,
            "next_producer_id": state.next_producer_id,
            "topics": len(state.image.topics) + len(state.image.deleting),
        }
        lines: dict[tuple[TopicId, bool], _Line] = {}
        parts = [_json_line(header)]
        for topics, deleting in ((state.image.topics, False), (state.image.deleting, True)):
            for topic in topics.values():
                line = self._lines.get((topic.topic_id, deleting))
                if line is None or line.topic is not topic:
                    line = _Line(topic, _json_line(_topic_fields(topic, deleting)))
                lines[topic.topic_id, deleting] = line
                parts.append(line.data)
        self._lines = lines
        body = b"".join(parts)
        return body + _json_line({"crc32c": f"{crc32c(body):08x}"})


def _exists_or_collides(name: str, other: Topic) -> KlogError:
    """For a name that another topic of the same request has, or nearly has."""
    if other.name == name:
        return TopicExists(f"topic {name} already exists")
    return collision(name, other.name)


def _json_line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _topic_fields(topic: Topic, deleting: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "topic": topic.name,
        "id": encode_topic_id(topic.topic_id),
        "partitions": [
            [state.replicas, state.in_sync, state.leader, state.leader_epoch]
            for state in topic.partitions
        ],
        "configs": dict(topic.configs),
    }
    if deleting:
        fields["deleting"] = True
    return fields


def _first_states(assignment: Sequence[Sequence[BrokerId]]) -> tuple[PartitionState, ...]:
    return tuple(
        PartitionState(tuple(replicas), tuple(replicas), replicas[0]) for replicas in assignment
    )


def _decode(data: bytes, path: Path) -> _State:
    """The state in a file's bytes; StoreRefused says what is wrong with them."""
    lines = data.splitlines(keepends=True)
    version = _version_of(lines, path)
    if version != VERSION:
        raise StoreRefused(
            f"{path} has version {version}; this release of klog reads version {VERSION}."
            " Start the release that wrote it"
        )
    body = b"".join(lines[:-1])
    if lines[-1] != _json_line({"crc32c": f"{crc32c(body):08x}"}):
        raise _damaged(path, "its last line is not the checksum of the lines before it")
    try:
        return _state_of([json.loads(line) for line in lines[:-1]])
    except (ValueError, KeyError, TypeError, IndexError, StorageFormatError) as error:
        raise _damaged(path, f"its checksum fits, but its fields do not ({error!r})") from error


def _version_of(lines: list[bytes], path: Path) -> int:
    """The version in the first line, which every version keeps readable."""
    try:
        header = json.loads(lines[0])
        if header["format"] == FORMAT and isinstance(header["version"], int):
            return int(header["version"])
    except (ValueError, KeyError, TypeError, IndexError):
        pass
    raise _damaged(path, "its first line does not say that it holds klog's metadata")


def _state_of(rows: list[dict[str, Any]]) -> _State:
    header, *topic_rows = rows
    broker_id = BrokerId(int(header["broker_id"]))
    topics: dict[TopicId, Topic] = {}
    deleting: dict[TopicId, Topic] = {}
    for row in topic_rows:
        topic = _topic_of(row)
        (deleting if row.get("deleting") else topics)[topic.topic_id] = topic
    if len(topics) + len(deleting) != header["topics"]:
        raise ValueError(f"{len(topic_rows)} topics instead of {header['topics']}")
    by_name = {topic.name: topic for topic in topics.values()}
    if len(by_name) != len(topics):
        raise ValueError("two topics have one name")
    image = MetadataImage(
        cluster_id=str(header["cluster_id"]),
        controller_id=broker_id,
        topics=MappingProxyType(by_name),
        topics_by_id=MappingProxyType(topics),
        deleting=MappingProxyType(deleting),
    )
    return _State(image, broker_id, ProducerId(int(header["next_producer_id"])))


def _topic_of(row: dict[str, Any]) -> Topic:
    partitions = tuple(
        PartitionState(tuple(replicas), tuple(in_sync), BrokerId(leader), LeaderEpoch(epoch))
        for replicas, in_sync, leader, epoch in row["partitions"]
    )
    configs = {str(name): str(text) for name, text in row["configs"].items()}
    topic_id = decode_topic_id(row["id"])
    return Topic(str(row["topic"]), topic_id, partitions, MappingProxyType(configs))


def _check_owner(state: _State, path: Path, broker_id: BrokerId, cluster_id: str | None) -> None:
    if state.broker_id != broker_id:
        raise StoreRefused(
            f"{path} belongs to broker {state.broker_id}, but this is broker {broker_id}:"
            f" set broker.id={state.broker_id}, or give another data directory"
        )
    if cluster_id is not None and state.image.cluster_id != cluster_id:
        raise StoreRefused(
            f"{path} belongs to cluster {state.image.cluster_id}, but its directory to cluster"
            f" {cluster_id} (meta.properties): the two were not made together"
        )


def _read(files: Files, path: Path) -> bytes | None:
    """The file's bytes; None if there is none, or no such directory."""
    try:
        return files.read_bytes(path) if files.exists(path) else None
    except OSError as error:
        if is_exhausted(error):
            raise
        raise StoreRefused(
            f"{path} cannot be read: {error.strerror or error}; expected a file that this user can"
            " read"
        ) from None


def _cluster_of(files: Files, directory: Path) -> str | None:
    path = directory / META_PROPERTIES
    try:
        if files.exists(path):
            return decode_meta_properties(files.read_bytes(path)).cluster_id
    except (OSError, StorageFormatError):
        pass  # whoever loads the directory refuses it, and says why
    return None


def _damaged(path: Path, what: str) -> StoreRefused:
    return StoreRefused(
        f"{path} is damaged: {what}. Put a copy of it in its place, or start with another data"
        " directory"
    )
