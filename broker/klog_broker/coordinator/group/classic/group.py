"""A classic group's data: members, generation, state, and queries about them."""

from collections import Counter
from collections.abc import Iterable

from klog_broker.coordinator.effects import Waiter
from klog_broker.coordinator.group.classic.member import ClassicGroupMember, Protocol
from klog_broker.coordinator.group.classic.states import GroupState, check_transition
from pyspark_klog.errors import ErrorCode

NEVER_MS = 1 << 62
"""A time in ms that is later than the deadline of any member."""


class ClassicGroup:
    """The durable part (generation, protocol, leader, members) and the volatile part of a group.

    Members keep the order in which they joined; if the leader leaves, the first member becomes
    leader. A group can have thousands of members, so each change updates the values that every
    request needs (``joining_count``, ``supporters``, ``earliest_deadline_ms``).
    """

    __slots__ = (
        "earliest_deadline_ms",
        "generation_id",
        "group_id",
        "joining_count",
        "leader_id",
        "members",
        "pending",
        "protocol_name",
        "protocol_type",
        "state",
        "state_changed_ms",
        "static_ids",
        "supporters",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_changed_ms = -1
        """Wall clock time in ms of the newest record of the group's members in __consumer_offsets;
        -1 before the first. When the last member leaves, the time is set even if the record cannot
        be written: in an empty group, the retention time of the offsets starts at this time."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_ids: dict[str, str] = {}
        """The member id of each static member, by its group.instance.id (KIP-345)."""
        self.pending: dict[str, int] = {}
        """The pending member ids: assigned, but not used to join yet (KIP-394).

        Oldest first, each with the time in ms at which it expires.
        """
        self.joining_count = 0
        """The number of members with a parked JoinGroup, which waits for the next generation."""
        self.supporters: Counter[str] = Counter()
        """The number of members that offer each protocol."""
        self.earliest_deadline_ms = NEVER_MS
        """Lower bound of the times at which members are removed if they send no more requests;
        ``find_earliest_deadline`` makes it exact."""

    def move_to(self, state: GroupState) -> None:
        check_transition(self.state, state)
        self.state = state

    def add(self, member: ClassicGroupMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self.supporters.update(set(member.protocol_names()))
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> ClassicGroupMember:
        member = self.members.pop(member_id)
        self._count_out(member.protocol_names())
        self.joining_count -= member.join_waiter is not None
        if member.group_instance_id is not None:
            del self.static_ids[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def set_members(self, members: Iterable[ClassicGroupMember]) -> None:
        """Replace the group's members with ``members``, in this order."""
        before, self.members = self.members, {member.member_id: member for member in members}
        if len(before) == len(self.members) and all(
            before.get(member_id) is member for member_id, member in self.members.items()
        ):
            return
        self.static_ids = {
            member.group_instance_id: member.member_id
            for member in self.members.values()
            if member.group_instance_id is not None
        }
        self.joining_count = sum(member.join_waiter is not None for member in self.members.values())
        self.supporters = Counter(
            name for member in self.members.values() for name in set(member.protocol_names())
        )

    def set_protocols(self, member: ClassicGroupMember, protocols: tuple[Protocol, ...]) -> None:
        """Replace the protocols that the member offers."""
        if protocols == member.protocols:
            return
        self._count_out(member.protocol_names())
        member.protocols = protocols
        self.supporters.update(set(member.protocol_names()))

    def _count_out(self, names: Iterable[str]) -> None:
        for name in set(names):
            self.supporters[name] -= 1
            if not self.supporters[name]:
                del self.supporters[name]

    def replace(self, old_member_id: str, new: ClassicGroupMember) -> None:
        """Replace the old member by ``new``, at the same place in the members' order.

        If the old member was the group's leader, ``new`` becomes the leader.
        """
        if self.leader_id == old_member_id:
            self.leader_id = new.member_id
        self.set_members(
            new if member.member_id == old_member_id else member for member in self.members.values()
        )

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE if a request with these ids comes from a member of the group.

        FENCED_INSTANCE_ID: another member id now holds the static member's place.
        """
        if instance_id is not None:
            current_id = self.static_ids.get(instance_id)
            if current_id is not None and current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def await_join(self, member: ClassicGroupMember, waiter: Waiter) -> None:
        """Let the member's JoinGroup wait for the next generation; ``waiter`` sends its response.
        The member must not have another JoinGroup that waits."""
        member.join_waiter = waiter
        self.joining_count += 1
        self.update_earliest_deadline(member)

    def end_join(self, member: ClassicGroupMember) -> Waiter | None:
        """End the wait of the member's JoinGroup for the next generation; returns the callback that
        sends its response, or None if no JoinGroup of the member waits."""
        waiter, member.join_waiter = member.join_waiter, None
        self.joining_count -= waiter is not None
        self.update_earliest_deadline(member)
        return waiter

    def end_sync(self, member: ClassicGroupMember) -> Waiter | None:
        """End the wait of the member's SyncGroup for the assignment; returns the callback that
        sends its response, or None if no SyncGroup of the member waits."""
        waiter, member.sync_waiter = member.sync_waiter, None
        self.update_earliest_deadline(member)
        return waiter

    def renew_session(self, member: ClassicGroupMember, now_ms: int) -> None:
        """Start a new session of the member: it ends after the member's session timeout, unless it
        is renewed before."""
        deadline_ms = member.session_deadline_ms = now_ms + member.session_timeout_ms
        if deadline_ms < self.earliest_deadline_ms:
            self.earliest_deadline_ms = deadline_ms

    def update_earliest_deadline(self, member: ClassicGroupMember) -> None:
        """Update ``earliest_deadline_ms``, because the time at which the member is removed if it
        sends no request may have become earlier."""
        if member.session_deadline_ms < self.earliest_deadline_ms:
            self.earliest_deadline_ms = member.session_deadline_ms

    def find_earliest_deadline(self) -> None:
        """Set ``earliest_deadline_ms`` by a search through all members.

        A member is removed at its deadline, if it sends no request until then. Renewing a session
        needs no search: ``renew_session`` lowers the bound if the new deadline is earlier, and a
        later deadline keeps the lower bound true.
        """
        deadlines = (member.deadline_ms() for member in self.members.values())
        self.earliest_deadline_ms = min((d for d in deadlines if d is not None), default=NEVER_MS)

    def everyone_joined(self) -> bool:
        return not self.pending and self.joining_count == len(self.members)

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member: how long a rebalance waits for members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(
        self, protocol_type: str, protocols: Iterable[Protocol], *, besides: str | None = None
    ) -> bool:
        """Whether a member with these protocols fits all members of the group but ``besides``.

        The protocol type must be the group's, if the group has members, and all members but
        ``besides`` must offer one of the protocols.
        """
        names = {name for name, _ in protocols}
        if not protocol_type or not names:
            return False
        if self.members and protocol_type != self.protocol_type:
            return False
        beside = self.members.get(besides or "")
        theirs = set() if beside is None else set(beside.protocol_names())
        others = len(self.members) - (beside is not None)
        return not others or any(
            self.supporters[name] - (name in theirs) == others for name in names
        )

    def matches_protocol(self, protocol_type: str | None, protocol_name: str | None) -> bool:
        """Whether the protocol type and name in a member's request are the group's.

        A None on either side counts as equal: the request does not name the protocol, or the group
        has none yet.
        """
        return all(
            None in pair or pair[0] == pair[1]
            for pair in (
                (protocol_type, self.protocol_type),
                (protocol_name, self.protocol_name),
            )
        )

    def choose_protocol(self) -> str:
        """Return the protocol with the most votes among the protocols that all members support.
        Each member votes for the first of these protocols in its own order of preference."""
        everyone = len(self.members)
        candidates = {name for name, count in self.supporters.items() if count == everyone}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]
