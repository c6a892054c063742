"""Encodes the record of a partition's committed offset quickly: bytes that are the same in each
commit of a group for the partition are encoded once."""

import struct

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.wire import uvarint
from pyspark_klog.records.record_section import append_plain_record
from pyspark_klog.records.varint import varint
from pyspark_klog.state_records.consumer_offsets import (
    TOPIC_ID_TAG,
    VALUE_VERSION_WITH_TOPIC_ID,
    encode_offset_key,
    encode_value,
)
from pyspark_klog.state_records.offset_commit import OffsetCommitValue

_VERSION = struct.Struct(">h")
# Size of the value of a committed offset's record, without the metadata string and the length
# before the string: version, offset, leader epoch, commit time, and the topic id as a tagged field.
_VALUE_BYTES = struct.calcsize(">hqiq3s16s")
# An offset delta from 0 up to this bound (exclusive) is a varint of one byte, whose value is
# 2 * delta.
_ONE_BYTE_DELTAS = 64

assert VALUE_VERSION_WITH_TOPIC_ID == 4  # OffsetRecord packs the fields of value version 4


class OffsetRecord:
    """Encodes the offsets that a group commits again and again for one partition.

    All commits have the same metadata. Appending a record packs only offset delta, offset, leader
    epoch and commit time; for an offset delta below 64 the other bytes are packed once.
    ``topic_id`` must not be 0 (unknown): then the encoding would have no field for the topic's id,
    and this class always writes the field.
    """

    __slots__ = ("_head", "_key", "_metadata", "_middle", "_pack", "_tail", "_text", "topic_id")

    def __init__(
        self, group: str, topic: str, partition: int, metadata: str, topic_id: UUID
    ) -> None:
        self.topic_id = topic_id
        self._metadata = metadata
        self._key = encode_offset_key(group, topic, partition)
        text = metadata.encode()
        self._text = uvarint(len(text) + 1) + text
        value_bytes = _VALUE_BYTES + len(self._text)
        before_value = varint(len(self._key)) + self._key + varint(value_bytes)
        # The 4 bytes are attributes, timestamp delta, offset delta and header count.
        size = 4 + len(before_value) + value_bytes
        self._head = varint(size) + b"\0\0"
        self._middle = before_value + _VERSION.pack(VALUE_VERSION_WITH_TOPIC_ID)
        self._tail = TOPIC_ID_TAG + topic_id.bytes
        form = f">{len(self._head)}sB{len(self._middle)}sqi{len(self._text)}sq{len(self._tail)}sx"
        self._pack = struct.Struct(form).pack

    def append_to(
        self, batch: bytearray, offset_delta: int, offset: int, leader_epoch: int, commit_ms: int
    ) -> None:
        """Append the record to ``batch``, with timestamp delta 0 like :func:`append_plain_record`.

        ``offset_delta`` is the number of the record in its batch; ``commit_ms`` is the commit time.
        """
        if offset_delta < _ONE_BYTE_DELTAS:
            batch += self._pack(
                self._head,
                2 * offset_delta,
                self._middle,
                offset,
                leader_epoch,
                self._text,
                commit_ms,
                self._tail,
            )
            return
        value = OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=self._metadata,
            commit_timestamp=commit_ms,
            topic_id=self.topic_id,
        )
        append_plain_record(batch, offset_delta, self._key, encode_value(value))
