"""The record of a group's generation and members, written for example when a rebalance
completes."""

from pyspark_klog.protocol.fields import array, binary, int32, int64, string
from pyspark_klog.protocol.message import Message, Struct


class GroupMetadataKey(Message, versions=(2, 2)):
    """Key of a group's metadata. Its version, 2, distinguishes it from the key of an offset."""

    group: str = string()


class MemberMetadata(Struct):
    """One member of a group, with its subscription and assignment for the protocol (assignor) that
    the group has chosen."""

    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1, default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


class GroupMetadataValue(Message, versions=(0, 4), flexible_since=4):
    """Value of a group's metadata; a group without members has an empty list and null protocol."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable_since=0, default=None)
    leader: str | None = string(nullable_since=0, default=None)
    current_state_timestamp: int = int64(since=2, default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)
