"""A follower's requests to its leader, and its use of the responses."""

from collections.abc import Iterable

import pytest

from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.read.read_results import EpochEndOffset
from klog_broker.replication.follower_state import (
    AppendRecords,
    AskEnds,
    Delayed,
    FetchedPart,
    Fetching,
    FetchPosition,
    FollowBounds,
    FollowedLog,
    FollowerState,
    StartOver,
    Superseded,
    Truncate,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import LeaderEpoch, Offset
from tests.support.cluster.replicas import ReplicaWorld
from tests.support.replication.log_model import ModelLog

EPOCH = LeaderEpoch(4)
BACKOFF_MS = 10
NOTHING = memoryview(b"")


def log_of(epochs: Iterable[int], start: int = 0) -> ModelLog:
    """A log with a record of each of these epochs."""
    log = ModelLog(start)
    for epoch in epochs:
        log.append_value(epoch, 0)
    return log


def follower(log: ModelLog) -> FollowerState:
    return FollowerState(log, EPOCH, backoff_ms=BACKOFF_MS)


def asked(state: FollowerState, now_ms: int = 0) -> FetchPosition:
    found = state.position(now_ms, flushes_first=False)
    assert found is not None
    return found


def part(
    error: ErrorCode = ErrorCode.NONE,
    *,
    records: memoryview = NOTHING,
    watermark: int = 0,
    start: int = 0,
    diverging: tuple[int, int] | None = None,
) -> FetchedPart:
    told = (
        None
        if diverging is None
        else EpochEndOffset(LeaderEpoch(diverging[0]), Offset(diverging[1]))
    )
    return FetchedPart(error, records, watermark, start, told)


def test_a_partitions_log_is_one_that_can_follow() -> None:
    log: PartitionLog = ReplicaWorld().lead().log
    followed: FollowedLog = log
    state = FollowerState(followed, EPOCH, backoff_ms=BACKOFF_MS)
    assert asked(state) == (EPOCH, log.log_end_offset, log.latest_epoch)


def test_it_asks_from_its_end_with_its_last_epoch_and_appends_what_comes() -> None:
    leaders, log = log_of((1, 1, 3, 3, 4)), log_of((1, 1, 3))
    state = follower(log)
    position = asked(state)
    assert position == (4, 3, 3)
    told = part(records=leaders.read(3, 2), watermark=4, start=1)
    step = state.handle_response(position, told, 0)
    assert step == AppendRecords(told.records)
    log.append_as_follower(told.records, state.leader_epoch)
    assert state.appended(told) == FollowBounds(Offset(4), Offset(1))
    assert asked(state) == (4, 5, 4)


def test_the_watermark_and_the_start_go_no_further_than_its_own_log() -> None:
    log = log_of((1, 1, 1))
    log.high_watermark = Offset(2)
    state = follower(log)
    take = state.handle_response(asked(state), part(watermark=9, start=5), 0)
    assert take == FollowBounds(Offset(3), Offset(3))
    # A leader that has just been elected may know of less than its followers do.
    assert state.handle_response(asked(state), part(watermark=1), 0) == FollowBounds(
        Offset(2), Offset(0)
    )
    assert state.handle_response(asked(state), part(watermark=-1, start=-1), 0) == (2, 0)


def test_with_flush_messages_its_fetch_waits_for_the_flush() -> None:
    log = log_of((1, 1))
    state = follower(log)
    assert state.position(0, flushes_first=True) is None
    assert state.position(0, flushes_first=False) is not None
    log.flush()
    assert state.position(0, flushes_first=True) == (4, 2, 1)


@pytest.mark.parametrize(
    ("epochs", "diverging", "offset"),
    [
        ((1, 1, 1), (1, 2), 2),  # the epoch ended earlier at the leader
        ((1, 3, 3), (1, 2), 1),  # it ended earlier here, and another began
        ((1, 1, 3), (1, 1), 1),
        ((1, 3, 3), (2, 2), 1),  # the follower lacks the epoch: all newer records are cut
        ((3, 3, 3), (1, 2), 0),  # all of the log is newer
    ],
)
def test_a_log_that_differs_is_cut_where_the_two_part(
    epochs: tuple[int, ...], diverging: tuple[int, int], offset: int
) -> None:
    log = log_of(epochs)
    log.high_watermark = Offset(3)  # does not influence where the logs diverge
    state = follower(log)
    step = state.handle_response(asked(state), part(diverging=diverging, watermark=3), 0)
    assert step == Truncate(Offset(offset))
    assert state.position(0, flushes_first=False) is None
    log.truncate(offset)
    assert state.changed(0) is None
    assert asked(state).offset == offset


def test_an_epoch_without_a_record_is_dropped() -> None:
    """The former leader appended nothing in its epoch."""
    log = log_of((1, 1))
    log.epochs.add_epoch(3, 2)
    state = follower(log)
    assert asked(state) == (4, 2, 3)
    assert state.handle_response(asked(state), part(diverging=(1, 5)), 0) == Truncate(Offset(2))
    log.truncate(2)
    assert state.changed(0) is None
    assert asked(state) == (4, 2, 1)


def test_a_log_that_differs_from_its_start_on_is_restarted() -> None:
    log = log_of((3, 3), start=5)
    state = follower(log)
    assert state.handle_response(asked(state), part(diverging=(1, 4)), 0) == StartOver(Offset(4))


@pytest.mark.parametrize("diverging", [(4, 2), (5, 1), (3, 3), (3, 9), (-1, 2), (2, -1)])
def test_a_divergence_that_makes_no_sense_changes_nothing(diverging: tuple[int, int]) -> None:
    state = follower(log_of((1, 1, 3)))
    assert state.handle_response(asked(state), part(diverging=diverging), 0) is None
    assert state.phase == Delayed(BACKOFF_MS)


def test_a_cut_that_changed_nothing_is_not_repeated_at_once() -> None:
    state = follower(log_of((1, 1, 3)))
    assert state.handle_response(asked(state), part(diverging=(1, 2)), 0) == Truncate(Offset(2))
    assert state.changed(5) is None
    assert state.phase == Delayed(5 + BACKOFF_MS)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_after_an_error_it_waits_and_asks_again(error: ErrorCode) -> None:
    state = follower(log_of((1,)))
    assert state.handle_response(asked(state), part(error), 100) is None
    assert state.phase == Delayed(100 + BACKOFF_MS)
    assert state.position(109, flushes_first=False) is None
    assert asked(state, 110) == (4, 1, 1)


def test_a_leader_without_its_role_gets_a_fetch_again_soon_and_then_ever_later() -> None:
    state = FollowerState(log_of((1,)), EPOCH, backoff_ms=100)
    waits, now_ms = [], 0

    def refuse() -> None:
        nonlocal now_ms
        state.handle_response(asked(state, now_ms), part(ErrorCode.NOT_LEADER_OR_FOLLOWER), now_ms)
        assert isinstance(state.phase, Delayed)
        waits.append(state.phase.until_ms - now_ms)
        now_ms = state.phase.until_ms

    for _ in range(4):
        refuse()
    assert waits == [40, 80, 100, 100]
    state.handle_response(asked(state, now_ms), part(), now_ms)
    refuse()
    assert waits[-1] == 40, "the leader has answered since"


def test_a_leader_of_a_later_epoch_is_not_asked_again() -> None:
    state = follower(log_of((1,)))
    assert state.handle_response(asked(state), part(ErrorCode.FENCED_LEADER_EPOCH), 0) is None
    assert state.phase == Superseded()
    assert state.position(1 << 40, flushes_first=False) is None


def test_records_that_the_log_refuses_are_asked_for_again_later() -> None:
    state = follower(log_of((1,)))
    step = state.handle_response(asked(state), part(records=log_of((1, 4)).read(1, 1)), 0)
    assert isinstance(step, AppendRecords)
    state.refused(0)
    assert asked(state, BACKOFF_MS).offset == 1


def test_an_answer_to_an_earlier_fetch_changes_nothing() -> None:
    log = log_of((1,))
    state = follower(log)
    position = asked(state)
    log.append_value(4, 0)
    for told in (part(ErrorCode.OFFSET_OUT_OF_RANGE), part(diverging=(0, 0)), part(watermark=1)):
        assert state.handle_response(position, told, 0) is None
    assert state.phase == Fetching()
    position = asked(state)
    state = FollowerState(log, LeaderEpoch(5), backoff_ms=BACKOFF_MS)
    assert state.handle_response(position, part(ErrorCode.FENCED_LEADER_EPOCH), 0) is None
    assert state.phase == Fetching()


def test_a_cleaned_log_restarts_if_it_loses_records_that_its_cleaner_used() -> None:
    log = log_of((1, 1, 2, 3), start=5)
    log.compacted_before = Offset(7)
    for epoch, end in ((2, 8), (1, 7)):
        state = follower(log)
        assert state.handle_response(asked(state), part(diverging=(epoch, end)), 0) == Truncate(
            Offset(end)
        )
    state = follower(log)
    assert state.handle_response(asked(state), part(diverging=(1, 6)), 0) == StartOver(Offset(5))
    log.start_over(5)
    log.compacted_before = Offset(5)
    assert state.changed(0) is None
    assert asked(state) == (4, 5, -1)
    assert state.handle_response(asked(state), part(ErrorCode.OFFSET_OUT_OF_RANGE), 0) == AskEnds()
    assert state.handle_ends(4, 0, 3, 0) == StartOver(Offset(3))


# --- out of range --------------------------------------------------------------------------------
def out_of_range(log: ModelLog) -> FollowerState:
    state = follower(log)
    assert state.handle_response(asked(state), part(ErrorCode.OFFSET_OUT_OF_RANGE), 0) == AskEnds()
    assert state.position(1 << 40, flushes_first=False) is None
    return state


def test_a_log_below_the_leaders_start_restarts_there() -> None:
    log = log_of((1, 1))
    state = out_of_range(log)
    assert state.handle_ends(4, 7, 9, 0) == StartOver(Offset(7))
    log.start_over(7)
    assert state.changed(0) is None
    assert asked(state) == (4, 7, -1)


def test_past_the_leaders_end_it_is_cut_there() -> None:
    assert out_of_range(log_of((1, 1, 1))).handle_ends(4, 0, 2, 0) == Truncate(Offset(2))
    assert out_of_range(log_of((1,), start=5)).handle_ends(4, 0, 2, 0) == StartOver(Offset(2))


def test_out_of_range_for_a_moment_only_it_asks_again() -> None:
    state = out_of_range(log_of((1, 1)))
    assert state.handle_ends(4, 2, 2, 0) is None
    assert asked(state, BACKOFF_MS).offset == 2


def test_the_ends_of_another_leader_are_not_taken() -> None:
    state = out_of_range(log_of((1, 1)))
    assert state.handle_ends(3, 7, 9, 0) is None
    state = follower(log_of((1, 1)))
    assert state.handle_ends(4, 7, 9, 0) is None  # no request was sent
    assert asked(state) == (4, 2, 1)


@pytest.mark.parametrize("ends", [(-1, 5), (3, 1), (-1, -1), (0, -1)])
def test_ends_that_make_no_sense_change_nothing(ends: tuple[int, int]) -> None:
    state = out_of_range(log_of((1, 1)))
    assert state.handle_ends(4, *ends, 0) is None
    assert state.phase == Delayed(BACKOFF_MS)


def test_end_offsets_that_the_leader_refused_are_requested_again() -> None:
    state = out_of_range(log_of((1, 1)))
    state.refused(0)
    assert asked(state, BACKOFF_MS).offset == 2


def test_a_leader_that_starts_within_a_batch_is_followed_from_the_batchs_start() -> None:
    log = ModelLog(7)
    state = follower(log)
    position = asked(state)
    told = part(records=log_of((1, 1, 1), start=5).read(5, 3), watermark=8, start=7)
    assert state.handle_response(position, told, 0) == StartOver(Offset(5))
    log.start_over(5)
    assert state.changed(0) == AppendRecords(told.records)
    log.append_as_follower(told.records, state.leader_epoch)
    assert state.appended(told) == FollowBounds(Offset(8), Offset(7))
