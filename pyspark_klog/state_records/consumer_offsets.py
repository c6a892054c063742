"""The records of __consumer_offsets as bytes: two bytes of version, then the message."""

from typing import TypeVar

from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.codec import decode_message, encode_message
from pyspark_klog.protocol.message import Message
from pyspark_klog.state_records.group_metadata import GroupMetadataKey, GroupMetadataValue
from pyspark_klog.state_records.offset_commit import OffsetCommitKey, OffsetCommitValue

Key = OffsetCommitKey | GroupMetadataKey
Value = OffsetCommitValue | GroupMetadataValue
M = TypeVar("M", bound=Message)

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
VALUE_VERSION = 3
VALUE_VERSION_WITH_EXPIRY = 1


class UnknownStateRecord(KlogError):
    """A record of a kind or version that this release does not know: skipped with a warning."""


def encode_key(key: Key) -> bytes:
    version = OFFSET_KEY_VERSION if isinstance(key, OffsetCommitKey) else GROUP_KEY_VERSION
    return _encode(key, version)


def encode_value(value: Value) -> bytes:
    """Version 3, as Kafka before 4.0 and klog's readers know; 1 where an expiry was asked for."""
    has_expiry = isinstance(value, OffsetCommitValue) and value.expire_timestamp >= 0
    return _encode(value, VALUE_VERSION_WITH_EXPIRY if has_expiry else VALUE_VERSION)


def decode_key(data: bytes) -> Key:
    """Raises UnknownStateRecord for kinds that came later (consumer and share groups)."""
    version = _version(data)
    if version <= OFFSET_KEY_VERSION:
        return _decode(OffsetCommitKey, version, data)
    if version == GROUP_KEY_VERSION:
        return _decode(GroupMetadataKey, version, data)
    raise UnknownStateRecord(f"a key of kind {version} in __consumer_offsets; known are 0 to 2")


def decode_value(key: Key, data: bytes) -> Value:
    """The value that belongs to ``key``. Raises UnknownStateRecord for a newer version."""
    version = _version(data)
    if isinstance(key, OffsetCommitKey):
        return _decode(OffsetCommitValue, version, data)
    return _decode(GroupMetadataValue, version, data)


def _encode(message: Message, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode_message(message, version)


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise UnknownStateRecord(f"{len(data)} bytes, expected a version of 2 bytes at least")
    return int.from_bytes(data[:2], "big", signed=True)


def _decode(cls: type[M], version: int, data: bytes) -> M:
    if not cls.min_version <= version <= cls.max_version:
        raise UnknownStateRecord(
            f"a {cls.__name__} of version {version}; known are 0 to {cls.max_version}"
        )
    message, _ = decode_message(cls, version, data, 2)
    return message
