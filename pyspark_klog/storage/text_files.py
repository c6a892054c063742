"""The small text files of a data directory and its partitions: checkpoints, partition.metadata,
meta.properties.

Each file states its format version: 0, or 1 in a meta.properties that KRaft wrote. A broker
replaces such a file as a whole and never changes it in place.
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from pyspark_klog.ids import UUID, DirectoryId, LeaderEpoch, Offset, TopicId, TopicPartition
from pyspark_klog.storage.errors import StorageFormatError

VERSION = 0
NODE_ID_NAMES = {0: "broker.id", 1: "node.id"}
"""The property of meta.properties that holds the broker id, by the version of the file."""
FIRST_UNRESERVED_DIRECTORY_ID = 100
_ID = re.compile("[A-Za-z0-9_-]{22}", re.ASCII)
T = TypeVar("T")


class EpochStart(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: LeaderEpoch
    start_offset: Offset


class MetaProperties(NamedTuple):
    """The contents of meta.properties: the cluster and broker that own a data directory.

    ``directory_id`` is None in files that Kafka before 3.7 or an earlier klog wrote. KRaft writes
    version 1.
    """

    cluster_id: str
    broker_id: int
    directory_id: DirectoryId | None = None
    version: int = VERSION


# --- checkpoint files: lines with the version, the number of rows, and each row ------------------
def _encode_rows(rows: Iterable[str]) -> bytes:
    lines = list(rows)
    return "".join(f"{line}\n" for line in [str(VERSION), str(len(lines)), *lines]).encode()


def _decode_rows(data: bytes, kind: str, parse: Callable[[list[str]], T]) -> list[T]:
    try:
        lines = data.decode().split("\n")
        version, count = int(lines[0]), int(lines[1])
    except (ValueError, IndexError):
        raise StorageFormatError(
            f"{kind}: expected a version and a number of rows, found {data[:40]!r}"
        ) from None
    if version != VERSION:
        raise StorageFormatError(f"{kind}: version {version}, expected {VERSION}")
    rows = [line for line in lines[2:] if line]
    if len(rows) != count:
        raise StorageFormatError(f"{kind}: {len(rows)} rows, but its second line counts {count}")
    result = []
    for row in rows:
        try:
            result.append(parse(row.split()))
        except (ValueError, IndexError):
            raise StorageFormatError(f"{kind}: cannot read the row {row!r}") from None
    return result


def encode_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the bytes of an offset checkpoint, with a row `topic partition offset` for each
    partition.

    recovery-point-offset-checkpoint, log-start-offset-checkpoint, replication-offset-checkpoint and
    cleaner-offset-checkpoint have this format.
    """
    return _encode_rows(
        f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())
    )


def decode_offset_checkpoint(data: bytes) -> dict[TopicPartition, Offset]:
    """Return the offsets in an offset checkpoint.

    Kafka first creates each checkpoint as an empty file, so an empty file gives no offsets.

    :raises StorageFormatError: if the data is not an offset checkpoint
    """

    def parse(words: list[str]) -> tuple[TopicPartition, Offset]:
        topic, partition, offset = words
        return TopicPartition(topic, int(partition)), Offset(int(offset))

    return dict(_decode_rows(data, "offset checkpoint", parse)) if data else {}


def encode_leader_epochs(epochs: Iterable[EpochStart]) -> bytes:
    """Return the bytes of a leader-epoch-checkpoint, with a row `epoch offset` for each epoch.

    Both the epochs and their start offsets must rise from row to row.
    """
    return _encode_rows(f"{epoch} {start}" for epoch, start in epochs)


def decode_leader_epochs(data: bytes) -> list[EpochStart]:
    """Return the epochs in a leader-epoch-checkpoint, lowest first.

    :raises StorageFormatError: if the data is not a leader-epoch-checkpoint
    """

    def parse(words: list[str]) -> EpochStart:
        epoch, start = words
        return EpochStart(LeaderEpoch(int(epoch)), Offset(int(start)))

    return sorted(_decode_rows(data, "leader-epoch-checkpoint", parse))


