"""The in-sync set as a state, and its members."""

import pytest

from klog_broker.replication.isr import Committed, fallen_behind, may_join
from klog_broker.replication.replica_progress import (
    NEVER_MS,
    UNKNOWN,
    FollowerFetch,
    FollowerProgress,
)
from pyspark_klog.ids import BrokerId

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def test_a_follower_that_is_being_added_must_have_what_is_acknowledged():
    expanding = Committed((ONE, TWO)).expanded(THREE)
    assert expanding.members == (ONE, TWO)
    assert expanding.maximal == expanding.wanted == (ONE, TWO, THREE)


def test_a_follower_that_is_being_taken_out_must_still_have_it():
    shrinking = Committed((ONE, TWO, THREE)).shrunk({TWO})
    assert shrinking.members == shrinking.maximal == (ONE, TWO, THREE)
    assert shrinking.wanted == (ONE, THREE)


def test_changes_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="in sync already"):
        Committed((ONE,)).expanded(ONE)
    with pytest.raises(ValueError, match="not all in sync"):
        Committed((ONE,)).shrunk({TWO})
    with pytest.raises(ValueError, match="not all in sync"):
        Committed((ONE,)).shrunk(set())


def behind(progress, leader_end, now_ms, in_sync=(ONE, TWO)):
    return fallen_behind(
        in_sync, {TWO: progress}, leader_end=leader_end, now_ms=now_ms, max_lag_ms=100
    )


def test_a_follower_falls_out_once_it_has_lagged_for_too_long():
    progress = FollowerProgress().fetched(FollowerFetch(10), leader_end=10, now_ms=1_000)
    assert progress.log_end_offset == 10
    assert behind(progress, 11, 1_100) == set()
    assert behind(progress, 11, 1_101) == {TWO}


def test_a_follower_at_the_leaders_end_never_falls_out():
    progress = FollowerProgress().fetched(FollowerFetch(10), leader_end=10, now_ms=0)
    assert behind(progress, 10, 1_000_000) == set()


def test_one_that_is_not_in_sync_cannot_fall_out():
    assert behind(FollowerProgress(), 10, 1_000, in_sync=(ONE,)) == set()


def test_a_follower_that_keeps_pace_with_a_busy_leader_has_caught_up_at_its_fetch_before():
    progress = FollowerProgress().fetched(FollowerFetch(10), leader_end=20, now_ms=1_000)
    assert progress.caught_up_ms == NEVER_MS
    progress = progress.fetched(FollowerFetch(20), leader_end=30, now_ms=1_050)
    assert progress.caught_up_ms == 1_000
    assert behind(progress, 40, 1_100) == set()
    progress = progress.fetched(FollowerFetch(25), leader_end=40, now_ms=1_090)
    assert progress.caught_up_ms == 1_000
    assert behind(progress, 40, 1_101) == {TWO}


def test_a_first_fetch_from_the_start_is_not_taken_for_keeping_pace():
    assert (
        FollowerProgress().fetched(FollowerFetch(0), leader_end=5, now_ms=50).caught_up_ms
        == NEVER_MS
    )


@pytest.mark.parametrize(
    ("end", "watermark", "epoch_start", "joins"),
    [(10, 10, 5, True), (9, 10, 5, False), (10, 5, 11, False), (11, 5, 11, True)],
)
def test_a_follower_that_may_join_has_the_watermark_and_the_epochs_start(
    end, watermark, epoch_start, joins
):
    assert may_join(end, high_watermark=watermark, epoch_start_offset=epoch_start) is joins


def test_a_fetch_carries_the_log_start_and_the_broker_epoch() -> None:
    progress = FollowerProgress().fetched(FollowerFetch(9, 4, 70), leader_end=9, now_ms=1)
    assert (progress.log_start_offset, progress.broker_epoch) == (4, 70)
    assert progress.is_of_older_broker_epoch(69)
    assert not progress.is_of_older_broker_epoch(70)
    assert not progress.is_of_older_broker_epoch(71)
    # Older versions of Fetch carry no broker epoch.
    assert not progress.is_of_older_broker_epoch(UNKNOWN)
