"""What consumers put into a group's members: their subscriptions and assignments.

To a broker these are bytes; only the groups of protocol type "consumer" agree on them. They start
with a version, as state records do; as in Kafka a newer one is read like the newest known, because
later versions only add fields at the end.
"""

from typing import TypeVar

from pyspark_klog.protocol.codec import decode_message
from pyspark_klog.protocol.fields import array, binary, int32, string
from pyspark_klog.protocol.message import Message, Struct
from pyspark_klog.state_records.versions import UnknownStateRecord, version_of

PROTOCOL_TYPE = "consumer"
M = TypeVar("M", bound=Message)


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    """What a member wants to read, and what it holds while it joins again."""

    topics: list[str] = array(string)
    user_data: bytes | None = binary(nullable_since=0, default=None)
    owned_partitions: list[TopicPartitions] = array(TopicPartitions, since=1, ignorable=True)
    generation_id: int = int32(since=2, default=-1, ignorable=True)
    rack_id: str | None = string(since=3, nullable_since=3, default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    """What a member got of its group's leader."""

    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    user_data: bytes | None = binary(nullable_since=0, default=None)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Raises KlogError for bytes that are none."""
    return _decode(ConsumerProtocolSubscription, data)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Raises KlogError for bytes that are none; a member without an assignment has no bytes."""
    return _decode(ConsumerProtocolAssignment, data)


def _decode(cls: type[M], data: bytes) -> M:
    version = version_of(data)
    if version < 0:
        raise UnknownStateRecord(f"a {cls.__name__} of version {version}, expected 0 or more")
    message, _ = decode_message(cls, min(version, cls.max_version), data, 2)
    return message
