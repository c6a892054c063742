"""A follower's requests to a leader, and its use of the responses."""

from collections import Counter
from typing import Any

import pytest

from klog_broker.replication import fetcher
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pyspark_klog.protocol.apis.list_offsets import ListOffsetsRequest
from tests.support.cluster.followers import (
    BACKOFF_MS,
    TOPIC,
    WAIT_MS,
    FetcherWorld,
    contents,
    topic_id,
)
from tests.support.cluster.replicas import ME, OTHER, THIRD, role_assignment, role_removal
from tests.support.log.harness import batch

BOTH = (ME, OTHER)


def following(count: int = 0, epoch: int = 0) -> FetcherWorld:
    """A follower of one partition, with all `count` records that the leader has."""
    world = FetcherWorld()
    world.model_leader.lead(epoch)
    for number in range(count):
        world.model_leader.append(epoch, value=b"%d" % number)
    world.follow(epoch)
    world.run()
    return world


def named(request: FetchRequest) -> list[tuple[int, int]]:
    """Partitions and offsets in a request."""
    return [(p.partition, p.fetch_offset) for topic in request.topics for p in topic.partitions]


def last_request(world: FetcherWorld) -> Any:
    return world.asks[-1].message if world.asks else world.requests[-1]


# --- what is copied ------------------------------------------------------------------------------
def test_a_follower_copies_what_the_leader_has_and_follows_its_watermark() -> None:
    world = following(5, epoch=3)
    assert contents(world.log()) == contents(world.model_leader.log())
    assert world.log().high_watermark == 5
    assert world.log().latest_epoch == 3
    first = world.requests[0]
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (ME, 33)
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert (first.max_wait_ms, first.min_bytes, first.max_bytes) == (WAIT_MS, 1, 10 << 20)
    part = first.topics[0].partitions[0]
    assert first.topics[0].topic_id == topic_id()
    assert (part.current_leader_epoch, part.last_fetched_epoch) == (3, -1)
    assert (part.log_start_offset, part.partition_max_bytes) == (0, 1 << 20)


def test_a_request_names_only_what_is_new() -> None:
    world = FetcherWorld()
    for number in range(3):
        world.model_leader.lead(0, number)
        world.follow(0, number)
    world.run()
    world.model_leader.append(0, number=1)
    world.run()
    assert world.requests[-1].session_id == 77
    assert named(world.asks[0].message) == []
    world.model_leader.append(0, number=2)
    world.model_leader.append(0, 2, number=0)
    world.answer()
    assert sorted(named(world.asks[0].message)) == [(0, 2), (2, 1)]


def test_what_lacks_of_what_the_leader_shows_is_the_lag() -> None:
    world = following(5)
    ((leader, followed),) = world.fetchers.followed()
    assert (leader, followed.lag) == (OTHER, 0)
    world.asks.popleft().answer(_only(PartitionData(high_watermark=12, records=b"")))
    world.turns()
    assert followed.lag == 7
    world.asks.popleft().answer(_only(PartitionData(error_code=6, high_watermark=-1)))
    world.turns()
    assert followed.lag == 7


def _only(part: PartitionData) -> FetchResponse:
    """Return a response with one part of partition 0, outside of a session."""
    topic = FetchableTopicResponse(topic_id=topic_id(), partitions=[part])
    return FetchResponse(session_id=77, responses=[topic])


def test_a_partition_that_is_stopped_is_forgotten() -> None:
    world = FetcherWorld()
    for number in range(2):
        world.model_leader.lead(0, number)
        world.follow(0, number)
    world.run()
    world.apply(role_removal(partition=TopicPartition(TOPIC, 0), topic_id=topic_id()))
    world.model_leader.append(0, number=1)
    world.answer()
    (forgotten,) = world.asks[0].message.forgotten_topics_data
    assert (forgotten.topic_id, forgotten.partitions) == (topic_id(), [0])
    # Without any partition there is no connection.
    world.apply(role_removal(partition=TopicPartition(TOPIC, 1), topic_id=topic_id()))
    assert world.connection.is_closed


