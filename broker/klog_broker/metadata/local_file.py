"""Reads and writes klog-metadata, the file of a `LocalStore`.

Each write has the whole state (temporary file, fsync, rename, fsync of the directory), so a crash
leaves the old state or the new state. The file consists of lines of JSON: a header; one line for
each topic, each broker with dynamic settings, and each entity with quotas; and a last line with the
CRC-32C of all lines before it. docs/data-directories.md has an example.
"""

import errno
import json
import operator
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from klog_broker.metadata.directory_assignments import (
    DirectoryAssignments,
    directories_of_header,
    directory_fields,
    log_fields,
    logs_of_topic,
)
from klog_broker.metadata.errors import StoreFailed, StoreRefused
from klog_broker.metadata.image import MetadataImage, PartitionRegistration, QuotaEntity, Topic
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.system.descriptors import describe_exhaustion, is_exhausted
from pyspark_klog.ids import BrokerId, DirectoryId, LeaderEpoch, ProducerId, TopicId
from pyspark_klog.records.checksums import crc32c
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.names import META_PROPERTIES
from pyspark_klog.storage.text_files import (
    MetaProperties,
    decode_meta_properties,
    decode_topic_id,
    encode_topic_id,
)

T = TypeVar("T")

FILE_NAME = "klog-metadata"
FORMAT = "klog-metadata"
VERSION = 1
VERSION_WITH_SETTINGS = 2
"""The version of a klog-metadata file with lines of brokers or quotas. Releases that cannot read
these lines refuse the file by its version."""


@dataclass(frozen=True)
class StoredState:
    """The contents of klog-metadata. The file has the cluster id, the topics, the brokers' dynamic
    settings and the quotas of `image`, but not, for example, the registered brokers."""

    image: MetadataImage
    broker_id: BrokerId
    next_producer_id: ProducerId
    assignments: DirectoryAssignments = field(default_factory=DirectoryAssignments)


class _Line(NamedTuple):
    """A line of klog-metadata and the objects that the line encodes: a topic and the directories of
    its logs, or the quotas of an entity."""

    sources: tuple[object, ...]
    data: bytes


