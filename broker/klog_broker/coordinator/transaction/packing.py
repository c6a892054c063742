"""Encodes records of ``__transaction_state`` directly, without a message object.

Each change of a transaction's state writes such a record. The bytes equal those that encode_key and
encode_value return for the same metadata; tests/property/test_transaction_packing.py compares them.
"""

from functools import lru_cache
from struct import Struct

from klog_broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from pyspark_klog.ids import NO_PRODUCER_ID, TopicPartition
from pyspark_klog.protocol.wire import uvarint
from pyspark_klog.records.layout import INT16_MAX
from pyspark_klog.state_records.transaction_log import (
    FLEXIBLE_VALUE_VERSION,
    KEY_VERSION,
    TransactionState,
    encode_key,
)

_KEY_HEAD = Struct(">hh")  # version, length of the transactional id
_HEAD = Struct(">hqhib")  # version, producer id, epoch, time-out, state
_TIMES = Struct(">qqB")  # last update, start, number of tagged fields
# Tagged fields: the tag, the size, the value.
_PREVIOUS_ID = _NEXT_ID = Struct(">BBq")
_CLIENT_VERSION = Struct(">BBh")
_NULL = b"\0"
# The encoded partitions of a transaction are cached if it has at most this many partitions.
_REMEMBERED_PARTITIONS = 16


def pack_key(transactional_id: str) -> bytes:
    """Encode a record's key. Raises UnencodableMessage for an id of more than 32,767 bytes."""
    data = transactional_id.encode()
    if len(data) > INT16_MAX:
        return encode_key(transactional_id)
    return _KEY_HEAD.pack(KEY_VERSION, len(data)) + data


def pack_value(metadata: TransactionMetadata) -> bytes:
    """Encode a record's value in version 1, which has compact arrays and tagged fields."""
    partitions = metadata.partitions
    if metadata.state is TransactionState.EMPTY:
        packed = _NULL
    elif len(partitions) <= _REMEMBERED_PARTITIONS:
        packed = _remembered(partitions)
    else:
        packed = _packed(partitions)
    count, tags = 0, b""
    if metadata.previous_producer_id != NO_PRODUCER_ID:
        count, tags = 1, _PREVIOUS_ID.pack(0, 8, metadata.previous_producer_id)
    if metadata.next_producer_id != NO_PRODUCER_ID:
        count, tags = count + 1, tags + _NEXT_ID.pack(1, 8, metadata.next_producer_id)
    if metadata.client_version:
        count, tags = count + 1, tags + _CLIENT_VERSION.pack(2, 2, metadata.client_version)
    return b"".join(
        (
            _HEAD.pack(
                FLEXIBLE_VALUE_VERSION,
                metadata.producer_id,
                metadata.producer_epoch,
                metadata.timeout_ms,
                metadata.state,
            ),
            packed,
            _TIMES.pack(metadata.update_ms, metadata.start_ms, count),
            tags,
        )
    )


def _packed(partitions: tuple[TopicPartition, ...]) -> bytes:
    """Encode the partitions as an array of topics, each with its name and partition numbers."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    out = bytearray()
    out += uvarint(len(topics) + 1)
    for topic, numbers in topics.items():
        name = topic.encode()
        out += uvarint(len(name) + 1) + name + uvarint(len(numbers) + 1)
        out += Struct(f">{len(numbers)}ix").pack(*numbers)  # "x" is 0: no tagged fields
    return bytes(out)


_remembered = lru_cache(maxsize=1024)(_packed)