def test_many_partitions_are_named_by_several_requests() -> None:
    world = FetcherWorld()
    world.apply(
        *(
            role_assignment(partition=TopicPartition(TOPIC, n), topic_id=topic_id(), leader=OTHER)
            for n in range(1_003)
        )
    )
    world.turns()
    assert len(named(world.asks[0].message)) == 1_000
    assert world.asks[0].message.max_wait_ms == 0
    world.asks.popleft().answer(FetchResponse(session_id=5))
    world.turns()
    assert len(named(world.asks[0].message)) == 3
    assert world.asks[0].message.max_wait_ms == WAIT_MS
    assert (world.asks[0].message.session_id, world.asks[0].message.session_epoch) == (5, 1)


def test_with_a_new_broker_epoch_a_follower_names_all_partitions_again() -> None:
    """The leader asks for a follower to join in the life in which it named the partition."""
    world = following(2)
    assert named(world.asks[0].message) == []
    world.broker_epoch = 44
    world.turns(after_ms=WAIT_MS)
    world.run()
    again = next(each for each in world.requests if each.replica_state.replica_epoch == 44)
    assert (again.session_id, again.session_epoch, named(again)) == (77, 0, [(0, 2)])


def test_without_a_session_each_fetch_names_all_partitions() -> None:
    world = FetcherWorld()
    world.model_leader.knows_sessions = False
    for number in range(2):
        world.model_leader.lead(0, number)
        world.follow(0, number)
    world.run()
    world.model_leader.append(0, number=1)
    for _ in range(3):
        world.answer()
    assert sorted(named(last_request(world))) == [(0, 0), (1, 1)]
    assert last_request(world).session_epoch == 0
    assert world.log(1).log_end_offset == 1


def test_without_a_session_a_partition_with_records_goes_behind_the_others() -> None:
    """A leader fills its responses in the order of the request, so a follower that is far behind
    would keep the other partitions waiting until it has everything."""
    world = FetcherWorld()
    world.model_leader.knows_sessions = False
    for number in range(4):
        world.model_leader.lead(0, number)
        world.follow(0, number)
    world.run()
    for number, behind in ((0, [1, 2, 3, 0]), (2, [1, 3, 0, 2]), (1, [3, 0, 2, 1])):
        world.model_leader.append(0, number=number)
        world.answer()
        assert [each for each, _ in named(last_request(world))] == behind


def many_without_a_session(monkeypatch: pytest.MonkeyPatch) -> FetcherWorld:
    """A hundred partitions, of which one request names 40 at most."""
    monkeypatch.setattr(fetcher, "MOST_NAMED", 10)
    monkeypatch.setattr(fetcher, "MOST_WHOLE", 40)
    world = FetcherWorld()
    world.model_leader.knows_sessions = False
    for number in range(100):
        world.model_leader.lead(0, number)
        world.follow(0, number)
    world.run()
    return world


