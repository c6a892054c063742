"""Properties of the high watermark and the in-sync set under any events."""

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.replication.high_watermark import reached_watermark
from klog_broker.replication.isr import Committed, fallen_behind
from klog_broker.replication.isr_changes import CommittedIsr
from klog_broker.replication.leader_replicas import AcksAll, LeaderReplicas
from klog_broker.replication.replica_progress import NEVER_MS, FollowerFetch, FollowerProgress
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from tests.support.cluster.replicas import ME, OTHER, THIRD, role_assignment

OFFSETS = st.integers(0, 50)
BROKERS = st.integers(0, 4).map(BrokerId)


@given(OFFSETS, OFFSETS, st.lists(st.integers(-1, 50)))
def test_the_watermark_never_falls_and_is_on_every_replica_once_it_rises(before, own, followers):
    reached = reached_watermark(before, own, followers)
    assert reached >= before
    if reached > before:
        assert reached <= own
        assert all(reached <= each for each in followers)
        assert reached in (own, *followers)


@given(OFFSETS, OFFSETS, st.lists(OFFSETS, min_size=1))
def test_one_replica_more_never_raises_the_watermark(before, own, followers):
    assert reached_watermark(before, own, followers) <= reached_watermark(
        before, own, followers[1:]
    )


@given(st.sets(BROKERS, min_size=1), BROKERS, st.sets(BROKERS))
def test_a_leader_goes_by_the_larger_set(members, other, leaving):
    committed = Committed(tuple(sorted(members)))
    if other not in members:
        expanding = committed.expanded(other)
        assert set(expanding.maximal) == {*expanding.members, *expanding.wanted}
    if leaving & members:
        shrinking = committed.shrunk(leaving & members)
        assert set(shrinking.maximal) == {*shrinking.members, *shrinking.wanted}
        assert set(shrinking.wanted) == members - leaving


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 60))))
def test_caught_up_is_never_in_the_future_and_never_goes_back(steps):
    progress, now_ms, leader_end, offset = FollowerProgress(), 0, 0, 0
    ends: list[tuple[int, int]] = []  # when the leader's log had reached which end
    for grown, fetched, passed_ms in steps:
        now_ms += passed_ms
        leader_end += grown
        ends.append((now_ms, leader_end))
        offset = min(offset + fetched, leader_end)
        before = progress.caught_up_ms
        progress = progress.fetched(FollowerFetch(offset), leader_end, now_ms)
        assert before <= progress.caught_up_ms <= now_ms
        # The follower has all records that the leader had before its caught-up time.
        had = max((end for at_ms, end in ends if at_ms < progress.caught_up_ms), default=0)
        assert offset >= had or progress.caught_up_ms == NEVER_MS
    gone = fallen_behind(
        {BrokerId(1)},
        {BrokerId(1): progress},
        leader_end=leader_end,
        now_ms=now_ms,
        max_lag_ms=30,
    )
    assert not gone or (
        progress.log_end_offset < leader_end and now_ms - progress.caught_up_ms > 30
    )


ANSWERS = st.sampled_from(
    (None, ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NOT_CONTROLLER)
)
EVENTS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("fetch"), st.sampled_from((OTHER, THIRD)), st.integers(-3, 8)),
    st.tuples(st.just("wait"), st.integers(1, 80)),
    st.tuples(st.just("answer"), ANSWERS),
    st.tuples(st.just("min"), st.integers(1, 4)),
    st.tuples(st.just("live"), st.sets(st.sampled_from((OTHER, THIRD)))),
)


@given(st.lists(EVENTS, max_size=60))
def test_a_record_below_the_watermark_is_on_every_replica_that_may_lead_next(events):
    """`committed` is what a controller could have in sync: it may have made each change that is
    asked for, unless it said that it has not."""
    leader = LeaderReplicas(
        ME, 1, role_assignment(replicas=(ME, OTHER, THIRD)), epoch_start_offset=0, min_in_sync=2,
        max_lag_ms=100, now_ms=0,
    )  # fmt: skip
    end = watermark = now_ms = 0
    has = {OTHER: -1, THIRD: -1}
    for event, *told in events:
        if event == "append":
            end += told[0]
        elif event == "fetch":
            follower, step = told
            has[follower] = max(0, min(end, max(has[follower], 0, watermark) + step))
            leader.fetched(follower, FollowerFetch(has[follower], 0, 5), end, now_ms)
            leader.grow(follower, watermark)
        elif event == "wait":
            now_ms += told[0]
            leader.shrink(end, now_ms)
        elif event == "min":
            leader.set_min_in_sync(told[0])
        elif event == "live":
            leader.live = (ME, *told[0])
        elif leader.pending_change is not None:
            wanted = tuple(each.broker_id for each in leader.pending_change.members)
            committed = CommittedIsr(leader.leader_epoch, leader.partition_epoch + 1, wanted)
            leader.handle_result(leader.pending_change, told[0] or committed)
        assert (leader.pending_change is None) == isinstance(leader.in_sync, Committed)
        assert ME in leader.in_sync.members
        before, watermark = watermark, leader.watermark(watermark, end, end, now_ms)
        assert before <= watermark <= end
        if watermark > before:
            assert leader.is_enough_in_sync
            assert all(has[each] >= watermark for each in leader.in_sync.maximal if each != ME)
        assert (leader.acks_all(watermark + 1, watermark)) is AcksAll.WAITING
        assert (leader.acks_all(watermark, watermark)) is not AcksAll.WAITING
