"""Leader elections: each kind is a function from a partition's state to the next state.

The functions perform no I/O. The results are Kafka's, with one more rule, which also applies to a
new controller: a replica that has *bounced* (its broker registered again after the partition's
state was written) leaves the ISR before a leader is elected. Its log may be shorter now, because a
killed broker loses unflushed data if its machine stops, too.

Each change by these functions begins a new leader epoch, because a broker ignores a LeaderAndIsr
request whose leader epoch it already has.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from klog_broker.metadata.image import FIRST_LEADER_EPOCH, NO_BROKER
from pyspark_klog.ids import BrokerId, LeaderEpoch

Assignment = Sequence[BrokerId]
"""The brokers of a partition's replicas, the preferred leader first."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """A partition's leader, leader epoch and ISR: the result of an election.

    `leader` is NO_BROKER while no replica can lead. `in_sync` is the ISR; no election leaves it
    empty. `is_recovering` becomes true if a leader is elected although it was not in sync, and
    false once a leader reports in AlterPartition that it has recovered.
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    in_sync: tuple[BrokerId, ...]
    is_recovering: bool = False


def first_leader(assignment: Assignment, live: Collection[BrokerId]) -> LeaderAndIsr | None:
    """The first leader and ISR of a new partition, with all live brokers of its assignment in sync;
    None if no broker of the assignment is alive."""
    in_sync = tuple(broker for broker in assignment if broker in live)
    if not in_sync:
        return None
    return LeaderAndIsr(in_sync[0], FIRST_LEADER_EPOCH, in_sync)


def elect_leader(
    assignment: Assignment, state: LeaderAndIsr, live: Collection[BrokerId], *, unclean: bool
) -> LeaderAndIsr | None:
    """Replace a failed leader by the first replica in the assignment that is alive and in sync;
    None if there is no candidate.

    With `unclean`, the first live replica in the assignment is elected if no in-sync replica is
    alive. The records that this replica lacks are lost.
    """
    leader = _first(assignment, lambda broker: broker in live and broker in state.in_sync)
    if leader is not None:
        in_sync = tuple(broker for broker in state.in_sync if broker in live)
        return _with_leader(state, leader, in_sync)
    leader = _first(assignment, lambda broker: broker in live) if unclean else None
    if leader is None:
        return None
    return replace(_with_leader(state, leader, (leader,)), is_recovering=True)


def elect_preferred(
    assignment: Assignment, state: LeaderAndIsr, live: Collection[BrokerId]
) -> LeaderAndIsr | None:
    """Make the preferred replica the leader; None if this replica is not in sync or not alive."""
    return elect_chosen(assignment[:1], state, live)


def elect_chosen(
    chosen: Assignment, state: LeaderAndIsr, live: Collection[BrokerId]
) -> LeaderAndIsr | None:
    """Make the first of the chosen replicas that is in sync and alive the leader; None if there is
    no such replica."""
    leader = _first(chosen, lambda broker: broker in live and broker in state.in_sync)
    return None if leader is None else _with_leader(state, leader, state.in_sync)


def elect_for_shutdown(
    assignment: Assignment,
    state: LeaderAndIsr,
    live: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
) -> LeaderAndIsr | None:
    """Replace a leader whose broker is shutting down; None if no other in-sync replica can lead.

    Brokers that are shutting down leave the ISR. `live` includes the brokers in `shutting_down`.
    """
    in_sync = tuple(broker for broker in state.in_sync if broker not in shutting_down)
    leader = _first(assignment, lambda broker: broker in live and broker in in_sync)
    return None if leader is None else _with_leader(state, leader, in_sync)


def without_replica(state: LeaderAndIsr, removed: BrokerId) -> LeaderAndIsr | None:
    """Remove an offline replica from the ISR and from leadership; None if nothing changes.

    The only member of the ISR stays in the ISR, because no other replica may be elected without
    the loss of records. If the replica was the leader, the partition has no leader afterwards.
    """
    if removed not in state.in_sync and removed != state.leader:
        return None
    in_sync = tuple(broker for broker in state.in_sync if broker != removed) or state.in_sync
    leader = NO_BROKER if removed == state.leader else state.leader
    return (
        None
        if (leader, in_sync) == (state.leader, state.in_sync)
        else _with_leader(state, leader, in_sync)
    )


def after_bounce(
    assignment: Assignment,
    state: LeaderAndIsr,
    bounced: Collection[BrokerId],
    live: Collection[BrokerId],
    *,
    unclean: bool,
) -> LeaderAndIsr | None:
    """Remove bounced replicas from the ISR, and replace a bounced leader; None if nothing changes.

    A replica has bounced if its broker registered again after the partition's state was written. At
    least one member always stays in the ISR. If all members have bounced, only the leader stays,
    because its log was the longest (without a leader, the first member in the assignment stays). A
    bounced leader is elected again only if it is the only member that stays, or by an unclean
    election.
    """
    remaining = _without_bounced(assignment, state, bounced)
    if remaining == state.in_sync and state.leader not in bounced:
        return None
    kept = replace(state, in_sync=remaining)
    if state.leader in remaining and state.leader in live and state.leader not in bounced:
        return _with_leader(state, state.leader, remaining)
    elected = elect_leader(assignment, kept, live, unclean=unclean)
    return _with_leader(state, NO_BROKER, remaining) if elected is None else elected


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


def _with_leader(
    state: LeaderAndIsr, leader: BrokerId, in_sync: tuple[BrokerId, ...]
) -> LeaderAndIsr:
    return replace(
        state,
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        in_sync=in_sync,
    )


def _first(assignment: Assignment, may_lead: Callable[[BrokerId], bool]) -> BrokerId | None:
    return next(filter(may_lead, assignment), None)