# --- partition.metadata --------------------------------------------------------------------------
def encode_topic_id(topic_id: UUID) -> str:
    """Return the id as 22 characters of URL-safe base64, the form in which Kafka prints ids."""
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def decode_topic_id(text: str) -> TopicId:
    """Return the id that ``text`` stands for, the inverse of `encode_topic_id`.

    :raises StorageFormatError: if the text is not such an id
    """
    if not _ID.fullmatch(text):
        raise StorageFormatError(f"{text!r} is no id: expected 22 characters of URL-safe base64")
    return TopicId(UUID(bytes=urlsafe_b64decode(f"{text}==")))


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """Return the bytes of partition.metadata, which holds the id of the directory's topic."""
    return f"version: {VERSION}\ntopic_id: {encode_topic_id(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> TopicId:
    """Return the topic id in partition.metadata.

    :raises StorageFormatError: if the data is not partition.metadata of version 0
    """
    kind = "partition.metadata"
    fields = _fields(data, ":", kind)
    _check_version(fields, kind)
    if "topic_id" not in fields:
        raise StorageFormatError(f"{kind}: expected a line `topic_id: ...`, found {data[:80]!r}")
    return decode_topic_id(fields["topic_id"])


# --- meta.properties -----------------------------------------------------------------------------
def encode_meta_properties(meta: MetaProperties) -> bytes:
    """Return the bytes of meta.properties in the version `meta.version`."""
    lines = [
        "#",
        f"cluster.id={meta.cluster_id}",
        f"version={meta.version}",
        f"{NODE_ID_NAMES[meta.version]}={meta.broker_id}",
    ]
    if meta.directory_id is not None:
        lines.append(f"directory.id={encode_topic_id(meta.directory_id)}")
    return "".join(f"{line}\n" for line in lines).encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Return the contents of meta.properties, of version 0 or 1.

    :raises StorageFormatError: if the version is another one, or a property is missing or invalid
    """
    kind = "meta.properties"
    fields = _fields(data, "=", kind)
    version = next((each for each in NODE_ID_NAMES if fields.get("version") == str(each)), None)
    if version is None:
        raise StorageFormatError(f"{kind}: version {fields.get('version')}, expected 0 or 1")
    name = NODE_ID_NAMES[version]
    try:
        cluster_id, broker_id = fields["cluster.id"], int(fields[name])
    except (KeyError, ValueError):
        raise StorageFormatError(
            f"{kind}: expected cluster.id, and a whole number as {name}; found the properties "
            f"{sorted(fields)}"
        ) from None
    text = fields.get("directory.id")
    directory_id = None if text is None else _decode_directory_id(text, kind)
    return MetaProperties(cluster_id, broker_id, directory_id, version)


def _decode_directory_id(text: str, kind: str) -> DirectoryId:
    try:
        directory_id = DirectoryId(decode_topic_id(text))
    except StorageFormatError as error:
        raise StorageFormatError(f"{kind}: directory.id: {error}") from None
    if is_reserved_directory_id(directory_id):
        raise StorageFormatError(f"{kind}: directory.id={text} is one that Kafka reserves")
    return directory_id


def is_reserved_directory_id(directory_id: UUID) -> bool:
    """Return whether no data directory may have this id.

    Kafka uses three of these ids with the meanings "unassigned", "lost" and "migrating", and
    reserves the rest. The test is that of Kafka's class DirectoryId, which compares both halves of
    an id as signed numbers.
    """
    high, low = directory_id.int >> 64, directory_id.int & (1 << 64) - 1
    is_negative = bool(low >> 63)
    return high == 0 and (is_negative or low < FIRST_UNRESERVED_DIRECTORY_ID)


# --- the marker of a clean shutdown --------------------------------------------------------------
def encode_clean_shutdown_marker() -> bytes:
    """Return the bytes of .kafka_cleanshutdown, with the broker epoch -1 (none)."""
    return json.dumps({"version": VERSION, "brokerEpoch": -1}, separators=(",", ":")).encode()


def _fields(data: bytes, separator: str, kind: str) -> dict[str, str]:
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise StorageFormatError(f"{kind}: expected text, found {data[:40]!r}") from None
    fields = {}
    for line in lines:
        if line.strip() and not line.startswith(("#", "!")):
            name, found, value = line.partition(separator)
            if not found:
                raise StorageFormatError(f"{kind}: cannot read the line {line!r}")
            fields[name.strip()] = value.strip()
    return fields


def _check_version(fields: Mapping[str, str], kind: str) -> None:
    version = fields.get("version")
    if version != str(VERSION):
        raise StorageFormatError(f"{kind}: version {version}, expected {VERSION}")
