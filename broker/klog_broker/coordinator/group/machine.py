"""The classic rebalance protocol as a pure state machine; time and ids are arguments.

It follows what Kafka's GroupCoordinator of 3.9 does for dynamic members (KIP-62 rebalance timeout,
KIP-134 initial delay, KIP-394 member ids required, KIP-389 maximum size). ``join`` and ``sync``
may park a request: its waiter comes back later in an ``Answer``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from klog_broker.coordinator.group.effects import Effects
from klog_broker.coordinator.group.group import Group
from klog_broker.coordinator.group.member import Member
from klog_broker.coordinator.group.states import GroupState
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
REBALANCING = (GroupState.PREPARING_REBALANCE,)
WITH_GENERATION = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker settings group.initial.rebalance.delay.ms and group.max.size."""

    initial_rebalance_delay_ms: int
    max_size: int


@dataclass(frozen=True, slots=True)
class Joiner:
    """Who sends a JoinGroup: what the request itself does not say."""

    client_id: str
    client_host: str
    requires_member_id: bool
    """From JoinGroup 4 on a new member first gets its id (KIP-394)."""


class GroupMachine:
    """One group's transitions. Only ``apply`` of its record changes what survives a restart."""

    def __init__(
        self, group: Group, settings: GroupSettings, new_member_id: Callable[[str], str]
    ) -> None:
        self.group = group
        self._settings = settings
        self._new_member_id = new_member_id
        self._join_deadline_ms: int | None = None
        self._initial_remaining_ms: int | None = None
        self._joined_in_window = False
        self._sync_deadline_ms: int | None = None

    # Requests

    def join(
        self, request: JoinGroupRequest, joiner: Joiner, waiter: object, now_ms: int
    ) -> Effects:
        """Answer, or park ``waiter`` until the rebalance completes."""
        group, effects = self.group, Effects()
        member = group.members.get(request.member_id)
        protocols = tuple((p.name, bytes(p.metadata)) for p in request.protocols)
        is_known = member is not None or request.member_id in group.pending
        if group.state is GroupState.DEAD:
            return _refuse_join(effects, waiter, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if request.member_id and not is_known:
            return _refuse_join(effects, waiter, request, ErrorCode.UNKNOWN_MEMBER_ID)
        if self._is_full(member):
            group.pending.pop(request.member_id, None)
            return _refuse_join(effects, waiter, request, ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not group.supports(request.protocol_type, protocols, besides=request.member_id):
            return _refuse_join(effects, waiter, request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if member is not None:
            self._rejoin(member, request, protocols, waiter, effects, now_ms)
            return effects
        if not request.member_id and joiner.requires_member_id:
            member_id = self._new_member_id(joiner.client_id)
            group.pending[member_id] = now_ms + request.session_timeout_ms
            effects.answer(
                waiter,
                _join_reply(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id),
            )
            return effects
        group.pending.pop(request.member_id, None)
        newcomer = Member(
            member_id=request.member_id or self._new_member_id(joiner.client_id),
            client_id=joiner.client_id,
            client_host=joiner.client_host,
            rebalance_timeout_ms=_rebalance_timeout_ms(request),
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols,
            session_deadline_ms=now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
            is_new=True,
            join_waiter=waiter,
        )
        self._joined_in_window = True
        group.add(newcomer, request.protocol_type)
        self._prepare_rebalance(effects, now_ms)
        return effects

    def sync(self, request: SyncGroupRequest, waiter: object, now_ms: int) -> Effects:
        """Answer, or park ``waiter`` until the leader's assignment is in the log."""
        group, effects = self.group, Effects()
        member = group.members.get(request.member_id)
        error = self._check_member(member, request.generation_id)
        if error is ErrorCode.NONE and group.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if member is None or error is not ErrorCode.NONE:
            effects.answer(waiter, SyncGroupResponse(error_code=error))
            return effects
        member.has_synced = True
        if group.state is GroupState.STABLE:
            self._alive(member, now_ms)
            effects.answer(waiter, SyncGroupResponse(assignment=member.assignment))
            return effects
        _replace_sync_waiter(member, waiter, effects)
        if group.is_leader(member.member_id):
            given = {a.member_id: bytes(a.assignment) for a in request.assignments}
            effects.assignments = {id_: given.get(id_, b"") for id_ in group.members}
        return effects

    def heartbeat(self, member_id: str, generation_id: int, now_ms: int) -> ErrorCode:
        member = self.group.members.get(member_id)
        error = self._check_member(member, generation_id)
        if member is None or error is not ErrorCode.NONE:
            return error
        self._alive(member, now_ms)
        if self.group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, member_id: str, now_ms: int) -> tuple[ErrorCode, Effects]:
        effects = Effects()
        if self.group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, effects
        if self.group.pending.pop(member_id, None) is not None:
            self._complete_join_if_ready(effects, now_ms)
            return ErrorCode.NONE, effects
        if member_id not in self.group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID, effects
        self._remove(member_id, effects, now_ms)
        return ErrorCode.NONE, effects

    def check_commit(self, member_id: str, generation_id: int, now_ms: int) -> ErrorCode:
        """Whether a member of this generation may commit offsets now (a sign of life, too)."""
        group = self.group
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and group.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation_id >= 0 and group.state is GroupState.EMPTY and not member_id:
            return ErrorCode.ILLEGAL_GENERATION
        member = group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._alive(member, now_ms)
        return ErrorCode.NONE

    # The log

    def appended(self, now_ms: int) -> Effects:
        """The record that ``assignments`` asked for is in the log and was applied."""
        effects = Effects()
        for member in self.group.members.values():
            if member.sync_waiter is not None:
                self._alive(member, now_ms)
                reply = SyncGroupResponse(assignment=member.assignment)
                effects.answer(member.sync_waiter, reply)
                member.sync_waiter = None
        return effects

    def append_failed(self, error: ErrorCode, now_ms: int) -> Effects:
        """The record could not be appended: members try again in a new generation."""
        effects = Effects()
        if self.group.state is GroupState.COMPLETING_REBALANCE:
            self._drop_syncs(error, effects, now_ms)
            self._prepare_rebalance(effects, now_ms)
        return effects

    # Time

    def next_deadline_ms(self) -> int | None:
        """When ``on_deadline`` has something to do; None if only a request can change anything."""
        deadlines = [self._join_deadline_ms, self._sync_deadline_ms, *self.group.pending.values()]
        deadlines += (member.deadline_ms() for member in self.group.members.values())
        return min((d for d in deadlines if d is not None), default=None)

    def on_deadline(self, now_ms: int) -> Effects:
        effects = Effects()
        group = self.group
        if group.state is GroupState.DEAD:
            return effects
        for member_id in [m for m, deadline in group.pending.items() if deadline <= now_ms]:
            del group.pending[member_id]
        for member in [m for m in group.members.values() if _expired(m.deadline_ms(), now_ms)]:
            if member.member_id in group.members:
                self._remove(member.member_id, effects, now_ms)
        if _expired(self._sync_deadline_ms, now_ms):
            self._give_up_on_sync(effects, now_ms)
        if _expired(self._join_deadline_ms, now_ms):
            self._on_join_deadline(effects, now_ms)
        else:
            self._complete_join_if_ready(effects, now_ms)
        return effects

    def reloaded(self, now_ms: int) -> None:
        """After the log was replayed: members get one session to show themselves."""
        for member in self.group.members.values():
            member.session_deadline_ms = now_ms + member.session_timeout_ms

    def unload(self) -> Effects:
        """The shard goes: whatever waits is told to look for the coordinator again."""
        effects = Effects()
        for member in self.group.members.values():
            _drop_waiters(member, ErrorCode.NOT_COORDINATOR, effects)
        if self.group.state is not GroupState.DEAD:
            self.group.move_to(GroupState.DEAD)
        return effects

    # Steps

    def _is_full(self, member: Member | None) -> bool:
        group, limit = self.group, self._settings.max_size
        if group.state is GroupState.EMPTY:
            return False
        if group.state is GroupState.PREPARING_REBALANCE:
            already_in = member is not None and member.join_waiter is not None
            return not already_in and group.joining_count() >= limit
        return member is None and len(group.members) >= limit

    def _check_member(self, member: Member | None, generation_id: int) -> ErrorCode:
        if self.group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation_id != self.group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def _rejoin(
        self,
        member: Member,
        request: JoinGroupRequest,
        protocols: tuple[tuple[str, bytes], ...],
        waiter: object,
        effects: Effects,
        now_ms: int,
    ) -> None:
        group = self.group
        is_unchanged = protocols == member.protocols
        is_retry = group.state is GroupState.COMPLETING_REBALANCE and is_unchanged
        is_idle_follower = group.state is GroupState.STABLE and not group.is_leader(
            member.member_id
        )
        if is_retry or (is_idle_follower and is_unchanged):
            # Its reply was lost: it gets the generation that it already belongs to.
            self._alive(member, now_ms)
            effects.answer(waiter, self._generation_reply(member))
            return
        member.protocols = protocols
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
        member.session_timeout_ms = request.session_timeout_ms
        if member.join_waiter is not None:
            stale = _join_reply(
                error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id
            )
            effects.answer(member.join_waiter, stale)
        member.join_waiter = waiter
        self._prepare_rebalance(effects, now_ms)

    def _prepare_rebalance(self, effects: Effects, now_ms: int) -> None:
        group = self.group
        if group.state is GroupState.EMPTY:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._join_deadline_ms = now_ms + delay_ms
            self._initial_remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
            self._joined_in_window = False
            group.move_to(GroupState.PREPARING_REBALANCE)
        elif group.state is not GroupState.PREPARING_REBALANCE:
            self._drop_syncs(ErrorCode.REBALANCE_IN_PROGRESS, effects, now_ms)
            self._sync_deadline_ms = None
            self._join_deadline_ms = now_ms + group.rebalance_timeout_ms()
            self._initial_remaining_ms = None
            group.move_to(GroupState.PREPARING_REBALANCE)
        if _expired(self._join_deadline_ms, now_ms):
            self._on_join_deadline(effects, now_ms)
        else:
            self._complete_join_if_ready(effects, now_ms)

    def _complete_join_if_ready(self, effects: Effects, now_ms: int) -> None:
        group = self.group
        waits_for_first = self._initial_remaining_ms is not None and bool(group.members)
        if group.state in REBALANCING and not waits_for_first and group.everyone_joined():
            self._complete_join(effects, now_ms)

    def _on_join_deadline(self, effects: Effects, now_ms: int) -> None:
        remaining_ms = self._initial_remaining_ms
        if remaining_ms and self._joined_in_window:
            delay_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            self._initial_remaining_ms = remaining_ms - delay_ms
            self._join_deadline_ms = now_ms + delay_ms
            self._joined_in_window = False
            if delay_ms > 0:
                return
        self._complete_join(effects, now_ms)

    def _complete_join(self, effects: Effects, now_ms: int) -> None:
        group = self.group
        self._join_deadline_ms = self._initial_remaining_ms = None
        for absent in [m for m in group.members.values() if m.join_waiter is None]:
            group.remove(absent.member_id)
        group.generation_id += 1
        if not group.members:
            group.protocol_name = None
            group.move_to(GroupState.EMPTY)
            effects.assignments = {}
            return
        group.protocol_name = group.choose_protocol()
        group.move_to(GroupState.COMPLETING_REBALANCE)
        self._sync_deadline_ms = now_ms + group.rebalance_timeout_ms()
        for member in group.members.values():
            effects.answer(member.join_waiter, self._generation_reply(member))
            member.join_waiter = None
            member.is_new = member.has_synced = False
            member.assignment = b""
            self._alive(member, now_ms)

    def _give_up_on_sync(self, effects: Effects, now_ms: int) -> None:
        self._sync_deadline_ms = None
        group = self.group
        silent = [m for m in group.members.values() if not m.has_synced]
        if group.state in WITH_GENERATION and silent:
            for member in silent:
                group.remove(member.member_id)
            self._prepare_rebalance(effects, now_ms)

    def _remove(self, member_id: str, effects: Effects, now_ms: int) -> None:
        member = self.group.remove(member_id)
        _drop_waiters(member, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        if self.group.state in WITH_GENERATION:
            self._prepare_rebalance(effects, now_ms)
        else:
            self._complete_join_if_ready(effects, now_ms)

    def _drop_syncs(self, error: ErrorCode, effects: Effects, now_ms: int) -> None:
        for member in self.group.members.values():
            if member.sync_waiter is not None:
                effects.answer(member.sync_waiter, SyncGroupResponse(error_code=error))
                member.sync_waiter = None
                self._alive(member, now_ms)

    def _alive(self, member: Member, now_ms: int) -> None:
        member.session_deadline_ms = now_ms + member.session_timeout_ms

    def _generation_reply(self, member: Member) -> JoinGroupResponse:
        group = self.group
        leads = group.is_leader(member.member_id)
        listed = group.members.values() if leads else ()
        return _join_reply(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name or "",
            leader=group.leader_id or "",
            member_id=member.member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    metadata=each.metadata_for(group.protocol_name),
                )
                for each in listed
            ],
        )


def _expired(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """JoinGroup 0 has none (-1): its session timeout counts for both."""
    if request.rebalance_timeout_ms < 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def _refuse_join(
    effects: Effects, waiter: object, request: JoinGroupRequest, error: ErrorCode
) -> Effects:
    effects.answer(waiter, _join_reply(error_code=error, member_id=request.member_id))
    return effects


def _join_reply(
    *,
    error_code: ErrorCode = ErrorCode.NONE,
    member_id: str,
    generation_id: int = -1,
    protocol_type: str | None = None,
    protocol_name: str = "",
    leader: str = "",
    members: list[JoinGroupResponseMember] | None = None,
) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error_code,
        generation_id=generation_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        leader=leader,
        member_id=member_id,
        members=members or [],
    )


def _replace_sync_waiter(member: Member, waiter: object, effects: Effects) -> None:
    stale = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    effects.answer(member.sync_waiter, stale)
    member.sync_waiter = waiter


def _drop_waiters(member: Member, error: ErrorCode, effects: Effects) -> None:
    effects.answer(member.join_waiter, _join_reply(error_code=error, member_id=""))
    effects.answer(member.sync_waiter, SyncGroupResponse(error_code=error))
    member.join_waiter = member.sync_waiter = None
