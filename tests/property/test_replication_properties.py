"""What holds of the high watermark and the in-sync set, whatever comes."""

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.replication.high_watermark import reached_watermark
from klog_broker.replication.isr import Committed, FollowerProgress, fallen_behind
from pyspark_klog.ids import BrokerId

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
    ends = [(0, 0)]  # when the leader's log had reached which end
    for grown, fetched, passed_ms in steps:
        now_ms += passed_ms
        leader_end += grown
        ends.append((now_ms, leader_end))
        offset = min(offset + fetched, leader_end)
        before = progress.caught_up_ms
        progress = progress.fetched(offset, leader_end, now_ms)
        assert before <= progress.caught_up_ms <= now_ms
        # It has all that the leader had before the moment that it is said to have caught up at.
        had = max(end for at_ms, end in ends if at_ms < progress.caught_up_ms or at_ms == 0)
        assert offset >= had or progress.caught_up_ms == 0
    gone = fallen_behind(
        {BrokerId(1)},
        {BrokerId(1): progress},
        leader_end=leader_end,
        now_ms=now_ms,
        max_lag_ms=30,
    )
    assert not gone or (offset < leader_end and now_ms - progress.caught_up_ms > 30)
