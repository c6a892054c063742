"""The responses to members' JoinGroup and SyncGroup requests."""

from klog_broker.coordinator.group.classic.group import ClassicGroup
from klog_broker.coordinator.group.classic.member import ClassicGroupMember
from klog_broker.coordinator.group.classic.records import GroupEffects
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from pyspark_klog.protocol.apis.sync_group import SyncGroupResponse


def join_refused(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name="")


def generation_response(group: ClassicGroup, member: ClassicGroupMember) -> JoinGroupResponse:
    """The JoinGroup response for ``member``; the leader's response also lists all members."""
    listed = group.members.values() if group.is_leader(member.member_id) else ()
    return _generation(group, member, group.leader_id, [_listed(group, each) for each in listed])


def replacement_response(
    group: ClassicGroup, member: ClassicGroupMember, response_leader_id: str | None
) -> JoinGroupResponse:
    """The JoinGroup response for a process that has replaced a static member.

    The group stays stable, so it would ignore an assignment in the new process's SyncGroup. From
    JoinGroup 9 on (``response_leader_id`` is None) the response makes a leader skip the assignment
    (KIP-814). In older versions the response names ``response_leader_id``, the leader's id before
    the replacement. A replaced leader does not recognize this id as its own, so it acts as a
    follower. Kafka does the same.
    """
    if response_leader_id is not None:
        return _generation(group, member, response_leader_id, [])
    response = generation_response(group, member)
    response.skip_assignment = group.is_leader(member.member_id)
    return response


def sync_response(group: ClassicGroup, member: ClassicGroupMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def drop_join(
    group: ClassicGroup,
    member: ClassicGroupMember,
    error: ErrorCode,
    member_id: str,
    effects: GroupEffects,
) -> None:
    """Answer the member's JoinGroup, if one waits for the next generation, with ``error``."""
    effects.add_response(group.end_join(member), join_refused(error, member_id))


def drop_sync(
    group: ClassicGroup, member: ClassicGroupMember, error: ErrorCode, effects: GroupEffects
) -> None:
    """Answer the member's SyncGroup, if one waits for the leader's assignment, with ``error``."""
    effects.add_response(group.end_sync(member), SyncGroupResponse(error_code=error))


def _generation(
    group: ClassicGroup,
    member: ClassicGroupMember,
    leader_id: str | None,
    members: list[JoinGroupResponseMember],
) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name or "",
        leader=leader_id or "",
        member_id=member.member_id,
        members=members,
    )


def _listed(group: ClassicGroup, member: ClassicGroupMember) -> JoinGroupResponseMember:
    return JoinGroupResponseMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        metadata=member.metadata_for(group.protocol_name),
    )