def test_without_a_session_many_partitions_are_named_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = many_without_a_session(monkeypatch)
    for number in (0, 55, 99):
        world.model_leader.append(0, number=number)
    seen = len(world.requests)
    waits = set()
    for _ in range(20):
        if world.answer():
            waits.add(world.asks[0].message.max_wait_ms)
    requests = world.requests[seen:]
    counts = [len(named(each)) for each in requests]
    assert max(counts) <= 40
    times = Counter(number for each in requests for number, _ in named(each))
    assert set(times) == set(range(100)), "none is left out"
    assert max(times.values()) - min(times.values()) <= 2, "nor comes first"
    for number in (0, 55, 99):
        assert world.log(number).log_end_offset == 1
    # The leader must not hold the response all the time, because that delays other partitions.
    assert waits == {WAIT_MS * 40 // 100}


def test_a_session_that_is_granted_late_holds_all(monkeypatch: pytest.MonkeyPatch) -> None:
    world = many_without_a_session(monkeypatch)
    world.model_leader.knows_sessions = True
    for _ in range(20):
        world.answer()
    assert len(world.model_leader.session) == 100
    assert named(last_request(world)) == []
    assert last_request(world).max_wait_ms == WAIT_MS
    world.model_leader.append(0, number=77)
    world.run()
    assert world.log(77).log_end_offset == 1


def test_the_log_start_is_followed_and_reported() -> None:
    world = following(4)
    world.model_leader.log().delete_records_before(3)
    world.run()
    assert world.log().log_start_offset == 3
    part = world.model_leader.session[topic_id(), 0]
    assert (part.fetch_offset, part.log_start_offset) == (4, 3)


# --- failures ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
def test_a_session_error_begins_a_new_session_at_once_but_not_again_and_again(
    error: ErrorCode,
) -> None:
    world = following(2)
    for _ in range(2):
        world.asks.popleft().answer(FetchResponse(error_code=error))
        world.turns()
        if world.asks:
            request = world.asks[0].message
            kept = 0 if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND else 77
            assert (request.session_id, request.session_epoch) == (kept, 0)
            assert named(request) == [(0, 2)]
    assert not world.asks
    world.turns(after_ms=BACKOFF_MS - 1)
    assert not world.asks
    world.turns(after_ms=1)
    world.model_leader.append(0)
    world.run()
    assert world.log().log_end_offset == 3


def test_after_a_lost_connection_all_wait_the_backoff_and_begin_a_new_session() -> None:
    world = following(2)
    world.asks.popleft().fail()
    world.model_leader.append(0)
    world.turns(after_ms=BACKOFF_MS - 1)
    assert not world.asks
    world.turns(after_ms=1)
    assert world.asks[0].message.session_epoch == 0
    world.run()
    assert world.log().log_end_offset == 3


def test_a_partition_with_an_error_waits_while_the_others_go_on() -> None:
    world = FetcherWorld()
    for number in range(2):
        world.model_leader.lead(0, number)
    world.model_leader.refuses[topic_id(), 0] = ErrorCode.UNKNOWN_TOPIC_ID
    for number in range(2):
        world.follow(0, number)
    world.run()
    world.model_leader.append(0, number=1)
    world.model_leader.append(0, number=0)
    world.model_leader.refuses.clear()
    world.run()
    assert (world.log(0).log_end_offset, world.log(1).log_end_offset) == (0, 1)
    world.turns(after_ms=BACKOFF_MS)
    world.answer()  # the request that was held
    world.run()
    assert world.log(0).log_end_offset == 1


@pytest.mark.parametrize(
    "error", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER]
)
def test_a_leader_whose_role_comes_later_gets_a_fetch_again_soon(error: ErrorCode) -> None:
    """The follower tries again ever less often while the leader does not respond."""
    world = FetcherWorld()
    world.model_leader.lead(0)
    world.model_leader.refuses[topic_id(), 0] = error
    world.follow(0)
    world.run()
    for wait_ms in (40, 80):
        world.turns(after_ms=wait_ms - 1)
        assert not world.asks
        world.turns(after_ms=1)
        world.run()
    world.model_leader.refuses.clear()
    world.model_leader.append(0)
    world.turns(after_ms=160)
    world.run()
    assert contents(world.log()) == contents(world.model_leader.log())


def test_a_leader_of_a_newer_epoch_gets_no_fetch_before_a_role_change() -> None:
    world = following(2)
    world.model_leader.append(4)
    world.answer()
    world.turns(after_ms=10 * BACKOFF_MS)
    assert not world.asks
    world.follow(4)
    world.run()
    assert contents(world.log()) == contents(world.model_leader.log())


