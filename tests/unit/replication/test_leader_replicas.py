"""A leader's decisions about its replicas: the in-sync set, the watermarks, and acks=all."""

import pytest

from klog_broker.replication.errors import NotAReplica
from klog_broker.replication.isr import Committed
from klog_broker.replication.isr_changes import CommittedIsr, InSyncMember, IsrChange, IsrOutcome
from klog_broker.replication.leader_replicas import AcksAll, LeaderReplicas
from klog_broker.replication.replica_progress import FollowerFetch
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, LeaderEpoch
from tests.support.cluster.replicas import ME, OTHER, THIRD, role_assignment

ALL = (ME, OTHER, THIRD)
MAX_LAG_MS = 100


def replicas(
    in_sync: tuple[BrokerId, ...] = ALL, *, min_in_sync: int = 1, epoch_start: int = 0
) -> LeaderReplicas:
    return LeaderReplicas(
        ME,
        70,
        role_assignment(4, 9, replicas=ALL, in_sync=in_sync),
        epoch_start_offset=epoch_start,
        min_in_sync=min_in_sync,
        max_lag_ms=MAX_LAG_MS,
        now_ms=0,
    )


def fetch(
    leader: LeaderReplicas,
    follower: BrokerId,
    offset: int,
    *,
    end: int = 10,
    now_ms: int = 1,
    epoch: int = 5,
) -> None:
    leader.fetched(follower, FollowerFetch(offset, 0, epoch), end, now_ms)


def watermark(leader: LeaderReplicas, before: int = 0, *, end: int = 10, now_ms: int = 1) -> int:
    return leader.watermark(before, end, end, now_ms)


def expanding(*, min_in_sync: int = 1) -> tuple[LeaderReplicas, IsrChange]:
    """Return a leader ME that is adding OTHER to the ISR, and the change."""
    leader = replicas((ME,), min_in_sync=min_in_sync)
    fetch(leader, OTHER, 10)
    change = leader.grow(OTHER, 10)
    assert change is not None
    return leader, change


def test_the_watermark_is_the_least_end_of_replicas_that_may_be_in_sync() -> None:
    leader = replicas()
    assert watermark(leader) == 0
    fetch(leader, OTHER, 6)
    assert watermark(leader) == 0
    fetch(leader, THIRD, 4)
    assert watermark(leader) == 4
    assert leader.watermark(0, 3, 10, 1) == 3  # of the leader's log only that much is flushed
    fetch(leader, THIRD, 2)
    assert watermark(leader, 4) == 4


def test_the_watermark_stands_still_while_too_few_are_in_sync() -> None:
    leader = replicas((ME,), min_in_sync=2)
    assert not leader.is_enough_in_sync
    assert watermark(leader, 3, now_ms=1_000) == 3
    leader.set_min_in_sync(1)
    assert watermark(leader, 3, now_ms=1_000) == 10


def test_no_more_have_to_be_in_sync_than_there_are() -> None:
    assert replicas(min_in_sync=7).is_enough_in_sync


def test_one_that_is_being_added_holds_the_watermark_and_does_not_count_for_the_minimum() -> None:
    leader, change = expanding(min_in_sync=2)
    assert not leader.is_enough_in_sync
    leader.set_min_in_sync(1)
    assert watermark(leader, 10, end=20, now_ms=1_000) == 10
    committed = CommittedIsr(leader.leader_epoch, 10, (ME, OTHER))
    assert leader.handle_result(change, committed) is IsrOutcome.COMMITTED
    assert (leader.in_sync, leader.partition_epoch) == (Committed((ME, OTHER)), 10)
    assert leader.pending_change is None


def test_one_that_is_being_taken_out_holds_the_watermark_until_it_is_out() -> None:
    leader = replicas((ME, OTHER))
    fetch(leader, OTHER, 10)
    change = leader.shrink(20, MAX_LAG_MS + 2)
    assert change == IsrChange(leader.leader_epoch, 9, (InSyncMember(ME, 70),))
    assert leader.pending_change is change
    assert watermark(leader, 10, end=20, now_ms=1_000) == 10
    leader.handle_result(change, CommittedIsr(leader.leader_epoch, 10, (ME,)))
    assert watermark(leader, 10, end=20, now_ms=1_000) == 20


