"""Finds the topics that a group of consumers reads, in its members' metadata."""

import struct

from klog_broker.coordinator.group.classic.group import ClassicGroup
from klog_broker.coordinator.group.classic.states import GroupState
from klog_broker.coordinator.group.offsets import NEVER_MS, Expiry

CONSUMER_PROTOCOL = "consumer"
_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_VERSION_BYTES = 2


def offset_expiry(group: ClassicGroup) -> Expiry | None:
    """The rule by which the group's offsets expire now (KIP-211); None in the states in which no
    group loses offsets.

    In an empty group that had members, the retention time starts when the last member left; in a
    group that never had members, it starts at each commit. In a stable group of consumers, only
    offsets of topics that no member subscribes to expire. No other group with members loses
    offsets.
    """
    if group.state is GroupState.EMPTY:
        had_members = group.protocol_type is not None and group.state_changed_ms >= 0
        return Expiry(group.state_changed_ms if had_members else NEVER_MS, frozenset)
    if group.state is GroupState.STABLE:
        return Expiry(NEVER_MS, lambda: subscribed_topics(group))
    return None


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """The topics that the members of a consumer group with a generation subscribe to.

    Returns None if they are unknown: another kind of group, no generation yet, or metadata that is
    not a consumer's.
    """
    if group.protocol_type != CONSUMER_PROTOCOL or group.protocol_name is None:
        return None
    topics: set[str] = set()
    try:
        for member in group.members.values():
            topics.update(_topics_in(member.metadata_for(group.protocol_name)))
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


def _topics_in(metadata: bytes) -> list[str]:
    """Return the topics in a consumer's metadata; all versions start with version and topics.

    Raises struct.error or ValueError if the list of topics cannot be decoded.
    """
    (count,) = _COUNT.unpack_from(metadata, _VERSION_BYTES)
    position = _VERSION_BYTES + _COUNT.size
    topics: list[str] = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(metadata, position)
        begin, position = position + _LENGTH.size, position + _LENGTH.size + length
        if length < 0 or position > len(metadata):
            raise ValueError("a topic's name does not end within the metadata")
        topics.append(metadata[begin:position].decode())
    return topics