def test_a_leader_with_another_address_is_asked_there() -> None:
    world = following(1)
    del world.addresses[OTHER]
    world.fetchers.brokers_changed()
    assert world.connection.is_closed
    world.turns(after_ms=BACKOFF_MS)
    assert len(world.connections) == 1
    world.addresses[OTHER] = ("elsewhere", 1)
    world.fetchers.brokers_changed()
    world.model_leader.append(0)
    world.run()
    assert world.connection.address == ("elsewhere", 1)
    assert world.log().log_end_offset == 2


def test_a_request_to_the_old_address_holds_up_nothing_at_the_new_one() -> None:
    world = following(1)
    assert len(world.asks) == 1
    world.addresses[OTHER] = ("elsewhere", 1)
    world.fetchers.brokers_changed()
    world.turns()
    assert world.connections[0].is_closed
    assert world.connection.address == ("elsewhere", 1)
    assert named(world.asks[0].message) == [(0, 1)]


def test_without_a_leader_nothing_is_fetched() -> None:
    world = following(1)
    world.follow(1, leader=-1)  # type: ignore[arg-type]
    assert world.connection.is_closed
    world.turns(after_ms=BACKOFF_MS)
    assert len(world.connections) == 1


def test_a_new_leader_ignores_responses_of_an_earlier_leader() -> None:
    world = following(1)
    world.model_leader.append(0)
    ask = world.asks[0]
    response = world.model_leader.fetched(ask.message)
    assert response is not None
    given = role_assignment(1, topic_id=topic_id(), leader=ME, replicas=BOTH, in_sync=(ME,))
    # The response arrives in the turn of the role change, before any callback could run.
    world.replicas.apply([given], lambda _: None)
    ask.answer(response)
    world.turns()
    assert world.log().log_end_offset == 1


def test_the_same_leader_in_the_same_epoch_is_followed_on() -> None:
    world = following(1)
    world.apply(
        role_assignment(0, 1, topic_id=topic_id(), leader=OTHER, replicas=BOTH, in_sync=BOTH)
    )
    assert len(world.asks) == 1
    world.follow(1, leader=THIRD)
    assert [each.address[0] for each in world.connections] == ["other", "third"]


# --- logs that part ------------------------------------------------------------------------------
def test_what_the_leader_does_not_have_is_cut_off_and_never_what_it_has() -> None:
    world = following(3)
    # This broker led in epoch 1, and nobody copied that; the other one went on in epoch 2.
    mine = role_assignment(1, topic_id=topic_id(), leader=ME, replicas=BOTH, in_sync=BOTH)
    assert world.apply(mine) == {}
    world.replicas.led[TopicPartition(TOPIC, 0)].append(
        batch(4, value=b"lost"), acks_all=False, now_ms=1
    )
    for _ in range(2):
        world.model_leader.append(2, value=b"kept")
    world.follow(2)
    world.run()
    assert contents(world.log()) == contents(world.model_leader.log())
    assert world.log().high_watermark == 5


def test_a_log_that_ends_before_the_leaders_start_restarts_there() -> None:
    world = FetcherWorld()
    for _ in range(6):
        world.model_leader.append(0)
    world.model_leader.log().delete_records_before(4)
    world.follow()
    world.run()
    assert [type(each) for each in world.requests[:3]] == [
        FetchRequest,
        ListOffsetsRequest,
        ListOffsetsRequest,
    ]
    assert world.log().log_start_offset == 4
    assert contents(world.log()) == contents(world.model_leader.log())


def test_a_leader_that_starts_within_a_batch_is_followed_from_the_batchs_begin() -> None:
    world = FetcherWorld()
    world.model_leader.append(0, 5)
    world.model_leader.append(0, 5)
    world.model_leader.log().delete_records_before(7)
    world.follow()
    world.run()
    assert (world.log().log_start_offset, world.log().log_end_offset) == (7, 10)
    assert contents(world.log()) == contents(world.model_leader.log())