def test_a_follower_that_keeps_pace_is_waited_for_before_it_joins() -> None:
    leader = replicas((ME,))
    fetch(leader, OTHER, 10)
    assert watermark(leader, 0, end=20) == 10
    leader.live = (ME, THIRD)
    assert watermark(leader, 10, end=20) == 20
    leader.live = ALL
    assert watermark(leader, 10, end=20, now_ms=MAX_LAG_MS + 2) == 20


def test_an_in_sync_follower_has_the_whole_limit_to_show_that_it_still_is() -> None:
    leader = replicas((ME, OTHER))
    assert leader.shrink(10, MAX_LAG_MS) is None
    assert leader.shrink(10, MAX_LAG_MS + 1) is not None


def test_a_follower_with_the_watermark_and_the_epochs_start_joins_with_its_broker_epoch() -> None:
    leader = replicas((ME,), epoch_start=8)
    fetch(leader, OTHER, 7, epoch=55)
    assert leader.grow(OTHER, 5) is None
    fetch(leader, OTHER, 8, epoch=55)
    assert leader.grow(OTHER, 9) is None
    leader.live = (ME, THIRD)
    assert leader.grow(OTHER, 8) is None
    leader.live = ALL
    assert leader.grow(OTHER, 8) == IsrChange(
        leader.leader_epoch, 9, (InSyncMember(ME, 70), InSyncMember(OTHER, 55))
    )
    fetch(leader, THIRD, 10)
    assert leader.grow(THIRD, 8) is None  # one change at a time
    assert leader.shrink(20, 1_000) is None


def test_an_in_sync_or_foreign_broker_cannot_join() -> None:
    leader = replicas((ME, OTHER))
    fetch(leader, OTHER, 10)
    assert leader.grow(OTHER, 0) is None
    assert leader.grow(BrokerId(99), 0) is None


@pytest.mark.parametrize(
    ("error", "after", "is_pending"),
    [
        (ErrorCode.OPERATION_NOT_ATTEMPTED, IsrOutcome.REFUSED, False),
        (ErrorCode.INELIGIBLE_REPLICA, IsrOutcome.REFUSED, False),
        (ErrorCode.INVALID_UPDATE_VERSION, IsrOutcome.AWAITS_LEADER_AND_ISR, True),
        (ErrorCode.FENCED_LEADER_EPOCH, IsrOutcome.AWAITS_LEADER_AND_ISR, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, IsrOutcome.AWAITS_LEADER_AND_ISR, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, IsrOutcome.AWAITS_LEADER_AND_ISR, True),
        (ErrorCode.INVALID_REQUEST, IsrOutcome.AWAITS_LEADER_AND_ISR, True),
        (ErrorCode.NEW_LEADER_ELECTED, IsrOutcome.AWAITS_LEADER_AND_ISR, True),
        (ErrorCode.NOT_CONTROLLER, IsrOutcome.RETRY, True),
        (ErrorCode.STALE_BROKER_EPOCH, IsrOutcome.RETRY, True),
        (ErrorCode.REQUEST_TIMED_OUT, IsrOutcome.RETRY, True),
    ],
)
def test_after_an_error_both_sets_count_unless_the_change_was_surely_not_made(
    error: ErrorCode, after: IsrOutcome, is_pending: bool
) -> None:
    leader, change = expanding()
    assert leader.handle_result(change, error) is after
    assert leader.in_sync.maximal == ((ME, OTHER) if is_pending else (ME,))
    assert leader.pending_change == (change if is_pending else None)


def given_up() -> tuple[LeaderReplicas, IsrChange]:
    """Return a leader whose ISR change was refused after a lost request, and its next change."""
    leader, change = expanding()
    leader.handle_lost_request(change)
    assert leader.handle_result(change, ErrorCode.INELIGIBLE_REPLICA) is IsrOutcome.RETRY
    asked = leader.pending_change
    assert asked == IsrChange(leader.leader_epoch, 9, (InSyncMember(ME, 70),))
    assert leader.in_sync.maximal == (ME, OTHER)
    return leader, asked


