"""The classic rebalance protocol as a pure state machine; time and ids are arguments.

The machine behaves like Kafka 3.9's GroupCoordinator (KIP-345 static members, KIP-394 required
member ids, KIP-389 maximum size). ``join`` and ``sync`` may park a request: then a later call of
some method returns the response, in its Effects (records to append, responses to send).
rebalance.py has the course of a rebalance.
"""

from collections.abc import Callable
from dataclasses import dataclass

from klog_broker.coordinator.effects import Waiter
from klog_broker.coordinator.group.classic.group import NEVER_MS, ClassicGroup
from klog_broker.coordinator.group.classic.group_responses import (
    drop_join,
    drop_sync,
    generation_response,
    join_refused,
    replacement_response,
    sync_response,
)
from klog_broker.coordinator.group.classic.member import (
    ClassicGroupMember,
    Joiner,
    Protocol,
    rebalance_timeout_ms,
)
from klog_broker.coordinator.group.classic.rebalance import GroupSettings, Rebalance, is_over
from klog_broker.coordinator.group.classic.records import GroupEffects, append_group_record
from klog_broker.coordinator.group.classic.states import REQUEST_ERRORS, GroupRequest, GroupState
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
MAX_PENDING_IDS = 10_000
"""Largest number of pending member ids of a group: assigned, but not used to join yet. Beyond the
limit the oldest ids are dropped: a client that joins with a dropped id gets UNKNOWN_MEMBER_ID and
asks for a new one. Kafka has no limit and keeps each id for one session timeout."""

# Looking up an enum's member takes ten times as long as looking up a name of this module.
_NONE = ErrorCode.NONE
_EMPTY, _DEAD = GroupState.EMPTY, GroupState.DEAD
_SYNC, _HEARTBEAT = REQUEST_ERRORS[GroupRequest.SYNC], REQUEST_ERRORS[GroupRequest.HEARTBEAT]
_COMMIT, _COMMIT_FROM_OUTSIDE = (
    REQUEST_ERRORS[GroupRequest.COMMIT],
    REQUEST_ERRORS[GroupRequest.COMMIT_FROM_OUTSIDE],
)
_PENDING_PAUSE_MS = 100  # minimum time between two searches for expired pending member ids

__all__ = ["NEW_MEMBER_JOIN_TIMEOUT_MS", "GroupMachine", "GroupSettings"]


@dataclass(frozen=True, slots=True)
class _Replacement:
    """The replacement of a static member in a stable group, while the record with the group's new
    members is being appended to ``__consumer_offsets``."""

    old: ClassicGroupMember
    new: ClassicGroupMember
    response_leader_id: str | None
    waiter: Waiter


