"""A classic group as data: members, generation, state, and what can be asked of them."""

from collections import Counter
from collections.abc import Iterable

from klog_broker.coordinator.group.classic.member import Member, Protocol
from klog_broker.coordinator.group.classic.states import GroupState, check_transition
from pyspark_klog.errors import ErrorCode


class Group:
    """The durable part (generation, protocol, leader, members) and the volatile part of a group.

    Members keep the order in which they joined: the first one leads.
    """

    __slots__ = (
        "generation_id",
        "group_id",
        "leader_id",
        "members",
        "pending",
        "protocol_name",
        "protocol_type",
        "state",
        "state_changed_ms",
        "static_ids",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_changed_ms = -1
        """Wall clock of the newest metadata record: an empty group's offsets expire from then."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        """The member id of each static member, by its group.instance.id (KIP-345)."""
        self.pending: dict[str, int] = {}
        """Ids handed out that have not joined yet, and when each is forgotten (KIP-394)."""

    def move_to(self, state: GroupState) -> None:
        check_transition(self.state, state)
        self.state = state

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member:
        member = self.members.pop(member_id)
        if member.group_instance_id is not None:
            del self.static_ids[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def set_members(self, members: Iterable[Member]) -> None:
        """These, in this order, and no others."""
        self.members = {member.member_id: member for member in members}
        self.static_ids = {
            member.group_instance_id: member.member_id
            for member in self.members.values()
            if member.group_instance_id is not None
        }

    def replace(self, old_member_id: str, new: Member) -> None:
        """``new`` takes the place of a member: its rank, and the lead if that one had it."""
        if self.leader_id == old_member_id:
            self.leader_id = new.member_id
        self.set_members(
            new if member.member_id == old_member_id else member for member in self.members.values()
        )

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether a request that names its member so comes from one.

        FENCED_INSTANCE_ID: another member has taken that static member's place.
        """
        if instance_id is not None:
            current_id = self.static_ids.get(instance_id)
            if current_id is not None and current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def joining_count(self) -> int:
        return sum(member.join_waiter is not None for member in self.members.values())

    def everyone_joined(self) -> bool:
        return not self.pending and self.joining_count() == len(self.members)

    def rebalance_timeout_ms(self) -> int:
        """The longest that a member asks for: all of them get that long to come back."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(
        self, protocol_type: str, protocols: Iterable[Protocol], *, besides: str | None = None
    ) -> bool:
        """Whether a member with these protocols fits in; ``besides`` is not counted."""
        names = {name for name, _ in protocols}
        if not protocol_type or not names:
            return False
        if self.members and protocol_type != self.protocol_type:
            return False
        others = [member for member in self.members.values() if member.member_id != besides]
        return not others or bool(names & _common(others))

    def choose_protocol(self) -> str:
        """The protocol that most members prefer of those that all of them support."""
        candidates = _common(self.members.values())
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]


def _common(members: Iterable[Member]) -> set[str]:
    return set.intersection(*(set(member.protocol_names()) for member in members))
