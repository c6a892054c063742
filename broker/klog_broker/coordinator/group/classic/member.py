"""A member of a classic group: its settings, protocols, assignment, and requests that wait for
other members."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from klog_broker.coordinator.effects import Waiter
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest

Protocol = tuple[str, bytes]
"""An assignor's name and the member's metadata (its subscription) for the assignor."""


@dataclass(slots=True)
class ClassicGroupMember:
    """A member of a classic group. While its JoinGroup or SyncGroup is parked (answered later),
    ``join_waiter`` or ``sync_waiter`` is the callback that sends the response."""

    member_id: str
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    group_instance_id: str | None = None
    assignment: bytes = b""
    session_deadline_ms: int = 0
    is_new: bool = False
    has_synced: bool = False
    join_waiter: Waiter | None = field(default=None, compare=False)
    sync_waiter: Waiter | None = field(default=None, compare=False)

    @property
    def is_static(self) -> bool:
        """Whether the member has a group.instance.id, so that its process can restart without
        leaving the group (KIP-345)."""
        return self.group_instance_id is not None

    def protocol_names(self) -> Iterator[str]:
        """The names of the member's protocols, in its order of preference."""
        return (name for name, _ in self.protocols)

    def metadata_for(self, protocol: str | None) -> bytes:
        """The member's metadata for ``protocol``; empty if the member does not offer it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """The first of the member's protocols that is among ``candidates``."""
        return next(name for name in self.protocol_names() if name in candidates)

    def deadline_ms(self) -> int | None:
        """When the member is removed; None while a parked request shows that it is alive.

        A new member that waits for its first join has a deadline, too, because nothing else would
        reveal that its connection is closed (Kafka's new member join timeout).
        """
        if self.join_waiter is not None:
            return self.session_deadline_ms if self.is_new else None
        return None if self.sync_waiter is not None else self.session_deadline_ms


@dataclass(frozen=True, slots=True)
class Joiner:
    """Data about the sender of a JoinGroup that the request itself does not carry."""

    client_id: str
    client_host: str
    requires_member_id: bool
    """Whether a new dynamic member gets its id first and must join again with the id.

    True from JoinGroup 4 on (KIP-394).
    """
    skips_assignment: bool = False
    """Whether the response can make a leader skip the assignment: from JoinGroup 9 on (KIP-814)."""


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """The rebalance timeout. JoinGroup 0 has none (-1), so its session timeout is used as both
    time-outs."""
    given_ms = request.rebalance_timeout_ms
    return request.session_timeout_ms if given_ms < 0 else given_ms