def test_a_change_that_may_come_late_is_taken_back_by_another_epoch() -> None:
    leader, asked = given_up()
    assert leader.handle_result(asked, ErrorCode.OPERATION_NOT_ATTEMPTED) is IsrOutcome.RETRY
    again = leader.pending_change
    assert again == asked
    committed = CommittedIsr(leader.leader_epoch, 10, (ME,))
    assert leader.handle_result(again, committed) is IsrOutcome.COMMITTED
    assert (leader.in_sync, leader.partition_epoch) == (Committed((ME,)), 10)
    later = leader.grow(OTHER, 10)
    assert later is not None
    assert leader.handle_result(later, ErrorCode.INELIGIBLE_REPLICA) is IsrOutcome.REFUSED


def test_a_change_that_came_late_is_found_by_sending_it_once_more() -> None:
    leader, asked = given_up()
    assert leader.handle_result(asked, ErrorCode.INVALID_UPDATE_VERSION) is IsrOutcome.RETRY
    change = leader.pending_change
    assert change is not None
    assert [each.broker_id for each in change.members] == [ME, OTHER]
    committed = CommittedIsr(leader.leader_epoch, 10, (ME, OTHER))
    assert leader.handle_result(change, committed) is IsrOutcome.COMMITTED
    assert leader.in_sync == Committed((ME, OTHER))


def test_an_answer_that_is_missing_to_another_change_means_nothing() -> None:
    leader, change = expanding()
    leader.handle_lost_request(change._replace(partition_epoch=8))
    assert leader.handle_result(change, ErrorCode.INELIGIBLE_REPLICA) is IsrOutcome.REFUSED


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(5, 10), (3, 10), (4, 8)])
def test_a_state_of_other_epochs_is_not_taken(leader_epoch: int, partition_epoch: int) -> None:
    leader, change = expanding()
    answer = CommittedIsr(leader.leader_epoch, partition_epoch, (ME, THIRD))._replace(
        leader_epoch=leader_epoch  # type: ignore[arg-type]
    )
    assert leader.handle_result(change, answer) is IsrOutcome.AWAITS_LEADER_AND_ISR
    assert leader.in_sync.maximal == (ME, OTHER)


def test_a_newer_role_change_ends_the_isr_change_and_an_old_one_does_not() -> None:
    leader, change = expanding()
    leader.apply_assignment(role_assignment(4, 9, replicas=ALL, in_sync=(ME,)))
    assert leader.pending_change is change
    leader.apply_assignment(role_assignment(4, 8, replicas=(ME,)))
    assert (leader.replicas, leader.pending_change) == (ALL, change)
    leader.apply_assignment(role_assignment(4, 10, replicas=(ME, OTHER), in_sync=(ME,)))
    assert (leader.replicas, leader.in_sync) == ((ME, OTHER), Committed((ME,)))
    assert leader.handle_result(change, ErrorCode.INELIGIBLE_REPLICA) is IsrOutcome.STALE
    # A replica's reported state stays known; a removed replica is refused.
    assert leader.followers[OTHER].log_end_offset == 10
    with pytest.raises(NotAReplica, match="the partition's replicas are"):
        leader.check_fetch(THIRD, 5)


def test_an_answer_to_an_equal_change_asked_before_is_too_late() -> None:
    leader, change = expanding()
    leader.handle_result(change, ErrorCode.INELIGIBLE_REPLICA)
    again = leader.grow(OTHER, 10)
    assert again == change
    assert leader.handle_result(change, ErrorCode.INELIGIBLE_REPLICA) is IsrOutcome.STALE
    assert leader.pending_change is again


def test_a_fetch_of_an_earlier_broker_epoch_is_refused_and_one_of_a_later_one_accepted() -> None:
    leader = replicas((ME,))
    fetch(leader, OTHER, 10, epoch=6)
    with pytest.raises(NotAReplica, match="registered again with 6"):
        fetch(leader, OTHER, 9, epoch=5)
    assert leader.followers[OTHER].log_end_offset == 10
    fetch(leader, OTHER, 3, epoch=7)  # its log is shorter now
    assert leader.grow(OTHER, 10) is None


def test_acks_all_is_satisfied_once_enough_and_all_required_replicas_have_the_records() -> None:
    leader = replicas((ME, OTHER), min_in_sync=2)
    assert leader.acks_all(5, 4) is AcksAll.WAITING
    assert leader.acks_all(5, 5) is AcksAll.SAFE
    change = leader.shrink(10, 1_000)
    assert change is not None
    assert leader.acks_all(5, 5) is AcksAll.SAFE
    leader.handle_result(change, CommittedIsr(leader.leader_epoch, 10, (ME,)))
    assert leader.acks_all(5, 5) is AcksAll.TOO_FEW
    assert leader.acks_all(6, 5) is AcksAll.WAITING


