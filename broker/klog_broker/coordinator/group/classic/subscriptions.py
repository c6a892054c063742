"""Which topics a group of consumers reads: what its members' metadata says about it."""

import struct

from klog_broker.coordinator.group.classic.group import Group
from klog_broker.coordinator.group.classic.states import GroupState
from klog_broker.coordinator.group.offsets import NEVER_MS, Expiry

CONSUMER_PROTOCOL = "consumer"
_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_VERSION_BYTES = 2


def offset_expiry(group: Group) -> Expiry | None:
    """When offsets of the group have served their time (KIP-211); None: not as it is now.

    The clock of a group that had members starts when the last of them left, that of offsets
    committed without a group at their commit. Consumers in a stable group lose what they have not
    committed for that long in topics that none of them is subscribed to; any other group with
    members loses nothing.
    """
    if group.state is GroupState.EMPTY:
        had_members = group.protocol_type is not None and group.state_changed_ms >= 0
        return Expiry(group.state_changed_ms if had_members else NEVER_MS, frozenset)
    if group.state is GroupState.STABLE:
        return Expiry(NEVER_MS, lambda: subscribed_topics(group))
    return None


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics of all members of a consumer group that has a generation; None if they cannot be
    told: another kind of group, or metadata that is not a consumer's."""
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

    Raises struct.error or ValueError where that is not so.
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
