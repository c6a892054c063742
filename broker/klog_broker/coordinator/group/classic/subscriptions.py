"""Which topics a group of consumers reads, by its members' metadata."""

import struct

from klog_broker.coordinator.group.classic.group import Group
from klog_broker.coordinator.group.classic.states import GroupState
from klog_broker.coordinator.group.offsets import NEVER_MS, Expiry

CONSUMER_PROTOCOL = "consumer"
_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_VERSION_BYTES = 2


def offset_expiry(group: Group) -> Expiry | None:
    """By which rule offsets of the group expire (KIP-211); None: none expires in the group's state.

    In a group that had members the retention time starts when the last one left; for offsets of a
    group that never had members it starts at the commit. A stable group of consumers loses offsets
    of that age in topics that none of its members is subscribed to. Any other group with members
    loses nothing.
    """
    if group.state is GroupState.EMPTY:
        had_members = group.protocol_type is not None and group.state_changed_ms >= 0
        return Expiry(group.state_changed_ms if had_members else NEVER_MS, frozenset)
    if group.state is GroupState.STABLE:
        return Expiry(NEVER_MS, lambda: subscribed_topics(group))
    return None


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics of all members of a consumer group that has a generation. None if the topics are
    not known: another kind of group, or metadata that is not a consumer's."""
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
    """Every version of the consumer's metadata begins as version 0 does: version, topics.

    Raises struct.error or ValueError for bytes that are not a version and topics.
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