def test_a_log_truncated_within_the_leaders_first_batch_restarts_with_it() -> None:
    world = following(2)
    mine = role_assignment(1, topic_id=topic_id(), leader=ME, replicas=BOTH, in_sync=BOTH)
    world.apply(mine)
    world.replicas.led[TopicPartition(TOPIC, 0)].append(batch(4), acks_all=False, now_ms=1)
    world.model_leader.append(2, 8)
    world.model_leader.log().delete_records_before(4)
    world.follow(2)
    for _ in range(5):
        world.run()
        world.turns(after_ms=BACKOFF_MS)
    assert (world.log().log_start_offset, world.log().log_end_offset) == (4, 10)
    assert contents(world.log()) == contents(world.model_leader.log())


def test_a_log_that_ends_behind_the_leaders_is_truncated_without_a_diverging_epoch() -> None:
    world = following(5)
    world.model_leader.log().start_over_async(2, 0, lambda _: None)
    world.model_leader.lead(0)
    world.model_leader.append(1)
    world.follow(1)
    world.run()
    world.turns(after_ms=BACKOFF_MS)
    world.run()
    assert contents(world.log())[-2:] == contents(world.model_leader.log())
    assert world.log().log_end_offset == 3


def test_role_changes_wait_for_a_truncation() -> None:
    world = following(3)
    mine = role_assignment(1, topic_id=topic_id(), leader=ME, replicas=BOTH, in_sync=BOTH)
    world.apply(mine)
    world.replicas.led[TopicPartition(TOPIC, 0)].append(batch(2), acks_all=False, now_ms=1)
    world.model_leader.lead(2)
    world.follow(2)
    world.run(works=False)
    world.answer()
    assert world.log().is_being_cut
    results: list[Any] = []
    again = role_assignment(3, topic_id=topic_id(), leader=ME, replicas=BOTH, in_sync=(ME,))
    world.replicas.apply([again], results.append)
    world.turns()
    assert not results
    world.helpers.run_all()
    world.turns()
    world.helpers.run_all()
    assert results == [{}]
    assert world.log().log_end_offset == 3
    leader = world.replicas.led[TopicPartition(TOPIC, 0)]
    leader.append(batch(1), acks_all=False, now_ms=1)
    assert world.log().log_end_offset == 4


def test_a_log_that_is_deleted_while_it_is_cut_is_deleted_after_it() -> None:
    world = following(3)
    world.log().start_over_async(9, 0, lambda _: None)
    results: list[Any] = []
    world.replicas.apply([role_removal(1, topic_id=topic_id())], results.append)
    world.turns()
    assert world.logs.get(TopicPartition(TOPIC, 0)) is not None
    for _ in range(3):
        world.helpers.run_all()
        world.turns()
    assert results == [{}]
    assert world.logs.get(TopicPartition(TOPIC, 0)) is None


# --- flushes -------------------------------------------------------------------------------------
def test_records_that_must_be_flushed_are_not_reported_before_that() -> None:
    world = FetcherWorld()
    world.flush_each_message()
    world.model_leader.append(0, 2)
    world.follow()
    world.helpers.run_all()
    world.turns()
    world.answer()
    assert world.log().log_end_offset == 2
    assert world.log().flushed_offset == 0
    assert not world.asks, "the next request would say that this broker has the records"
    world.helpers.run_all()
    world.turns()
    assert named(world.asks[0].message) == [(0, 2)]


def test_a_slow_flush_does_not_hold_up_other_partitions_for_long() -> None:
    world = FetcherWorld()
    world.flush_each_message()
    for number in range(2):
        world.model_leader.lead(0, number)
        world.follow(0, number)
    world.run()
    world.model_leader.append(0, number=1)
    world.answer()
    assert not world.asks
    world.turns(after_ms=WAIT_MS)
    (forgotten,) = world.asks[0].message.forgotten_topics_data
    assert forgotten.partitions == [1]
    world.helpers.run_all()
    world.model_leader.append(0, number=0)
    world.run()
    assert world.log(0).log_end_offset == 1
    assert (world.model_leader.session[topic_id(), 1].fetch_offset) == 1


