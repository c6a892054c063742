"""The course of a rebalance: which members must join, until when, and the next generation.

Pure: no I/O; time is an argument, in milliseconds of a clock that never goes back. Rebalances run
as in Kafka 3.9's GroupCoordinator (KIP-62 rebalance timeout, KIP-134 initial delay, KIP-345 static
members).
"""

from dataclasses import dataclass

from klog_broker.coordinator.group.classic.group import ClassicGroup
from klog_broker.coordinator.group.classic.group_responses import (
    drop_sync,
    generation_response,
    join_refused,
)
from klog_broker.coordinator.group.classic.member import ClassicGroupMember
from klog_broker.coordinator.group.classic.records import GroupEffects, append_group_record
from klog_broker.coordinator.group.classic.states import GroupState
from pyspark_klog.errors import ErrorCode

WITH_GENERATION = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker settings group.initial.rebalance.delay.ms and group.max.size."""

    initial_rebalance_delay_ms: int
    max_size: int


class Rebalance:
    """Runs the rebalances of one group, one after the other. A rebalance has deadlines by which
    members must send JoinGroup and SyncGroup."""

    def __init__(self, group: ClassicGroup, settings: GroupSettings) -> None:
        self._group = group
        self._delay_ms = settings.initial_rebalance_delay_ms
        self._join_deadline_ms: int | None = None
        self._initial_remaining_ms: int | None = None
        self._joined_in_window = False
        self._sync_deadline_ms: int | None = None

    # Events that start, extend or complete a rebalance

    def extend_initial_delay(self) -> None:
        """Called before a member is added.

        If the group was empty and its rebalance is still in the initial delay, the delay is
        extended.
        """
        self._joined_in_window = True

    def start_rebalance(self, effects: GroupEffects, now_ms: int) -> None:
        """Start a rebalance, unless one is running. Complete it at once if its deadline has passed,
        or as ``complete_if_ready`` does."""
        group = self._group
        if group.state is GroupState.EMPTY:
            delay_ms = self._delay_ms
            self._join_deadline_ms = now_ms + delay_ms
            self._initial_remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
            self._joined_in_window = False
            group.move_to(GroupState.PREPARING_REBALANCE)
        elif group.state is not GroupState.PREPARING_REBALANCE:
            self.drop_syncs(ErrorCode.REBALANCE_IN_PROGRESS, effects, now_ms)
            self._sync_deadline_ms = None
            self._join_deadline_ms = now_ms + group.rebalance_timeout_ms()
            self._initial_remaining_ms = None
            group.move_to(GroupState.PREPARING_REBALANCE)
        if is_over(self._join_deadline_ms, now_ms):
            self._on_join_deadline(effects, now_ms)
        else:
            self.complete_if_ready(effects, now_ms)

    def complete_if_ready(self, effects: GroupEffects, now_ms: int) -> None:
        """Start the next generation if a rebalance is running, all members have joined, no member
        id is pending (assigned, but not used to join yet), and no initial delay is running. A group
        without members does not wait for the delay."""
        group = self._group
        waits_for_first = self._initial_remaining_ms is not None and bool(group.members)
        is_preparing = group.state is GroupState.PREPARING_REBALANCE
        if is_preparing and not waits_for_first and group.everyone_joined():
            self._complete(effects, now_ms)

    def remove(self, member_id: str, effects: GroupEffects, now_ms: int) -> None:
        """Remove the member; the next generation assigns its partitions to other members."""
        group = self._group
        member = group.remove(member_id)
        effects.add_response(member.join_waiter, join_refused(ErrorCode.UNKNOWN_MEMBER_ID))
        drop_sync(group, member, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        if group.state in WITH_GENERATION:
            self.start_rebalance(effects, now_ms)
        else:
            self.complete_if_ready(effects, now_ms)

    def drop_syncs(self, error: ErrorCode, effects: GroupEffects, now_ms: int) -> None:
        """Answer all SyncGroups that wait for this generation's assignment with ``error``."""
        for member in self._group.members.values():
            if member.sync_waiter is not None:
                drop_sync(self._group, member, error, effects)
                self._group.renew_session(member, now_ms)

    # Deadlines of the rebalance

    def deadlines_ms(self) -> list[int]:
        """The times in ms at which ``on_deadline`` must be called."""
        deadlines = (self._join_deadline_ms, self._sync_deadline_ms)
        return [deadline for deadline in deadlines if deadline is not None]

    def on_deadline(self, effects: GroupEffects, now_ms: int) -> None:
        if is_over(self._sync_deadline_ms, now_ms):
            self._give_up_on_syncs(effects, now_ms)
        if is_over(self._join_deadline_ms, now_ms):
            self._on_join_deadline(effects, now_ms)
        else:
            self.complete_if_ready(effects, now_ms)

    # The end of the joining phase, and missing SyncGroups

    def _on_join_deadline(self, effects: GroupEffects, now_ms: int) -> None:
        remaining_ms = self._initial_remaining_ms
        if remaining_ms and self._joined_in_window:
            delay_ms = min(self._delay_ms, remaining_ms)
            self._initial_remaining_ms = remaining_ms - delay_ms
            self._join_deadline_ms = now_ms + delay_ms
            self._joined_in_window = False
            if delay_ms > 0:
                return
        self._complete(effects, now_ms)

    def _complete(self, effects: GroupEffects, now_ms: int) -> None:
        """Start the next generation.

        Members that have not joined are removed, except static members, which stay until their
        session, or the time for SyncGroup requests, ends.
        """
        group = self._group
        self._join_deadline_ms = self._initial_remaining_ms = None
        absent = [m for m in group.members.values() if m.join_waiter is None and not m.is_static]
        for member in absent:
            group.remove(member.member_id)
        if group.members and not self._elect_leader():
            # No member has joined, and all are static: wait until one joins or the sessions end.
            self._join_deadline_ms = now_ms + max(group.rebalance_timeout_ms(), 1)
            return
        group.generation_id += 1
        if not group.members:
            group.protocol_name = None
            group.move_to(GroupState.EMPTY)
            append_group_record(group, {}, effects)
            return
        group.protocol_name = group.choose_protocol()
        group.move_to(GroupState.COMPLETING_REBALANCE)
        self._sync_deadline_ms = now_ms + group.rebalance_timeout_ms()
        for member in group.members.values():
            effects.add_response(member.join_waiter, generation_response(group, member))
            member.is_new = member.has_synced = False
            member.assignment = b""
            group.renew_session(member, now_ms)
            group.end_join(member)

    def _elect_leader(self) -> bool:
        """Keep the leader if it has joined; otherwise the first joined member becomes leader.

        Returns whether any member has joined.
        """
        group = self._group
        leader = group.members.get(group.leader_id or "")
        if leader is None or leader.join_waiter is None:
            joined = (m for m in group.members.values() if m.join_waiter is not None)
            leader = next(joined, None)
            if leader is not None:
                group.leader_id = leader.member_id
        return leader is not None

    def _give_up_on_syncs(self, effects: GroupEffects, now_ms: int) -> None:
        """Remove the members that sent no SyncGroup in time, even static members that did not join,
        and rebalance."""
        self._sync_deadline_ms = None
        group = self._group
        silent: list[ClassicGroupMember] = [m for m in group.members.values() if not m.has_synced]
        if group.state in WITH_GENERATION and silent:
            for member in silent:
                group.remove(member.member_id)
            self.start_rebalance(effects, now_ms)


def is_over(deadline_ms: int | None, now_ms: int) -> bool:
    """Whether the deadline exists and has passed."""
    return deadline_ms is not None and deadline_ms <= now_ms
