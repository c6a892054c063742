"""A committed offset as a record of __consumer_offsets, packed but for what changes."""

import struct

from pyspark_klog.records.record_section import append_plain_record
from pyspark_klog.records.varint import varint
from pyspark_klog.state_records.consumer_offsets import (
    VALUE_VERSION,
    encode_offset_key,
    encode_value,
)
from pyspark_klog.state_records.offset_commit import OffsetCommitValue

_VERSION = struct.Struct(">h")
_LENGTH = struct.Struct(">h")
# Of a value without its metadata: version, offset, leader epoch, length of the metadata, time.
_VALUE_BYTES = struct.calcsize(">hqihq")
# A delta below takes one byte: it is a varint, of twice the number.
_ONE_BYTE_DELTAS = 64

assert VALUE_VERSION == 3  # whose fields are packed here


class OffsetRecord:
    """The record of an offset that a group commits again and again for one partition, with the same
    metadata each time. Only its offset, leader epoch and time are packed when it is appended."""

    __slots__ = ("_head", "_key", "_metadata", "_middle", "_pack", "_text")

    def __init__(self, group: str, topic: str, partition: int, metadata: str) -> None:
        self._metadata = metadata
        self._key = encode_offset_key(group, topic, partition)
        text = metadata.encode()
        value_bytes = _VALUE_BYTES + len(text)
        before_value = varint(len(self._key)) + self._key + varint(value_bytes)
        # Four bytes more: attributes, timestamp delta, offset delta, number of headers.
        size = 4 + len(before_value) + value_bytes
        self._head = varint(size) + b"\0\0"
        self._middle = before_value + _VERSION.pack(VALUE_VERSION)
        self._text = _LENGTH.pack(len(text)) + text
        form = f">{len(self._head)}sB{len(self._middle)}sqi{len(self._text)}sqx"
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
            )
            return
        value = OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=self._metadata,
            commit_timestamp=commit_ms,
        )
        append_plain_record(batch, offset_delta, self._key, encode_value(value))