# --- after a restart -----------------------------------------------------------------------------
def test_a_restart_begins_with_the_watermark_of_the_checkpoint_and_cuts_nothing_to_it() -> None:
    world = following(3)
    log = world.log()
    log.flush()
    world.logs._housekeeping._checkpoint_watermarks()
    world.helpers.run_all()
    world.model_leader.append(0)
    world.run()
    log.flush()
    world.logs.sync_recovery_points()
    leader = world.model_leader
    world = FetcherWorld(world.files.killed())
    assert (world.log().high_watermark, world.log().log_end_offset) == (3, 4)
    world.model_leader = leader
    world.follow()
    assert world.log().log_end_offset == 4
    world.run()
    assert named(world.requests[0]) == [(0, 4)]
    assert world.log().high_watermark == 4


# --- leaders that lie ----------------------------------------------------------------------------
def damaged() -> bytes:
    records = bytearray(batch(2))
    records[-1] ^= 1
    return bytes(records)


def with_fields(first_offset: int, epoch: int) -> bytes:
    records = bytearray(batch(2))
    records[:8] = first_offset.to_bytes(8, "big", signed=True)
    records[12:16] = epoch.to_bytes(4, "big", signed=True)
    return bytes(records)


@pytest.mark.parametrize(
    "records",
    [
        damaged(),
        b"\xff" * 200,
        with_fields(2, 0),
        with_fields(0, 0),
        with_fields(1 << 62, 0),
        with_fields(-9, 0),
        with_fields(3, 9),
        with_fields(3, 0)[:40],
        with_fields(3, 0) + damaged(),
        b"\0" * 70,
    ],
)
def test_wrong_records_change_nothing_and_are_asked_for_again(records: bytes) -> None:
    world = following(3)
    before = contents(world.log())

    def lie(_key: Any, data: PartitionData) -> PartitionData:
        data.records = records
        return data

    world.model_leader.part_of = lie
    world.answer()
    world.turns()
    assert contents(world.log()) == before
    world.model_leader.part_of = lambda _, data: data
    world.model_leader.append(0)
    world.turns(after_ms=BACKOFF_MS)
    world.run()
    world.turns(after_ms=BACKOFF_MS)
    world.run()
    assert contents(world.log()) == contents(world.model_leader.log())


@pytest.mark.parametrize(
    "fields",
    [
        {"partition_index": 9},
        {"partition_index": -1},
        {"high_watermark": 1 << 62, "log_start_offset": 1 << 62},
        {"high_watermark": -(1 << 62), "log_start_offset": -1},
        {"error_code": 12_345},
        {"error_code": -1},
    ],
)
def test_impossible_answers_harm_nothing(fields: dict[str, int]) -> None:
    world = following(3)

    def lie(_key: Any, data: PartitionData) -> PartitionData:
        for name, value in fields.items():
            setattr(data, name, value)
        return data

    world.model_leader.part_of = lie
    world.model_leader.append(0)
    world.answer()
    world.model_leader.part_of = lambda _, data: data
    world.turns(after_ms=BACKOFF_MS)
    world.run()
    assert world.log().log_end_offset == 4
    assert 0 <= world.log().log_start_offset <= world.log().high_watermark <= 4


@pytest.mark.parametrize(
    ("epoch", "end_offset"), [(9, 0), (0, 7), (0, 3), (-1, 2), (-5, -5), (1 << 30, 1 << 62)]
)
def test_a_divergence_that_cannot_be_is_not_believed(epoch: int, end_offset: int) -> None:
    world = following(3)

    def lie(_key: Any, data: PartitionData) -> PartitionData:
        data.diverging_epoch.epoch, data.diverging_epoch.end_offset = epoch, end_offset
        return data

    world.model_leader.part_of = lie
    world.answer()
    world.helpers.run_all()
    world.turns()
    assert world.log().log_end_offset == 3