class MetadataFile:
    """Reads and writes the klog-metadata file in `directory`. Any thread may call, but only one at
    a time."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / FILE_NAME
        self._failure: OSError | None = None
        # Cached lines of klog-metadata, so that a write need not encode the lines of unchanged
        # topics and quotas again. The key of a topic's line is its id and whether the topic is
        # being deleted; the key of a line of quotas is the entity that the quotas limit.
        self._lines: dict[Hashable, _Line] = {}

    @property
    def has_failed(self) -> bool:
        """Whether a write has failed so that all later writes fail until the broker restarts."""
        return self._failure is not None

    def read(self, broker_id: BrokerId, cluster_id: str | None) -> StoredState | None:
        """Return the state in klog-metadata, or None if there is no such file. Blocks.

        Raises StoreRefused if the file cannot be read, is damaged, or is of another version,
        broker or (if `cluster_id` is given) cluster; OSError if no file descriptor is free.
        """
        data = self._read()
        if data is None:
            return None
        state = decode_state(data, self._path)
        _check_owner(state, self._path, broker_id, cluster_id)
        return state

    def write(self, state: StoredState) -> None:
        """Replace klog-metadata durably by a file with `state`. Blocks.

        Raises StoreFailed if the write fails. If the disk was full or no file descriptor was left,
        the old file stays, and later writes may succeed. After any other error, the disk has the
        old or the new file, and all later writes fail.
        """
        if self._failure is not None:
            raise StoreFailed(
                f"{self._path} takes no changes since a write of it failed ({self._failure});"
                " look at the disk and start the broker again"
            )
        try:
            self._files.write_atomically(self._path, self._encode(state))
        except OSError as error:
            # A full disk may have free space later, and descriptors may be free again: the next
            # write may succeed, because it writes a whole new file. After any other error the
            # contents of the disk are unknown.
            if is_exhausted(error):
                raise StoreFailed(
                    f"cannot write {self._path}: {describe_exhaustion(error)}"
                ) from error
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                self._failure = error
            raise StoreFailed(f"cannot write {self._path}: {error}") from error

    def _encode(self, state: StoredState) -> bytes:
        image = state.image
        header = {
            "format": FORMAT,
            "version": VERSION,
            "cluster_id": image.cluster_id,
            "broker_id": state.broker_id,
            "next_producer_id": state.next_producer_id,
            "topics": len(image.topics) + len(image.deleting),
        }
        if image.broker_configs or image.client_quotas:
            header["version"] = VERSION_WITH_SETTINGS
            header["brokers"] = len(image.broker_configs)
            header["quotas"] = len(image.client_quotas)
        if state.assignments.directories:
            # Releases of klog that have no directory ids ignore the key "directories", in the
            # header and in the topics' lines.
            header["directories"] = directory_fields(state.assignments.directories)
        lines: dict[Hashable, _Line] = {}
        parts = [_json_line(header)]

        def add(key: Hashable, fields: Callable[..., dict[str, Any]], *sources: object) -> None:
            line = self._lines.get(key)
            if line is None or not all(map(operator.is_, line.sources, sources)):
                line = _Line(sources, _json_line(fields(*sources)))
            lines[key] = line
            parts.append(line.data)

        for topic in image.topics.values():
            logs = state.assignments.of_topic(topic.topic_id)
            add((topic.topic_id, False), _topic_fields, topic, logs)
        for topic in image.deleting.values():
            add((topic.topic_id, True), _deleted_topic_fields, topic)
        for name, configs in image.broker_configs.items():
            parts.append(_json_line({"broker": name, "configs": dict(configs)}))
        for entity, quotas in image.client_quotas.items():
            add(entity, partial(_quota_fields, entity), quotas)
        self._lines = lines
        body = b"".join(parts)
        return body + _json_line({"crc32c": f"{crc32c(body):08x}"})

    def _read(self) -> bytes | None:
        try:
            return self._files.read_bytes(self._path) if self._files.exists(self._path) else None
        except OSError as error:
            if is_exhausted(error):
                raise
            raise StoreRefused(
                f"{self._path} cannot be read: {error.strerror or error}; expected a file that this"
                " user can read"
            ) from None


def _json_line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _deleted_topic_fields(topic: Topic) -> dict[str, Any]:
    return {**_topic_fields(topic, {}), "deleting": True}


def _topic_fields(topic: Topic, logs: Mapping[int, DirectoryId]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "topic": topic.name,
        "id": encode_topic_id(topic.topic_id),
        "partitions": [
            [state.replicas, state.in_sync, state.leader, state.leader_epoch]
            for state in topic.partitions
        ],
        "configs": dict(topic.configs),
    }
    if any(state.partition_epoch for state in topic.partitions):
        # Releases of klog that have no partition epochs ignore this key.
        fields["partition_epochs"] = [state.partition_epoch for state in topic.partitions]
    if logs:
        fields["directories"] = log_fields(logs)
    return fields


def _quota_fields(entity: QuotaEntity, quotas: Mapping[str, float]) -> dict[str, Any]:
    return {"quota": entity, "values": dict(quotas)}


def decode_state(data: bytes, path: Path) -> StoredState:
    """Return the state in `data`, the bytes of klog-metadata. Raises StoreRefused if the bytes are
    damaged or have another version. `path` only names the file in the error."""
    lines = data.splitlines(keepends=True)
    version = _version_of(lines, path)
    if version not in (VERSION, VERSION_WITH_SETTINGS):
        raise StoreRefused(
            f"{path} has version {version}; this release of klog reads versions {VERSION} and"
            f" {VERSION_WITH_SETTINGS}. Start the release that wrote it"
        )
    body = b"".join(lines[:-1])
    if lines[-1] != _json_line({"crc32c": f"{crc32c(body):08x}"}):
        raise _damaged(path, "its last line is not the checksum of the lines before it")
    try:
        return _state_of([json.loads(line) for line in lines[:-1]])
    except (ValueError, KeyError, TypeError, IndexError, StorageFormatError) as error:
        raise _damaged(
            path, f"its checksum is correct, but its fields are invalid ({error!r})"
        ) from error


def _version_of(lines: list[bytes], path: Path) -> int:
    """Return the version of klog-metadata from its first line, a JSON header with `format` and
    `version` in every version."""
    try:
        header = json.loads(lines[0])
        if header["format"] == FORMAT and isinstance(header["version"], int):
            return int(header["version"])
    except (ValueError, KeyError, TypeError, IndexError):
        pass
    raise _damaged(path, "its first line is not the header of a klog-metadata file")


def _state_of(rows: list[dict[str, Any]]) -> StoredState:
    header, *others = rows
    broker_id = BrokerId(int(header["broker_id"]))
    topics: dict[TopicId, Topic] = {}
    deleting: dict[TopicId, Topic] = {}
    brokers: dict[str, Mapping[str, str]] = {}
    quotas: dict[QuotaEntity, Mapping[str, float]] = {}
    logs: dict[TopicId, Mapping[int, DirectoryId]] = {}
    for row in others:
        if "broker" in row:
            brokers[str(row["broker"])] = _configs_of(row)
        elif "quota" in row:
            values = {str(key): float(value) for key, value in row["values"].items()}
            quotas[_entity_of(row["quota"])] = MappingProxyType(values)
        else:
            topic = _topic_of(row)
            (deleting if row.get("deleting") else topics)[topic.topic_id] = topic
            assigned = logs_of_topic(row, len(topic.partitions))
            if assigned:
                logs[topic.topic_id] = assigned
    for what, found, count in (
        ("topics", len(topics) + len(deleting), header["topics"]),
        ("brokers", len(brokers), header.get("brokers", 0)),
        ("quotas", len(quotas), header.get("quotas", 0)),
    ):
        if found != count:
            raise ValueError(f"{found} {what}, but the header counts {count}")
    by_name = {topic.name: topic for topic in topics.values()}
    if len(by_name) != len(topics):
        raise ValueError("two topics have one name")
    image = MetadataImage(
        cluster_id=str(header["cluster_id"]),
        controller_id=broker_id,
        topics=MappingProxyType(by_name),
        topics_by_id=MappingProxyType(topics),
        deleting=MappingProxyType(deleting),
        broker_configs=MappingProxyType(brokers),
        client_quotas=MappingProxyType(quotas),
    )
    assignments = DirectoryAssignments(directories_of_header(header), MappingProxyType(logs))
    return StoredState(image, broker_id, ProducerId(int(header["next_producer_id"])), assignments)


def _topic_of(row: dict[str, Any]) -> Topic:
    states = row["partitions"]
    epochs = row.get("partition_epochs", [0] * len(states))
    partitions = tuple(
        PartitionRegistration(
            tuple(replicas), tuple(in_sync), BrokerId(leader), LeaderEpoch(epoch), int(own_epoch)
        )
        for (replicas, in_sync, leader, epoch), own_epoch in zip(states, epochs, strict=True)
    )
    topic_id = decode_topic_id(row["id"])
    return Topic(str(row["topic"]), topic_id, partitions, _configs_of(row))


def _configs_of(row: dict[str, Any]) -> Mapping[str, str]:
    return MappingProxyType({str(name): str(text) for name, text in row["configs"].items()})


def _entity_of(pairs: list[list[Any]]) -> QuotaEntity:
    return tuple((str(kind), None if name is None else str(name)) for kind, name in pairs)


def _check_owner(
    state: StoredState, path: Path, broker_id: BrokerId, cluster_id: str | None
) -> None:
    if state.broker_id != broker_id:
        raise StoreRefused(
            f"{path} belongs to broker {state.broker_id}, but this is broker {broker_id}:"
            f" set broker.id={state.broker_id}, or give another data directory"
        )
    if cluster_id is not None and state.image.cluster_id != cluster_id:
        raise StoreRefused(
            f"{path} belongs to cluster {state.image.cluster_id}, but its directory to cluster"
            f" {cluster_id} (meta.properties): put back the file that was exchanged"
        )


def owner_of(files: Files, directory: Path) -> MetaProperties | None:
    """Return the cluster id and broker id in a data directory's meta.properties, or None if the
    directory has no readable meta.properties."""
    path = directory / META_PROPERTIES
    try:
        if files.exists(path):
            return decode_meta_properties(files.read_bytes(path))
    except (OSError, StorageFormatError):
        pass  # the log manager refuses later to load the directory, and names the reason
    return None


def _damaged(path: Path, what: str) -> StoreRefused:
    return StoreRefused(
        f"{path} is damaged: {what}. Replace the file by a copy, or start with another data"
        " directory"
    )
