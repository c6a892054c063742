"""Decodes records of __consumer_offsets and __transaction_state to the JSON of Kafka's tools."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import UUID
from pyspark_klog.protocol.message import Field, Message, Struct, default_of
from pyspark_klog.records.record import Record
from pyspark_klog.state_records import consumer_offsets, transaction_log
from pyspark_klog.state_records.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
)
from pyspark_klog.state_records.group_metadata import GroupMetadataValue
from pyspark_klog.state_records.versions import version_of
from pyspark_klog.storage.text_files import encode_topic_id

DELETE = "<DELETE>"
"""The text that `klog dump-log` prints as the value of a tombstone, if it decodes the topic's
records."""

# Record types in __consumer_offsets that klog does not store: groups of KIP-848, KIP-932 (share)
# and KIP-1071 (streams).
_NEWER_KINDS = {
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}


class Decoded(NamedTuple):
    """A record's key and value for people and programs: text, or a JSON value."""

    key: object
    value: object


Decoder = Callable[[Record], Decoded]


def decode_offsets(record: Record) -> Decoded:
    """Decode a record of __consumer_offsets. KlogError if the record is invalid. A type in
    `_NEWER_KINDS` gives only its name and the value's version."""
    if record.key is None:
        raise KlogError("the record has no key")
    kind = version_of(record.key)
    if kind in _NEWER_KINDS:
        value = DELETE if record.value is None else {"version": str(version_of(record.value))}
        return Decoded({"type": str(kind), "name": _NEWER_KINDS[kind]}, value)
    key = consumer_offsets.decode_key(record.key)
    decoded_key = {"type": str(kind), "data": fields_of(key, key.min_version)}
    if record.value is None:
        return Decoded(decoded_key, DELETE)
    value_version = version_of(record.value)
    message = consumer_offsets.decode_value(key, record.value)
    fields = fields_of(message, value_version)
    if isinstance(message, GroupMetadataValue) and message.protocol_type == PROTOCOL_TYPE:
        for member, shown in zip(message.members, fields["members"], strict=True):
            _show(shown, "subscription", member.subscription, decode_subscription)
            _show(shown, "assignment", member.assignment, decode_assignment)
    return Decoded(decoded_key, {"version": str(value_version), "data": fields})


def decode_transactions(record: Record) -> Decoded:
    """Decode a record of __transaction_state. KlogError if the record is invalid."""
    if record.key is None:
        raise KlogError("the record has no key")
    key = transaction_log.decode_key(record.key)
    decoded_key = {"type": str(transaction_log.KEY_VERSION), "data": fields_of(key, 0)}
    if record.value is None:
        return Decoded(decoded_key, DELETE)
    version = version_of(record.value)
    value = transaction_log.decode_value(record.value)
    return Decoded(decoded_key, {"version": str(version), "data": fields_of(value, version)})


DECODERS: dict[str, Decoder] = {
    "__consumer_offsets": decode_offsets,
    "__transaction_state": decode_transactions,
}
"""The decoders of records, by topic."""


def _show(
    fields: dict[str, Any],
    name: str,
    data: bytes,
    decode: Callable[[bytes], ConsumerProtocolSubscription | ConsumerProtocolAssignment],
) -> None:
    """Replace the field ``name`` (base64) by the fields of the message that ``data`` encodes. If
    ``data`` is invalid, the field stays base64, as in Kafka."""
    try:
        message = decode(data)
        version = min(version_of(data), message.max_version)
    except KlogError:
        return
    fields[name] = fields_of(message, version)


def fields_of(message: Struct, version: int) -> dict[str, Any]:
    """Return the message's fields in this version by Kafka's names; tagged fields only if they
    differ from the default."""
    return {
        _kafkas_name(name): _json_of(row, getattr(message, name), version)
        for name, row in type(message).__fields__.items()
        if row.in_version(version)
        and not (row.tag is not None and getattr(message, name) == default_of(row))
    }


def _kafkas_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _json_of(row: Field, value: Any, version: int) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, UUID):
        return encode_topic_id(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    if isinstance(value, list):
        assert row.element is not None
        return [_json_of(row.element, each, version) for each in value]
    assert isinstance(value, Struct | Message)
    return fields_of(value, version)


def compact_json(value: object) -> str:
    """Return compact JSON as Kafka's tools print it; a string is returned unchanged."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
