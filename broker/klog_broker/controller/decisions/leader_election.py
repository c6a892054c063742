"""Who leads a partition: every election, as functions of what the controller knows. Pure.

They answer as Kafka's do, with one rule more, which also holds for a new controller: a replica
that has *bounced* (its broker registered again after the partition's state was written) leaves the
in-sync set before anybody is elected. Its log may be shorter now: a broker that is killed keeps
what it has not flushed only if its machine lives on.

Whatever the controller changes begins a new leader epoch: a broker does nothing about a
LeaderAndIsr whose leader epoch it knows already.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from klog_broker.metadata.image import FIRST_LEADER_EPOCH, NO_BROKER
from pyspark_klog.ids import BrokerId, LeaderEpoch

Assignment = Sequence[BrokerId]
"""The brokers of a partition's replicas. The first one is preferred as the leader."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """What an election decides. `leader` is NO_BROKER while no replica can lead; no election leaves
    the in-sync set empty. `is_recovering`: the leader was not in sync when it was elected."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    in_sync: tuple[BrokerId, ...]
    is_recovering: bool = False


def first_leader(assignment: Assignment, live: Collection[BrokerId]) -> LeaderAndIsr | None:
    """The first state of a new partition; None if none of its brokers is alive."""
    in_sync = tuple(broker for broker in assignment if broker in live)
    if not in_sync:
        return None
    return LeaderAndIsr(in_sync[0], FIRST_LEADER_EPOCH, in_sync)


def elect_leader(
    assignment: Assignment, state: LeaderAndIsr, live: Collection[BrokerId], *, unclean: bool
) -> LeaderAndIsr | None:
    """A leader for a partition whose leader is gone: the first replica that is in sync and alive.

    Only with `unclean` may it be one that is not in sync: the records that it lacks are lost.
    None if nobody can be elected.
    """
    leader = _first(assignment, lambda broker: broker in live and broker in state.in_sync)
    if leader is not None:
        in_sync = tuple(broker for broker in state.in_sync if broker in live)
        return _led(state, leader, in_sync)
    leader = _first(assignment, lambda broker: broker in live) if unclean else None
    if leader is None:
        return None
    return replace(_led(state, leader, (leader,)), is_recovering=True)


def elect_preferred(
    assignment: Assignment, state: LeaderAndIsr, live: Collection[BrokerId]
) -> LeaderAndIsr | None:
    """The preferred replica as the leader; None if it is not in sync or not alive."""
    preferred = _first(assignment[:1], lambda broker: broker in live and broker in state.in_sync)
    if preferred is None:
        return None
    return _led(state, preferred, state.in_sync)


def elect_for_shutdown(
    assignment: Assignment,
    state: LeaderAndIsr,
    live: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
) -> LeaderAndIsr | None:
    """Another leader for a partition whose leader is about to stop; None if there is no other.

    Brokers that are about to stop leave the in-sync set. `live` includes them here.
    """
    in_sync = tuple(broker for broker in state.in_sync if broker not in shutting_down)
    leader = _first(assignment, lambda broker: broker in live and broker in in_sync)
    return None if leader is None else _led(state, leader, in_sync)


def without_replica(state: LeaderAndIsr, gone: BrokerId) -> LeaderAndIsr | None:
    """The state without a replica that went offline; None if it changes nothing.

    The last replica stays in sync: only it may lead again. A partition that it led has no leader.
    """
    if gone not in state.in_sync and gone != state.leader:
        return None
    in_sync = tuple(broker for broker in state.in_sync if broker != gone) or state.in_sync
    leader = NO_BROKER if gone == state.leader else state.leader
    return (
        None if (leader, in_sync) == (state.leader, state.in_sync) else _led(state, leader, in_sync)
    )


def after_bounce(
    assignment: Assignment,
    state: LeaderAndIsr,
    bounced: Collection[BrokerId],
    live: Collection[BrokerId],
    *,
    unclean: bool,
) -> LeaderAndIsr | None:
    """The state once replicas have bounced; None if that changes nothing.

    They leave the in-sync set, except for the last one. If all have bounced, the leader stays: its
    log was the longest. A leader that has bounced leads again only if it is the last one.
    """
    remaining = _without_bounced(assignment, state, bounced)
    if remaining == state.in_sync and state.leader not in bounced:
        return None
    kept = replace(state, in_sync=remaining)
    if state.leader in remaining and state.leader in live and state.leader not in bounced:
        return _led(state, state.leader, remaining)
    elected = elect_leader(assignment, kept, live, unclean=unclean)
    return _led(state, NO_BROKER, remaining) if elected is None else elected


def _without_bounced(
    assignment: Assignment, state: LeaderAndIsr, bounced: Collection[BrokerId]
) -> tuple[BrokerId, ...]:
    remaining = tuple(broker for broker in state.in_sync if broker not in bounced)
    if remaining:
        return remaining
    if state.leader in state.in_sync:
        return (state.leader,)
    last = _first(assignment, lambda broker: broker in state.in_sync)
    return state.in_sync if last is None else (last,)


def _led(state: LeaderAndIsr, leader: BrokerId, in_sync: tuple[BrokerId, ...]) -> LeaderAndIsr:
    return replace(
        state,
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        in_sync=in_sync,
    )


def _first(assignment: Assignment, may_lead: Callable[[BrokerId], bool]) -> BrokerId | None:
    return next(filter(may_lead, assignment), None)