def test_the_low_watermark_waits_for_all_that_live() -> None:
    leader = replicas()
    assert leader.low_watermark(8) == -1
    leader.fetched(OTHER, FollowerFetch(10, 8, 5), 10, 1)
    leader.fetched(THIRD, FollowerFetch(10, 4, 5), 10, 1)
    assert leader.low_watermark(8) == 4
    leader.live = (ME, OTHER)
    assert leader.low_watermark(8) == 8


def test_a_follower_that_had_all_until_the_log_grew_has_the_whole_limit_from_then_on() -> None:
    leader = replicas()
    leader.fetched(OTHER, FollowerFetch(5), 5, now_ms=0)
    leader.fetched(THIRD, FollowerFetch(4), 5, now_ms=0)
    leader.end_grew(5, now_ms=1000)
    change = leader.shrink(6, now_ms=1000 + MAX_LAG_MS)
    assert change is not None
    assert [each.broker_id for each in change.members] == [ME, OTHER]


def test_a_broker_that_is_no_replica_does_not_count_as_in_sync() -> None:
    """ZooKeeper may hold such a state: the ISR has a broker that is no replica."""
    leader = replicas((ME, OTHER, BrokerId(9)), min_in_sync=3)
    assert not leader.is_enough_in_sync
    change = leader.shrink(10, MAX_LAG_MS + 1)
    assert change is not None
    assert change.members == (InSyncMember(ME, 70),)
    answer = CommittedIsr(LeaderEpoch(4), 10, (ME, BrokerId(9)))
    assert leader.handle_result(change, answer) is IsrOutcome.COMMITTED
    assert leader.in_sync == Committed((ME,))
    leader.apply_assignment(role_assignment(4, 11, replicas=ALL, in_sync=(ME, OTHER, BrokerId(9))))
    assert leader.in_sync == Committed((ME, OTHER))


def test_a_replica_that_is_named_twice_counts_once() -> None:
    """Kafka's controller passes on what is in ZooKeeper; its brokers make a set of it."""
    leader = replicas((ME, ME), min_in_sync=2)
    assert not leader.is_enough_in_sync
    assert leader.apply_partition_state(CommittedIsr(LeaderEpoch(4), 10, (ME, OTHER, ME, OTHER)))
    assert leader.in_sync == Committed((ME, OTHER))
    assert leader.is_enough_in_sync


def test_a_role_change_of_the_same_partition_epoch_can_name_other_replicas() -> None:
    """A reassignment changes the replicas in another znode, which has an epoch of its own."""
    leader = replicas()
    leader.apply_assignment(role_assignment(4, 9, replicas=(ME, OTHER), in_sync=ALL))
    assert leader.replicas == (ME, OTHER)
    assert list(leader.followers) == [OTHER]


def test_an_answer_with_the_same_partition_epoch_commits_what_was_there() -> None:
    """A controller that finds nothing to change responds in this way."""
    leader, change = expanding()
    answer = CommittedIsr(leader.leader_epoch, leader.partition_epoch, (ME,))
    assert leader.handle_result(change, answer) is IsrOutcome.COMMITTED
    assert leader.in_sync == Committed((ME,))
    assert leader.pending_change is None


def test_idle_followers_are_asked_for_in_turns() -> None:
    """The controller may refuse one follower for good, which must not keep the other one out."""
    leader = replicas((ME,))
    fetch(leader, OTHER, 10)
    fetch(leader, THIRD, 10)
    asked = []
    for _ in range(3):
        change = leader.grow_by_idle(10, 10)
        assert change is not None
        asked.append(change.members[-1].broker_id)
        leader.handle_result(change, ErrorCode.INELIGIBLE_REPLICA)
    assert asked == [OTHER, THIRD, OTHER]


def test_a_partition_is_under_replicated_while_a_replica_is_out_of_sync() -> None:
    leader = replicas()
    assert not leader.is_under_replicated
    leader.apply_partition_state(CommittedIsr(LeaderEpoch(4), 10, (ME, OTHER)))
    assert leader.is_under_replicated
