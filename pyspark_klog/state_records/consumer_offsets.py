"""The records of __consumer_offsets as bytes: two bytes of version, then the message."""

import struct

from pyspark_klog.state_records.group_metadata import GroupMetadataKey, GroupMetadataValue
from pyspark_klog.state_records.offset_commit import OffsetCommitKey, OffsetCommitValue
from pyspark_klog.state_records.versions import (
    UnknownStateRecord,
    decode_versioned,
    encode_versioned,
    version_of,
)

Key = OffsetCommitKey | GroupMetadataKey
Value = OffsetCommitValue | GroupMetadataValue

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
VALUE_VERSION = 3
VALUE_VERSION_WITH_EXPIRY = 1

_KEY_HEAD = struct.Struct(">hh")  # version, length of the group
_STRING = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_VALUE_HEAD = struct.Struct(">hqih")  # version, offset, leader epoch, length of the metadata
_TIMESTAMP = struct.Struct(">q")


def encode_key(key: Key) -> bytes:
    if type(key) is OffsetCommitKey:
        return encode_offset_key(key.group, key.topic, key.partition)
    version = OFFSET_KEY_VERSION if isinstance(key, OffsetCommitKey) else GROUP_KEY_VERSION
    return encode_versioned(key, version)


def encode_offset_key(group: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset. Packed by hand, as are the values below: there is one for each
    commit."""
    group_bytes, topic_bytes = group.encode(), topic.encode()
    try:
        return b"".join(
            (
                _KEY_HEAD.pack(OFFSET_KEY_VERSION, len(group_bytes)),
                group_bytes,
                _STRING.pack(len(topic_bytes)),
                topic_bytes,
                _PARTITION.pack(partition),
            )
        )
    except struct.error:
        # Raises with a text that names the field.
        key = OffsetCommitKey(group=group, topic=topic, partition=partition)
        return encode_versioned(key, OFFSET_KEY_VERSION)


def encode_value(value: Value) -> bytes:
    """Version 3, as Kafka before 4.0 and klog's readers know; 1 where an expiry was asked for."""
    if not isinstance(value, OffsetCommitValue):
        return encode_versioned(value, VALUE_VERSION)
    if value.expire_timestamp >= 0:
        return encode_versioned(value, VALUE_VERSION_WITH_EXPIRY)
    metadata = value.metadata.encode()
    try:
        head = _VALUE_HEAD.pack(VALUE_VERSION, value.offset, value.leader_epoch, len(metadata))
        return head + metadata + _TIMESTAMP.pack(value.commit_timestamp)
    except struct.error:
        return encode_versioned(value, VALUE_VERSION)


def decode_key(data: bytes) -> Key:
    """Raises UnknownStateRecord for kinds that came later (consumer and share groups)."""
    version = version_of(data)
    if version <= OFFSET_KEY_VERSION:
        return decode_versioned(OffsetCommitKey, data)
    if version == GROUP_KEY_VERSION:
        return decode_versioned(GroupMetadataKey, data)
    raise UnknownStateRecord(f"a key of kind {version} in __consumer_offsets; known are 0 to 2")


def decode_value(key: Key, data: bytes) -> Value:
    """The value that belongs to ``key``. Raises UnknownStateRecord for a newer version."""
    if isinstance(key, OffsetCommitKey):
        return decode_versioned(OffsetCommitValue, data)
    return decode_versioned(GroupMetadataValue, data)
