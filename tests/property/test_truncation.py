"""Wherever two logs part, a few questions find the place: all logs of up to five records."""

from collections.abc import Iterator
from itertools import combinations_with_replacement, product

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.log.read.read_results import EpochEndOffset
from klog_broker.replication.follower_state import (
    AppendRecords,
    Changing,
    FetchedPart,
    FollowBounds,
    FollowerState,
    StartOver,
    Truncate,
)
from klog_broker.replication.truncation import is_diverging_epoch, truncation_offset
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import LeaderEpoch, Offset
from tests.support.replication.log_model import ModelLog

Epochs = tuple[int, ...]
"""The epoch of each record: two records of an offset and an epoch are the same."""


def logs() -> Iterator[Epochs]:
    for length in range(6):
        yield from combinations_with_replacement(range(1, 5), length)


def common(one: Epochs, other: Epochs) -> int:
    """How many records both begin with."""
    equal = [a == b for a, b in zip(one, other, strict=False)]
    return equal.index(False) if False in equal else len(equal)


def can_be(one: Epochs, other: Epochs) -> bool:
    """An epoch has one leader: where both logs have records of it, these begin at one place, behind
    the log that its leader had when it was elected."""
    return all(
        one[: one.index(epoch)] == other[: other.index(epoch)] for epoch in set(one) & set(other)
    )


def model(epochs: Epochs, leads_in: int | None = None) -> ModelLog:
    log = ModelLog()
    for epoch in epochs:
        log.append_value(epoch, 0)
    if leads_in is not None:
        log.epochs.add_epoch(leads_in, log.log_end_offset)
    return log


def questions_until_they_match(leader: ModelLog, follower: ModelLog) -> int:
    for count in range(10):
        offset, last_epoch = follower.log_end_offset, follower.latest_epoch
        if last_epoch < 0:
            return count
        found: EpochEndOffset = leader.end_offset_for_epoch(last_epoch)
        if not is_diverging_epoch(found, offset, last_epoch):
            return count
        own = follower.end_offset_for_epoch(found.leader_epoch)
        follower.truncate(truncation_offset(found, own, offset))
        assert (follower.log_end_offset, follower.latest_epoch) != (offset, last_epoch)
    raise AssertionError("the logs never match")


def test_a_follower_keeps_exactly_what_its_leader_has_too() -> None:
    count = most = 0
    for leaders, followers in product(logs(), logs()):
        if can_be(leaders, followers):
            # A leader has begun its own epoch, newer than all epochs of its follower.
            follower = model(followers)
            asked = questions_until_they_match(model(leaders, leads_in=5), follower)
            assert follower.log_end_offset == common(leaders, followers), (leaders, followers)
            count, most = count + 1, max(most, asked)
    assert count > 3_000
    assert most >= 2


NUMBERS = st.one_of(st.integers(-3, 8), st.integers(-(1 << 63), (1 << 63) - 1))
ENDS = st.builds(
    EpochEndOffset, st.one_of(st.integers(-3, 6)).map(LeaderEpoch), NUMBERS.map(Offset)
)
PARTS = st.builds(
    FetchedPart,
    st.sampled_from((ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_ID)),
    st.binary(max_size=30).map(memoryview),
    NUMBERS,
    NUMBERS,
    st.none() | ENDS,
)


@given(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=4), PARTS, NUMBERS, NUMBERS)
def test_whatever_a_leader_says_the_log_stays_one(start, epochs, part, leader_start, leader_end):
    log = ModelLog(start)
    for epoch in sorted(epochs):
        log.append_value(epoch, 0)
    state = FollowerState(log, LeaderEpoch(4), backoff_ms=1)
    asked = state.position(0, flushes_first=False)
    assert asked is not None
    steps = [
        state.handle_response(asked, part, 0),
        state.handle_ends(4, leader_start, leader_end, 0),
    ]
    for step in steps:
        if isinstance(step, Truncate):
            assert log.log_start_offset <= step.offset <= log.log_end_offset
        elif isinstance(step, StartOver):
            assert step.offset >= 0
        elif isinstance(step, FollowBounds):
            assert log.log_start_offset <= step.log_start_offset <= step.high_watermark
            assert log.high_watermark <= step.high_watermark <= log.log_end_offset
        else:
            assert step is None or isinstance(step, AppendRecords) or step == ()
    if isinstance(state.phase, Changing):
        state.changed(0)
    # The follower goes on, at once or after a while.
    state.refused(0)
    assert state.position(1, flushes_first=False) is not None
