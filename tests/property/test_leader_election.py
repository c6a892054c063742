"""Elections: properties for any partition. tests/peers compares them with Kafka's, case by case."""

from itertools import permutations, product
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog_broker.controller.decisions.leader_election import (
    LeaderAndIsr,
    after_bounce,
    elect_for_shutdown,
    elect_leader,
    elect_preferred,
    first_leader,
    without_replica,
)
from klog_broker.metadata.image import NO_BROKER
from pyspark_klog.ids import BrokerId, LeaderEpoch

BROKERS = tuple(map(BrokerId, range(1, 6)))


class Partition(NamedTuple):
    assignment: tuple[BrokerId, ...]
    state: LeaderAndIsr
    live: frozenset[BrokerId]


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    assignment = draw(st.lists(st.sampled_from(BROKERS), min_size=1, max_size=5, unique=True))
    in_sync = draw(st.lists(st.sampled_from(assignment), min_size=1, unique=True))
    leader = draw(st.sampled_from((*in_sync, NO_BROKER)))
    epoch = LeaderEpoch(draw(st.integers(0, 2**31 - 2)))
    state = LeaderAndIsr(leader, epoch, tuple(in_sync), draw(st.booleans()))
    live = draw(st.frozensets(st.sampled_from(BROKERS)))
    return Partition(tuple(assignment), state, live)


def check_elected(partition: Partition, elected: LeaderAndIsr) -> None:
    assert elected.leader in partition.live
    assert elected.leader in elected.in_sync
    assert elected.leader in partition.assignment
    assert elected.leader_epoch == partition.state.leader_epoch + 1


@given(partitions())
def test_a_clean_leader_was_in_sync(partition: Partition) -> None:
    assignment, state, live = partition
    elected = elect_leader(assignment, state, live, unclean=False)
    able = [broker for broker in assignment if broker in live and broker in state.in_sync]
    if elected is None:
        assert not able
        return
    check_elected(partition, elected)
    assert elected.leader == able[0]
    assert set(elected.in_sync) == set(able)
    assert elected.is_recovering == state.is_recovering


@given(partitions())
def test_an_unclean_leader_is_elected_only_where_there_is_no_clean_one(
    partition: Partition,
) -> None:
    assignment, state, live = partition
    clean = elect_leader(assignment, state, live, unclean=False)
    elected = elect_leader(assignment, state, live, unclean=True)
    if clean is not None:
        assert elected == clean
    elif elected is None:
        assert not set(assignment) & live
    else:
        check_elected(partition, elected)
        assert elected.in_sync == (elected.leader,)
        assert elected.is_recovering


@given(partitions())
def test_the_preferred_leader_is_the_first_replica_and_takes_nobody_out(
    partition: Partition,
) -> None:
    assignment, state, live = partition
    elected = elect_preferred(assignment, state, live)
    if elected is None:
        assert assignment[0] not in live or assignment[0] not in state.in_sync
        return
    check_elected(partition, elected)
    assert (elected.leader, elected.in_sync) == (assignment[0], state.in_sync)


@given(partitions(), st.frozensets(st.sampled_from(BROKERS)))
def test_no_broker_that_shuts_down_leads_or_is_in_sync(
    partition: Partition, leaving: frozenset[BrokerId]
) -> None:
    assignment, state, live = partition
    elected = elect_for_shutdown(assignment, state, live, leaving)
    if elected is None:
        assert not (set(state.in_sync) & live) - leaving
        return
    check_elected(partition, elected)
    assert set(elected.in_sync) == set(state.in_sync) - leaving


@given(partitions(), st.sampled_from(BROKERS))
def test_a_replica_that_goes_offline_leaves_unless_it_is_the_last(
    partition: Partition, gone: BrokerId
) -> None:
    state = partition.state
    left = without_replica(state, gone)
    if left is None:
        assert gone != state.leader
        assert gone not in state.in_sync or state.in_sync == (gone,)
        return
    assert left.leader == (NO_BROKER if gone == state.leader else state.leader)
    expected = [broker for broker in state.in_sync if broker != gone] or list(state.in_sync)
    assert list(left.in_sync) == expected
    assert left.leader_epoch == state.leader_epoch + 1
    # A second removal of the same replica changes nothing.
    assert without_replica(left, gone) is None


