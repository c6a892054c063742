"""The next state of a partition after brokers registered, failed or bounced, or logs failed.

A broker has bounced if it registered again after the partition's state was written. `next_state`
serves all these events and a new controller, and performs no I/O. The function compares the last
written state with the registered brokers, so a controller that was interrupted may start again and
reaches the same state.
"""

from dataclasses import replace

from klog_broker.controller.decisions.context import ControllerContext
from klog_broker.controller.decisions.leader_election import (
    Assignment,
    LeaderAndIsr,
    after_bounce,
    elect_for_shutdown,
    elect_leader,
    first_leader,
    without_replica,
)
from klog_broker.metadata.image import NO_BROKER
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicPartition


def next_state(
    context: ControllerContext, partition: TopicPartition, *, unclean: bool
) -> LeaderAndIsr | None:
    """The state to write for a partition; None if the present state needs no change.

    First, bounced replicas leave the ISR: their brokers registered again after the present state
    was written. Then offline replicas and replicas on brokers that are shutting down leave, but at
    least one member always stays. Last, a leader is elected if the partition has none, or if its
    leader is offline or shutting down. A partition without a state gets its first leader.
    """
    assignment = context.assignment(partition)
    known = context.leadership(partition)
    if known is None:
        return first_leader(assignment, context.online_for(partition))
    before = known.state
    # A leader whose broker shuts down keeps its role until another replica can take over.
    alive = context.brokers.keys() - context.failed_brokers(partition)
    online = context.online_for(partition)
    may_stay = online | ({before.leader} & alive)
    bounced = context.bounced(partition)
    state = after_bounce(assignment, before, bounced, may_stay, unclean=unclean) or before
    state = _without_offline_replicas(online, assignment, state)
    if state.leader in alive and state.leader not in online:
        state = elect_for_shutdown(assignment, state, alive, context.shutting_down) or state
    else:
        state = _with_live_leader(online, assignment, state, unclean=unclean)
    if state == before:
        return None
    return replace(state, leader_epoch=LeaderEpoch(before.leader_epoch + 1))


def _without_offline_replicas(
    online: frozenset[BrokerId], assignment: Assignment, state: LeaderAndIsr
) -> LeaderAndIsr:
    """Remove offline replicas from the ISR, except for the leader.

    If no member would remain, the ISR keeps one member: the first one in the assignment.
    """
    in_sync = tuple(each for each in state.in_sync if each in online or each == state.leader)
    if not in_sync:
        in_sync = tuple(each for each in assignment if each in state.in_sync)[:1] or state.in_sync
    return replace(state, in_sync=in_sync)


def _with_live_leader(
    online: frozenset[BrokerId], assignment: Assignment, state: LeaderAndIsr, *, unclean: bool
) -> LeaderAndIsr:
    if state.leader in online:
        return state
    elected = elect_leader(assignment, state, online, unclean=unclean)
    if elected is None and state.leader != NO_BROKER:
        elected = without_replica(state, state.leader)
    return elected or state
