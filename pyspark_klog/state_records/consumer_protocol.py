"""Subscriptions and assignments, the bytes that consumers store in a group's members.

A klog broker does not interpret these bytes; members of groups of protocol type "consumer" use
this format. Like state records, the bytes start with a version. Like in Kafka, a newer version is
read as the newest known version, because later versions only add fields at the end.
"""

from typing import TypeVar

from pyspark_klog.protocol.codec import decode_message
from pyspark_klog.protocol.fields import array, binary, int32, string
from pyspark_klog.protocol.message import Message, Struct
from pyspark_klog.state_records.versions import UnknownStateRecord, version_of

PROTOCOL_TYPE = "consumer"
M = TypeVar("M", bound=Message)


class TopicPartitions(Struct):
    """A topic's name and the numbers of some of its partitions."""

    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    """The topics that a member subscribes to, and the partitions it owns when it rejoins."""

    topics: list[str] = array(string)
    user_data: bytes | None = binary(nullable_since=0, default=None)
    owned_partitions: list[TopicPartitions] = array(TopicPartitions, since=1, ignorable=True)
    generation_id: int = int32(since=2, default=-1, ignorable=True)
    rack_id: str | None = string(since=3, nullable_since=3, default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    """The partitions that the group's leader assigned to a member."""

    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    user_data: bytes | None = binary(nullable_since=0, default=None)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode a member's subscription; raises KlogError if ``data`` is not a subscription."""
    return _decode(ConsumerProtocolSubscription, data)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode a member's assignment; raises KlogError if ``data`` is not an assignment.

    A member without an assignment has empty bytes, which raise KlogError, too.
    """
    return _decode(ConsumerProtocolAssignment, data)


def _decode(cls: type[M], data: bytes) -> M:
    version = version_of(data)
    if version < 0:
        raise UnknownStateRecord(f"a {cls.__name__} of version {version}, expected 0 or more")
    message, _ = decode_message(cls, min(version, cls.max_version), data, 2)
    return message
