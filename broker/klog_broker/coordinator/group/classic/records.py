"""A group's record in __consumer_offsets: built from the group, and applied to the group."""

from collections.abc import Mapping

from klog_broker.coordinator.effects import Effects
from klog_broker.coordinator.group.classic.group import ClassicGroup
from klog_broker.coordinator.group.classic.member import ClassicGroupMember
from klog_broker.coordinator.group.classic.states import GroupState
from pyspark_klog.state_records.consumer_offsets import Key, Value
from pyspark_klog.state_records.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)

GroupEffects = Effects[Key, Value]


def append_group_record(
    group: ClassicGroup, assignments: Mapping[str, bytes], effects: GroupEffects
) -> None:
    """Make ``effects`` append the group's record, with these assignments (by member id), to
    ``__consumer_offsets``."""

    def records(wall_clock_ms: int) -> list[tuple[Key, Value | None]]:
        if group.state is GroupState.EMPTY:
            # The last member has left: the retention time of the group's offsets starts now, even
            # if the append of this record fails.
            group.state_changed_ms = wall_clock_ms
        key = GroupMetadataKey(group=group.group_id)
        return [(key, snapshot(group, assignments, wall_clock_ms))]

    effects.records = records


def snapshot(
    group: ClassicGroup, assignments: Mapping[str, bytes], wall_clock_ms: int
) -> GroupMetadataValue:
    """The group's record for ``__consumer_offsets``, with ``assignments`` (by member id). Does not
    change the group."""
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=wall_clock_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_for(group.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )


def apply_metadata(group: ClassicGroup, value: GroupMetadataValue) -> None:
    """Set the group's durable part (generation, protocol, leader, members) to the record's
    contents, in a replay of the group's partition of ``__consumer_offsets`` and after an append to
    it.

    A member that equals its entry in the record is kept with its parked requests; after an append,
    all members equal their entries. Others are created from the record, and offer only the protocol
    that the record names.
    """
    group.protocol_type = value.protocol_type or None
    group.generation_id = value.generation
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    group.state_changed_ms = value.current_state_timestamp
    members = []
    for recorded in value.members:
        member = group.members.get(recorded.member_id)
        if member is None or not _is_as_recorded(member, recorded, value.protocol):
            member = _member(recorded, value.protocol)
        member.assignment = bytes(recorded.assignment)
        members.append(member)
    group.set_members(members)
    group.move_to(GroupState.STABLE if members else GroupState.EMPTY)


def _is_as_recorded(
    member: ClassicGroupMember, recorded: MemberMetadata, protocol: str | None
) -> bool:
    """Whether the member equals its entry in the record.

    The two differ if the member has rejoined with other protocols, time-outs or client data since.
    """
    return (
        (protocol or "", bytes(recorded.subscription)) in member.protocols
        and member.session_timeout_ms == recorded.session_timeout
        and member.rebalance_timeout_ms == _rebalance_timeout_ms(recorded)
        and member.client_id == recorded.client_id
        and member.client_host == recorded.client_host
        and member.group_instance_id == recorded.group_instance_id
    )


def _rebalance_timeout_ms(recorded: MemberMetadata) -> int:
    given_ms = recorded.rebalance_timeout
    return recorded.session_timeout if given_ms < 0 else given_ms


def _member(recorded: MemberMetadata, protocol: str | None) -> ClassicGroupMember:
    return ClassicGroupMember(
        member_id=recorded.member_id,
        client_id=recorded.client_id,
        client_host=recorded.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(recorded),
        session_timeout_ms=recorded.session_timeout,
        protocols=((protocol or "", bytes(recorded.subscription)),),
        group_instance_id=recorded.group_instance_id,
        has_synced=True,
    )
