"""A committed offset as a record of __consumer_offsets, packed but for what changes."""

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
# Of a value without its metadata and the length of that: version, offset, leader epoch, time, and
# the topic's id as a tagged field.
_VALUE_BYTES = struct.calcsize(">hqiq3s16s")
# A delta below takes one byte: it is a varint, of twice the number.
_ONE_BYTE_DELTAS = 64

assert VALUE_VERSION_WITH_TOPIC_ID == 4  # whose fields are packed here


class OffsetRecord:
    """The record of an offset that a group commits again and again for one partition, with the same
    metadata each time. Only its offset, leader epoch and time are packed when it is appended.

    ``topic_id`` is not 0: every topic has an id.
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
        # Four bytes more: attributes, timestamp delta, offset delta, number of headers.
        size = 4 + len(before_value) + value_bytes
        self._head = varint(size) + b"\0\0"
        self._middle = before_value + _VERSION.pack(VALUE_VERSION_WITH_TOPIC_ID)
        self._tail = TOPIC_ID_TAG + topic_id.bytes
        form = f">{len(self._head)}sB{len(self._middle)}sqi{len(self._text)}sq{len(self._tail)}sx"
        self._pack = struct.Struct(form).pack

    def append_to(
        self, batch: bytearray, offset_delta: int, offset: int, leader_epoch: int, commit_ms: int
    ) -> None:
        """Put the record behind others that have the same time as their batch
        (:func:`append_plain_record`); ``offset_delta`` is its number among them."""
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