class GroupMachine:
    """The state transitions of one group.

    The machine changes members and generation in memory at once. After a restart, the group is as
    its last record in ``__consumer_offsets`` describes it (``apply_metadata``).
    """

    def __init__(
        self, group: ClassicGroup, settings: GroupSettings, new_member_id: Callable[[str], str]
    ) -> None:
        self.group = group
        self._max_size = settings.max_size
        self._new_member_id = new_member_id
        self._rebalance = Rebalance(group, settings)
        self._replacement: _Replacement | None = None
        self._pending_deadline_ms = 0
        """The time in ms of the next search for expired pending member ids (assigned, not joined
        yet): at most _PENDING_PAUSE_MS after the first of them expires.

        The time avoids a search through all ids, which may be many, on each request.
        """

    # Requests of members

    def join(
        self, request: JoinGroupRequest, joiner: Joiner, waiter: Waiter, now_ms: int
    ) -> GroupEffects:
        """Answer a JoinGroup: now, when the rebalance completes, or when the record of a replaced
        static member is in the log. ``waiter`` is the callback that sends the response."""
        group, effects = self.group, GroupEffects()
        member_id = request.member_id
        protocols = tuple((p.name, bytes(p.metadata)) for p in request.protocols)
        error = self._check_join(request, protocols)
        if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            effects.add_response(waiter, join_refused(error))
            group.pending.pop(member_id, None)
            if member_id in group.members:
                # As many members as group.max.size permits have joined the running rebalance: no
                # place is left for this member.
                self._rebalance.remove(member_id, effects, now_ms)
        elif error is ErrorCode.UNKNOWN_SERVER_ERROR:
            effects.add_response(waiter, join_refused(error))
        elif error is not ErrorCode.NONE:
            effects.add_response(waiter, join_refused(error, member_id))
        elif member_id in group.members:
            self._rejoin(group.members[member_id], request, protocols, waiter, effects, now_ms)
        elif request.group_instance_id in group.static_ids:
            old = group.members[group.static_ids[request.group_instance_id]]
            self._take_place(old, request, joiner, protocols, waiter, effects, now_ms)
        elif not member_id and joiner.requires_member_id and request.group_instance_id is None:
            member_id = self._new_member_id(joiner.client_id)
            deadline_ms = now_ms + request.session_timeout_ms
            earliest_ms = self._pending_deadline_ms if group.pending else deadline_ms
            self._pending_deadline_ms = min(deadline_ms, earliest_ms)
            group.pending[member_id] = deadline_ms
            if len(group.pending) > MAX_PENDING_IDS:
                del group.pending[next(iter(group.pending))]
            effects.add_response(waiter, join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(request, joiner, protocols, waiter, effects, now_ms)
        return effects

    def sync(self, request: SyncGroupRequest, waiter: Waiter, now_ms: int) -> GroupEffects:
        """Answer a SyncGroup, now or when the leader's assignment is in the log. ``waiter`` is the
        callback that sends the response."""
        group, effects = self.group, GroupEffects()
        error = self._check_member(
            request.member_id, request.generation_id, request.group_instance_id
        )
        if error is ErrorCode.NONE and not group.matches_protocol(
            request.protocol_type, request.protocol_name
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error is ErrorCode.NONE:
            error = _SYNC[group.state]
        if error is not ErrorCode.NONE:
            effects.add_response(waiter, SyncGroupResponse(error_code=error))
            return effects
        member = group.members[request.member_id]
        member.has_synced = True
        if group.state is GroupState.STABLE:
            group.renew_session(member, now_ms)
            effects.add_response(waiter, sync_response(group, member))
            return effects
        drop_sync(group, member, ErrorCode.REBALANCE_IN_PROGRESS, effects)
        member.sync_waiter = waiter
        if group.is_leader(member.member_id):
            given = {a.member_id: bytes(a.assignment) for a in request.assignments}
            append_group_record(group, {id_: given.get(id_, b"") for id_ in group.members}, effects)
        return effects

    def heartbeat(
        self, member_id: str, generation_id: int, now_ms: int, instance_id: str | None = None
    ) -> ErrorCode:
        error = self._check_member(member_id, generation_id, instance_id)
        if error is not _NONE:
            return error
        group = self.group
        group.renew_session(group.members[member_id], now_ms)
        return _HEARTBEAT[group.state]

    def leave(
        self, member_id: str, now_ms: int, instance_id: str | None = None
    ) -> tuple[ErrorCode, GroupEffects]:
        """Remove a member. A static member may be named by its instance id alone."""
        group, effects = self.group, GroupEffects()
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, effects
        if not member_id and instance_id is not None:
            member_id = group.static_ids.get(instance_id, "")
        elif group.pending.pop(member_id, None) is not None:
            self._rebalance.complete_if_ready(effects, now_ms)
            return ErrorCode.NONE, effects
        error = group.check_member(member_id, instance_id)
        if error is ErrorCode.NONE:
            self._rebalance.remove(member_id, effects, now_ms)
        return error, effects

    def rebalance(self, now_ms: int) -> GroupEffects:
        """Start a rebalance of a group with members, unless one is running."""
        effects = GroupEffects()
        self._rebalance.start_rebalance(effects, now_ms)
        return effects

    def check_commit(
        self, member_id: str, generation_id: int, now_ms: int, instance_id: str | None = None
    ) -> ErrorCode:
        """Return NONE if a client with these ids may commit offsets, else the error.

        If the client is a member that may commit, its session is renewed.
        """
        group = self.group
        is_empty = group.state is _EMPTY
        if generation_id < 0 and (is_empty or (not member_id and instance_id is None)):
            # The client is not a member: it uses the group only to store offsets.
            return _COMMIT_FROM_OUTSIDE[group.state]
        error = self._check_member(member_id, generation_id, instance_id)
        if error is _NONE:
            error = _COMMIT[group.state]
        if error is _NONE:
            group.renew_session(group.members[member_id], now_ms)
        return error

    # Results of appending the group's record to __consumer_offsets

    def appended(self, now_ms: int) -> GroupEffects:
        """Answer the requests that waited for the append of the group's record to
        ``__consumer_offsets``. The record is now applied to the group."""
        group, effects = self.group, GroupEffects()
        replacement, self._replacement = self._replacement, None
        if replacement is not None:
            response = replacement_response(group, replacement.new, replacement.response_leader_id)
            effects.add_response(replacement.waiter, response)
        for member in group.members.values():
            if member.sync_waiter is not None:
                group.renew_session(member, now_ms)
                effects.add_response(group.end_sync(member), sync_response(group, member))
        return effects

    def append_failed(self, error: ErrorCode, now_ms: int) -> GroupEffects:
        """Undo the replacement of a static member, or the assignment of a generation, because the
        group's record could not be appended to ``__consumer_offsets``; answer the requests that
        waited for the append with ``error``."""
        effects = GroupEffects()
        replacement, self._replacement = self._replacement, None
        if replacement is not None:
            self.group.replace(replacement.new.member_id, replacement.old)
            self.group.renew_session(replacement.old, now_ms)
            effects.add_response(replacement.waiter, join_refused(error))
        elif self.group.state is GroupState.COMPLETING_REBALANCE:
            self._rebalance.drop_syncs(error, effects, now_ms)
            self._rebalance.start_rebalance(effects, now_ms)
        return effects

    # Deadlines of the group; loading and unloading of its partition of __consumer_offsets

    def next_deadline_ms(self) -> int | None:
        """When to call ``on_deadline``; None if only a request can change the group."""
        deadlines = self._rebalance.deadlines_ms()
        if self.group.pending:
            deadlines.append(self._pending_deadline_ms)
        if self.group.earliest_deadline_ms < NEVER_MS:
            deadlines.append(self.group.earliest_deadline_ms)
        return min(deadlines, default=None)

    def on_deadline(self, now_ms: int) -> GroupEffects:
        group, effects = self.group, GroupEffects()
        if group.state is GroupState.DEAD:
            return effects
        if group.pending and self._pending_deadline_ms <= now_ms:
            for member_id in [m for m, deadline in group.pending.items() if deadline <= now_ms]:
                del group.pending[member_id]
            earliest_ms = min(group.pending.values(), default=now_ms)
            self._pending_deadline_ms = max(earliest_ms, now_ms + _PENDING_PAUSE_MS)
        for member in [m for m in group.members.values() if is_over(m.deadline_ms(), now_ms)]:
            # Removing an earlier member may have completed the rebalance, which removes this member
            # or renews its session: check again.
            if member.member_id in group.members and is_over(member.deadline_ms(), now_ms):
                self._rebalance.remove(member.member_id, effects, now_ms)
        self._rebalance.on_deadline(effects, now_ms)
        group.find_earliest_deadline()
        return effects

    def reloaded(self, now_ms: int) -> None:
        """Start a session for each member, after the group's partition of ``__consumer_offsets``
        was replayed."""
        group = self.group
        for member in group.members.values():
            group.renew_session(member, now_ms)

    def unload(self) -> GroupEffects:
        """Answer all parked JoinGroup and SyncGroup requests (those that wait for other members)
        with NOT_COORDINATOR, because this broker stops being the group's coordinator."""
        group, effects = self.group, GroupEffects()
        for member in group.members.values():
            drop_join(group, member, ErrorCode.NOT_COORDINATOR, "", effects)
            drop_sync(group, member, ErrorCode.NOT_COORDINATOR, effects)
        if group.state is not GroupState.DEAD:
            group.move_to(GroupState.DEAD)
        return effects

    # Checks of JoinGroup requests, and of the member id and generation in other requests

    def _check_join(self, request: JoinGroupRequest, protocols: tuple[Protocol, ...]) -> ErrorCode:
        group, member_id = self.group, request.member_id
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._is_full(group.members.get(member_id)):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if member_id and member_id not in group.pending:
            error = group.check_member(member_id, request.group_instance_id)
            if error is not ErrorCode.NONE:
                return error
        if not group.supports(request.protocol_type, protocols, besides=member_id):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if member_id in group.pending and request.group_instance_id is not None:
            # The request has a pending member id and an instance id, but only dynamic members get
            # pending ids. Kafka's coordinator throws an exception in this case.
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    def _is_full(self, member: ClassicGroupMember | None) -> bool:
        group, limit = self.group, self._max_size
        if group.state is GroupState.EMPTY:
            return False
        if group.state is GroupState.PREPARING_REBALANCE:
            already_in = member is not None and member.join_waiter is not None
            return not already_in and group.joining_count >= limit
        return member is None and len(group.members) >= limit

    def _check_member(
        self, member_id: str, generation_id: int, instance_id: str | None
    ) -> ErrorCode:
        group = self.group
        if group.state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None or member_id not in group.members:
            error = group.check_member(member_id, instance_id)
            if error is not _NONE:
                return error
        return _NONE if generation_id == group.generation_id else ErrorCode.ILLEGAL_GENERATION

    # Ways to join the group

    def _add(
        self,
        request: JoinGroupRequest,
        joiner: Joiner,
        protocols: tuple[Protocol, ...],
        waiter: Waiter,
        effects: GroupEffects,
        now_ms: int,
    ) -> None:
        """Add a new member and start a rebalance."""
        self.group.pending.pop(request.member_id, None)
        newcomer = self._member(request, joiner, protocols, request.member_id)
        newcomer.session_deadline_ms = now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        newcomer.is_new = True
        self._rebalance.extend_initial_delay()
        self.group.add(newcomer, request.protocol_type)
        self.group.await_join(newcomer, waiter)
        self._rebalance.start_rebalance(effects, now_ms)

    def _rejoin(
        self,
        member: ClassicGroupMember,
        request: JoinGroupRequest,
        protocols: tuple[Protocol, ...],
        waiter: Waiter,
        effects: GroupEffects,
        now_ms: int,
    ) -> None:
        """Handle the JoinGroup of a member of the group.

        The member may repeat a JoinGroup whose response was lost. So in COMPLETING_REBALANCE and
        STABLE, a JoinGroup with unchanged protocols is answered with the current generation. Any
        other JoinGroup, and any of a stable group's leader, is parked: it joins the current
        rebalance, or starts one.
        """
        group = self.group
        is_unchanged = protocols == member.protocols
        is_retry = group.state is GroupState.COMPLETING_REBALANCE and is_unchanged
        is_idle_follower = group.state is GroupState.STABLE and not group.is_leader(
            member.member_id
        )
        if is_retry or (is_idle_follower and is_unchanged):
            # The member has joined already and offers the same protocols (perhaps it did not get
            # the response): answer with the current generation.
            group.renew_session(member, now_ms)
            effects.add_response(waiter, generation_response(group, member))
            return
        group.set_protocols(member, protocols)
        member.rebalance_timeout_ms = rebalance_timeout_ms(request)
        member.session_timeout_ms = request.session_timeout_ms
        drop_join(group, member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, effects)
        group.await_join(member, waiter)
        self._rebalance.start_rebalance(effects, now_ms)

    def _take_place(
        self,
        old: ClassicGroupMember,
        request: JoinGroupRequest,
        joiner: Joiner,
        protocols: tuple[Protocol, ...],
        waiter: Waiter,
        effects: GroupEffects,
        now_ms: int,
    ) -> None:
        """Replace a static member whose process restarted; the new process gets a new member id.

        A stable group does not rebalance, unless its members would choose another protocol now.
        """
        group = self.group
        response_leader_id = None if joiner.skips_assignment else group.leader_id
        drop_join(group, old, ErrorCode.FENCED_INSTANCE_ID, old.member_id, effects)
        drop_sync(group, old, ErrorCode.FENCED_INSTANCE_ID, effects)
        new = self._member(request, joiner, protocols, "")
        new.assignment = old.assignment
        new.has_synced = old.has_synced
        new.is_new = old.is_new
        new.session_deadline_ms = now_ms + (
            NEW_MEMBER_JOIN_TIMEOUT_MS if new.is_new else new.session_timeout_ms
        )
        group.replace(old.member_id, new)
        group.update_earliest_deadline(new)
        if group.state is GroupState.STABLE and group.choose_protocol() == group.protocol_name:
            self._replacement = _Replacement(old, new, response_leader_id, waiter)
            append_group_record(
                group, {m.member_id: m.assignment for m in group.members.values()}, effects
            )
            return
        group.await_join(new, waiter)
        self._rebalance.start_rebalance(effects, now_ms)

    def _member(
        self,
        request: JoinGroupRequest,
        joiner: Joiner,
        protocols: tuple[Protocol, ...],
        member_id: str,
    ) -> ClassicGroupMember:
        instance_id = request.group_instance_id
        named_after = joiner.client_id if instance_id is None else instance_id
        return ClassicGroupMember(
            member_id=member_id or self._new_member_id(named_after),
            client_id=joiner.client_id,
            client_host=joiner.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols,
            group_instance_id=instance_id,
        )
