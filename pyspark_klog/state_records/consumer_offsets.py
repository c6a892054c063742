"""Encodes and decodes keys and values of __consumer_offsets: a two-byte version and a message."""

import struct

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.wire import uvarint
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
VALUE_VERSION_WITH_TOPIC_ID = 4
NO_TOPIC_ID = UUID(int=0)

_KEY_HEAD = struct.Struct(">hh")  # key of an offset: version, length of the group's name
_STRING = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_VALUE_HEAD = struct.Struct(">hqih")  # version, offset, leader epoch, length of the metadata
_TIMESTAMP = struct.Struct(">q")
# Version 4 of an offset's value has a varint as the length of the metadata, and a tagged field at
# the end.
_FLEXIBLE_HEAD = struct.Struct(">hqi")
_FLEXIBLE_TAIL = struct.Struct(">q3s16s")
TOPIC_ID_TAG = b"\x01\x00\x10"
"""Start of the tagged section: 1 tagged field, with tag 0 and a size of 16 bytes."""


def encode_key(key: Key) -> bytes:
    if type(key) is OffsetCommitKey:
        return encode_offset_key(key.group, key.topic, key.partition)
    version = OFFSET_KEY_VERSION if isinstance(key, OffsetCommitKey) else GROUP_KEY_VERSION
    return encode_versioned(key, version)


def encode_offset_key(group: str, topic: str, partition: int) -> bytes:
    """Return the key of a committed offset.

    Keys and values of offsets are packed by hand for speed, because each commit writes one.
    """
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
        # A field's value is too long or too large: encode_versioned raises an error with the
        # field's name.
        key = OffsetCommitKey(group=group, topic=topic, partition=partition)
        return encode_versioned(key, OFFSET_KEY_VERSION)


def encode_value(value: Value) -> bytes:
    """Encode a value; group metadata has version 3.

    An offset has version 1 if the client set an expiry time (the topic id is then lost), version 4
    with a topic id, like in Kafka since 4.0, and version 3 without.
    """
    if not isinstance(value, OffsetCommitValue):
        return encode_versioned(value, VALUE_VERSION)
    if value.expire_timestamp >= 0:
        return encode_versioned(value, VALUE_VERSION_WITH_EXPIRY)
    metadata = value.metadata.encode()
    if value.topic_id != NO_TOPIC_ID:
        return _with_topic_id(value, metadata)
    try:
        head = _VALUE_HEAD.pack(VALUE_VERSION, value.offset, value.leader_epoch, len(metadata))
        return head + metadata + _TIMESTAMP.pack(value.commit_timestamp)
    except struct.error:
        return encode_versioned(value, VALUE_VERSION)


def _with_topic_id(value: OffsetCommitValue, metadata: bytes) -> bytes:
    version = VALUE_VERSION_WITH_TOPIC_ID
    try:
        return b"".join(
            (
                _FLEXIBLE_HEAD.pack(version, value.offset, value.leader_epoch),
                uvarint(len(metadata) + 1),
                metadata,
                _FLEXIBLE_TAIL.pack(value.commit_timestamp, TOPIC_ID_TAG, value.topic_id.bytes),
            )
        )
    except struct.error:
        return encode_versioned(value, version)


def decode_key(data: bytes) -> Key:
    """Decode a key of __consumer_offsets.

    Raises UnknownStateRecord for kinds of keys that later releases of Kafka write (for consumer
    groups of KIP-848 and share groups).
    """
    version = version_of(data)
    if version <= OFFSET_KEY_VERSION:
        return decode_versioned(OffsetCommitKey, data)
    if version == GROUP_KEY_VERSION:
        return decode_versioned(GroupMetadataKey, data)
    raise UnknownStateRecord(
        f"a key of __consumer_offsets has version {version}, known are versions 0 to 2"
    )


def decode_value(key: Key, data: bytes) -> Value:
    """Decode the value of a record with this ``key``; UnknownStateRecord for a newer version."""
    if isinstance(key, OffsetCommitKey):
        return decode_versioned(OffsetCommitValue, data)
    return decode_versioned(GroupMetadataValue, data)
