"""/consumers/G: the groups of Kafka's first consumer, which kept everything in ZooKeeper.

Brokers serve OffsetCommit 0 and OffsetFetch 0 from ``offsets``. ``ids`` and ``owners`` were
written by consumers of releases before 2.0, and no code of Kafka 3.9.1 knows them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.znodes.data import ZnodeError, read_number, read_object, shown, write_json
from pyspark_klog.znodes.paths import CONSUMERS

# What ZooKeeper takes in a path, except for the slash.
_NAME = re.compile("[ -.0-~\xa0-\ud7ff\uf900-\uffef]+")
_MAX_OWNER_BYTES = 1000


@dataclass(frozen=True, slots=True)
class ConsumerRegistration:
    """/consumers/G/ids/C, ephemeral: the streams that a consumer has for each topic, or for what
    matches a pattern. ``pattern`` is "static", "white_list" or "black_list"."""

    subscription: Mapping[str, int]
    pattern: str
    timestamp_ms: int


def consumer_id_path(group: str, consumer: str) -> str:
    """Where a consumer registers; ephemeral."""
    return f"{_group_path(group)}/ids/{_name(consumer)}"


def owner_path(group: str, partition: TopicPartition) -> str:
    """Which thread of which consumer reads a partition; ephemeral."""
    return f"{_group_path(group)}/owners/{_name(partition.topic)}/{partition.partition}"


def offset_path(group: str, partition: TopicPartition) -> str:
    """A group's position; persistent.

    :raises ZnodeError: for a group whose id cannot be one name in a path
    """
    return f"{_group_path(group)}/offsets/{_name(partition.topic)}/{partition.partition}"


def encode_consumer(registration: ConsumerRegistration) -> bytes:
    """Version 1."""
    return write_json(
        {
            "version": 1,
            "subscription": dict(registration.subscription),
            "pattern": registration.pattern,
            "timestamp": str(registration.timestamp_ms),
        }
    )


def decode_consumer(path: str, data: bytes | None) -> ConsumerRegistration:
    """:raises ZnodeError: if it is none"""
    fields = read_object(path, data)
    subscription = fields.inner("subscription")
    return ConsumerRegistration(
        subscription={name: subscription.int32(name, minimum=0) for name in subscription.values},
        pattern=fields.text("pattern") if "pattern" in fields else "static",
        timestamp_ms=fields.int64_text("timestamp") if "timestamp" in fields else -1,
    )


def encode_owner(consumer_thread: str) -> bytes:
    """The thread's name as text."""
    return consumer_thread.encode()


def decode_owner(path: str, data: bytes | None) -> str:
    """:raises ZnodeError: if it is no text of UTF-8"""
    try:
        if not data or len(data) > _MAX_OWNER_BYTES:
            raise ValueError
        return data.decode()
    except ValueError:
        expected = f"the name of a consumer's thread, 1 to {_MAX_OWNER_BYTES} bytes of UTF-8"
        raise ZnodeError(path, expected, shown((data or b"")[:100])) from None


def encode_offset(offset: Offset) -> bytes:
    """The number as text."""
    return str(offset).encode()


def decode_offset(path: str, data: bytes | None) -> Offset:
    """:raises ZnodeError: if it is no number"""
    return Offset(read_number(path, data, minimum=-(1 << 63), bits=64))


def _group_path(group: str) -> str:
    return f"{CONSUMERS}/{_name(group)}"


def _name(text: str) -> str:
    if not _NAME.fullmatch(text) or text in (".", ".."):
        raise ZnodeError(CONSUMERS, "a name that ZooKeeper takes in a path", shown(text))
    return text