@given(partitions())
def test_the_first_leader_is_the_first_live_replica(partition: Partition) -> None:
    assignment, _, live = partition
    first = first_leader(assignment, live)
    able = tuple(broker for broker in assignment if broker in live)
    assert first == (LeaderAndIsr(able[0], LeaderEpoch(0), able) if able else None)


@given(partitions(), st.booleans())
def test_damaged_states_elect_no_broker_that_they_do_not_name(
    partition: Partition, unclean: bool
) -> None:
    """Other programs may have written such states into ZooKeeper: no replicas, or an empty ISR."""
    _, state, live = partition
    assert elect_leader((), state, live, unclean=unclean) is None
    assert elect_preferred((), state, live) is None
    assert elect_for_shutdown((), state, live, ()) is None
    assert first_leader((), live) is None
    empty = LeaderAndIsr(state.leader, state.leader_epoch, ())
    assert elect_preferred(BROKERS, empty, live) is None
    elected = elect_leader(BROKERS, empty, live, unclean=unclean)
    assert (elected is not None) == (unclean and bool(live))
    for assignment, one in (((), state), (BROKERS, empty), ((), empty)):
        after_bounce(assignment, one, live, live, unclean=unclean)


@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_bounce_of_up_to_three_replicas(size: int, unclean: bool) -> None:
    replicas = BROKERS[:size]
    flags = tuple(product((False, True), repeat=size))
    for members, bounces, lives in product(flags[1:], flags, flags):
        in_sync = tuple(broker for broker, is_in in zip(replicas, members, strict=True) if is_in)
        bounced = {broker for broker, has in zip(replicas, bounces, strict=True) if has}
        # A broker that has registered again is alive.
        live = bounced | {
            broker for broker, is_live in zip(replicas, lives, strict=True) if is_live
        }
        for order, leader in product(permutations(in_sync), (*in_sync, NO_BROKER)):
            state = LeaderAndIsr(leader, LeaderEpoch(4), order)
            settled = after_bounce(replicas, state, bounced, live, unclean=unclean)
            check_bounce(state, bounced, live, settled)


def check_bounce(
    state: LeaderAndIsr, bounced: set[BrokerId], live: set[BrokerId], settled: LeaderAndIsr | None
) -> None:
    where = (state, bounced, live, settled)
    steady = set(state.in_sync) - bounced
    if settled is None:
        # No in-sync replica bounced, or only the last in-sync replica, which does not lead.
        assert state.leader not in bounced, where
        assert not bounced & set(state.in_sync) or len(state.in_sync) == 1, where
        return
    assert settled.leader_epoch == state.leader_epoch + 1, where
    assert settled.in_sync, where
    assert settled.leader == NO_BROKER or settled.leader in live, where
    assert settled.leader == NO_BROKER or settled.leader in settled.in_sync, where
    if settled.is_recovering:
        assert not steady & live, where
        return
    assert set(settled.in_sync) <= set(state.in_sync), where
    if steady:
        # A bounced replica may have lost records, and leaves the ISR if another has all of them.
        assert not bounced & set(settled.in_sync), where
        assert (settled.leader == NO_BROKER) == (not steady & live), where
        if state.leader in steady & live:
            assert settled.leader == state.leader, where
    else:
        # The last in-sync replica stays and leads in a new epoch, because it is alive.
        assert len(settled.in_sync) == 1, where
        assert settled.leader in bounced, where
        if state.leader in bounced:
            assert settled.leader == state.leader, where


@settings(max_examples=200)
@given(partitions(), st.frozensets(st.sampled_from(BROKERS)), st.booleans())
def test_once_settled_a_bounce_changes_nothing_more_of_the_in_sync_set(
    partition: Partition, again: frozenset[BrokerId], unclean: bool
) -> None:
    assignment, state, live = partition
    bounced = again & live
    settled = after_bounce(assignment, state, bounced, live, unclean=unclean)
    if settled is None:
        return
    assert settled.leader_epoch > state.leader_epoch
    once_more = after_bounce(assignment, settled, bounced, live, unclean=unclean)
    if once_more is not None:
        assert once_more.in_sync == settled.in_sync
        assert once_more.leader == settled.leader
