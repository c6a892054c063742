"""The ISR of a partition that this broker leads, and the rules for replicas to join and to leave
it. Pure.

The set changes only when the controller has made the change durable. Until the controller answers,
a leader uses the larger set of the old and the new one (the maximal ISR of KIP-497): a follower
that is being added must have all acknowledged records, because the controller may have added it
already; a follower that is being removed may still be elected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from klog_broker.replication.replica_progress import FollowerProgress
from pyspark_klog.ids import BrokerId


@dataclass(frozen=True, slots=True)
class Committed:
    """The ISR that the controller has committed, while no change is requested."""

    members: tuple[BrokerId, ...]

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """The replicas that must have a record before the record counts as replicated."""
        return self.members

    def expanded(self, joining: BrokerId) -> Expanding:
        """Return the state of the ISR while the leader asks the controller to add a follower."""
        if joining in self.members:
            raise ValueError(f"broker {joining} is in sync already: {self.members}")
        return Expanding(self.members, joining)

    def shrunk(self, leaving: Collection[BrokerId]) -> Shrinking:
        """Return the state of the ISR while the leader asks the controller to remove followers."""
        if not leaving or not set(leaving) <= set(self.members):
            raise ValueError(f"brokers {sorted(leaving)} are not all in sync: {self.members}")
        return Shrinking(self.members, frozenset(leaving))


@dataclass(frozen=True, slots=True)
class Expanding:
    """The ISR while the controller is asked to add `joining` to `members`."""

    members: tuple[BrokerId, ...]
    joining: BrokerId

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """The ISR with the follower being added, because the controller may have added it
        already."""
        return (*self.members, self.joining)

    @property
    def wanted(self) -> tuple[BrokerId, ...]:
        """The ISR that the leader requests from the controller."""
        return self.maximal


@dataclass(frozen=True, slots=True)
class Shrinking:
    """The ISR while the controller is asked to remove `leaving` from `members`."""

    members: tuple[BrokerId, ...]
    leaving: frozenset[BrokerId]

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """The ISR with the followers being removed, because the controller may refuse the
        removal."""
        return self.members

    @property
    def wanted(self) -> tuple[BrokerId, ...]:
        """The ISR that the leader requests from the controller."""
        return tuple(each for each in self.members if each not in self.leaving)


InSyncSet = Committed | Expanding | Shrinking
"""`members` is the ISR that the controller has committed. An append with acks=all needs
min.insync.replicas of these members."""


def fallen_behind(
    in_sync: Collection[BrokerId],
    followers: Mapping[BrokerId, FollowerProgress],
    *,
    leader_end: int,
    now_ms: int,
    max_lag_ms: int,
) -> frozenset[BrokerId]:
    """Return the in-sync followers that have not caught up with the leader for longer than
    `max_lag_ms` (replica.lag.time.max.ms). `followers` does not contain the leader."""
    return frozenset(
        broker_id
        for broker_id, progress in followers.items()
        if broker_id in in_sync and not progress.keeps_pace(leader_end, now_ms, max_lag_ms)
    )


def may_join(follower_end: int, *, high_watermark: int, epoch_start_offset: int) -> bool:
    """Whether a follower whose log ends at `follower_end` may be added to the in-sync set. The
    follower needs all acknowledged records, and all records that the leader had when its epoch
    began: before the offset at which the epoch began, the two logs may still differ
    (KAFKA-7128)."""
    return follower_end >= max(high_watermark, epoch_start_offset)
