"""A leader with followers, over the wire: watermark, in-sync set, acks=all, refused requests."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from klog_broker.fetch.follower_fetch import followers_on, no_followers
from klog_broker.fetch.reader import FetchReader
from klog_broker.lifecycle.shutdown import Shutdown
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pyspark_klog.protocol.apis.fetch import FetchRequest
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pyspark_klog.protocol.apis.produce import ProduceRequest
from tests.support.api.session_client import SessionClient
from tests.support.cluster.broker import ME, answer_of
from tests.support.cluster.leading_broker import (
    ALL,
    LONG_MS,
    OTHER,
    THIRD,
    FakeFollower,
    LeadingBroker,
)
from tests.support.raw_requests import fetch_request

LAG_MS = 30_000
LATEST = -1


@pytest.fixture
def leader() -> LeadingBroker:
    """A leader with all three replicas in sync."""
    made = LeadingBroker()
    made.lead()
    return made


def names(answer: Any) -> str:
    return ErrorCode(answer.error_code).name


# --- what followers fetch ------------------------------------------------------------------------
def test_the_watermark_is_where_the_slowest_in_sync_is(leader: LeadingBroker) -> None:
    one, two = FakeFollower(leader, OTHER), FakeFollower(leader, THIRD)
    for _ in range(3):
        leader.send(acks=1)
    told = one.fetch(0)
    assert (told.high_watermark, names(told), len(told.records_view()) > 0) == (0, "NONE", True)
    assert one.fetch(3) is None, "nothing has changed"
    assert two.fetch(2).high_watermark == 2, "the answer says what follows from the fetch"
    assert leader.log().high_watermark == 2
    two.fetch(3)
    assert leader.log().high_watermark == 3
    assert one.fetch(), "what has moved since is told"
    assert one.fetch() is None


def test_a_fetch_that_waits_ends_with_records_and_not_with_the_watermark(
    leader: LeadingBroker,
) -> None:
    one, two = FakeFollower(leader, OTHER), FakeFollower(leader, THIRD)
    leader.send(acks=1)
    two.fetch(1)
    one.fetch(0)
    one.send(1, wait_ms=LONG_MS)
    progress = leader.leader().replicas.followers[OTHER]
    two.fetch(1)
    assert leader.log().high_watermark == 1
    assert not one.has_answer()
    leader.send(acks=1)
    told = one.answer()
    assert (told.high_watermark, len(told.records_view()) > 0) == (1, True)
    assert leader.leader().replicas.followers[OTHER] is progress, "it came once, and counts once"


def test_a_follower_that_another_partition_waits_for_is_not_held(leader: LeadingBroker) -> None:
    one, two = FakeFollower(leader, OTHER), FakeFollower(leader, THIRD)
    for each in (one, two):
        each.fetch(0)
        each.send(wait_ms=LONG_MS)
        assert not each.has_answer()
    leader.assign_role(
        "flushed", (ME, OTHER), leader_epoch=leader.leader("flushed").leader_epoch + 1
    )
    leader.memory.turns()
    assert one.answer() is None
    assert not two.has_answer(), "it is not in sync there"
    one.send(wait_ms=LONG_MS)
    assert not one.has_answer(), "it has not heard of it yet, and asks again and again"
    leader.memory.pass_time(20)
    assert one.answer() is None
    one.fetch(leader.log("flushed").log_end_offset, "flushed")
    one.send(wait_ms=LONG_MS)
    leader.memory.pass_time(1_000)
    assert not one.has_answer(), "it follows"


@pytest.mark.parametrize("why", ["it is late", "the leadership is over"])
def test_a_follower_that_does_not_come_is_held_as_it_asks(leader: LeadingBroker, why: str) -> None:
    one = FakeFollower(leader, OTHER)
    one.fetch(0)
    leader.assign_role("flushed", leader_epoch=leader.leader("flushed").leader_epoch + 1)
    if why == "it is late":
        leader.memory.pass_time(2_001)
    else:
        leader.resign("flushed")
    one.send(wait_ms=LONG_MS)
    leader.memory.pass_time(1_000)
    assert not one.has_answer()


def test_followers_read_to_the_end_whatever_isolation_they_ask_for(leader: LeadingBroker) -> None:
    leader.send(acks=1)
    consumer = fetch_request("plain", max_wait_ms=0)
    answer = answer_of(leader.memory.send(consumer, 12), FetchRequest(), 12)
    assert not answer.responses[0].partitions[0].records
    assert len(FakeFollower(leader, OTHER).fetch(0).records_view()) > 0


def test_changes_of_the_set_are_counted(leader: LeadingBroker) -> None:
    counts = leader.services.in_sync_counts
    leader.lead(in_sync=(ME,))
    FakeFollower(leader, OTHER).fetch(0)
    leader.grant(ErrorCode.INELIGIBLE_REPLICA)
    FakeFollower(leader, OTHER).fetch(0)
    leader.grant()
    assert (counts.expanded, counts.shrunk, counts.refused) == (1, 0, 1)
    leader.send(acks=1)
    leader.memory.pass_time(2 * LAG_MS)
    leader.grant()
    assert (counts.expanded, counts.shrunk, counts.refused) == (1, 1, 1)
    # The controller made the change, but its response was lost: the repeated request changes
    # nothing, and does not count.
    FakeFollower(leader, OTHER).fetch(1)
    leader.answer(None)
    leader.memory.pass_time(60)
    leader.grant()
    assert (counts.expanded, counts.shrunk, counts.refused) == (2, 1, 1)


@pytest.mark.parametrize(
    ("number", "fields", "code"),
    [
        (OTHER, {"leader_epoch": 0}, "FENCED_LEADER_EPOCH"),
        (OTHER, {"leader_epoch": 99}, "UNKNOWN_LEADER_EPOCH"),
        (OTHER, {"leader_epoch": -1}, "NOT_LEADER_OR_FOLLOWER"),
        (BrokerId(9), {}, "UNKNOWN_LEADER_EPOCH"),
        (OTHER, {"offset": 2}, "OFFSET_OUT_OF_RANGE"),
    ],
)
def test_a_refused_fetch_is_no_progress(
    leader: LeadingBroker, number: BrokerId, fields: dict[str, int], code: str
) -> None:
    leader.send(acks=1)
    before = dict(leader.leader().replicas.followers)
    follower = FakeFollower(leader, number, 500)
    assert names(follower.fetch(**{"offset": 1, **fields})) == code
    assert leader.leader().replicas.followers == before


def test_an_earlier_broker_epoch_of_a_follower_is_refused(leader: LeadingBroker) -> None:
    FakeFollower(leader, OTHER, 80).fetch(0)
    leader.send(acks=1)
    assert names(FakeFollower(leader, OTHER, 79).fetch(1)) == "NOT_LEADER_OR_FOLLOWER"
    assert leader.leader().replicas.followers[OTHER].log_end_offset == 0


def test_only_the_listener_of_the_brokers_takes_followers(leader: LeadingBroker) -> None:
    leader.services.follower_refusal = followers_on("INSIDE")
    assert names(FakeFollower(leader, OTHER).fetch(0)) == "TOPIC_AUTHORIZATION_FAILED"


def test_a_standalone_broker_takes_no_followers(leader: LeadingBroker) -> None:
    leader.services.follower_refusal = no_followers
    assert names(FakeFollower(leader, OTHER).fetch(0)) == "NOT_LEADER_OR_FOLLOWER"


def test_a_follower_whose_log_differs_gets_the_diverging_epoch(leader: LeadingBroker) -> None:
    leader.send(acks=1)
    old = leader.leader().leader_epoch
    leader.lead()
    leader.send(acks=1)
    told = FakeFollower(leader, OTHER).fetch(2, last_epoch=old)
    assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (old, 1)
    assert not told.records_view()
    assert leader.leader().replicas.followers[OTHER].log_end_offset == -1


def test_before_the_logs_start_nothing_is_said_of_epochs(leader: LeadingBroker) -> None:
    for _ in range(2):
        leader.send(acks=1)
    leader.lead()
    unknown = leader.leader().leader_epoch
    leader.lead()
    leader.send(acks=1)
    for number in (OTHER, THIRD):
        FakeFollower(leader, number).fetch(3)
    leader.log().delete_records_before(1)
    follower = FakeFollower(leader, OTHER)
    assert follower.fetch(1, last_epoch=unknown).diverging_epoch.end_offset == 2
    told = follower.fetch(0, last_epoch=unknown)
    assert (names(told), told.diverging_epoch.epoch) == ("OFFSET_OUT_OF_RANGE", -1)


def test_the_same_fetch_once_more_counts_once_more(leader: LeadingBroker) -> None:
    """An older broker fetches without a session: state of the last request is not reused."""
    follower = FakeFollower(leader, OTHER)
    follower.version = 14
    for offset in range(5):
        follower.session_epoch = -1
        follower.fetch(offset)
        assert leader.leader().replicas.followers[OTHER].log_end_offset == offset
        leader.send(acks=1)


def test_in_a_new_epoch_a_follower_gets_the_watermark_again(leader: LeadingBroker) -> None:
    """The last response may have arrived after the role change, so that it was dropped."""
    follower = FakeFollower(leader, OTHER)
    assert follower.fetch(0).high_watermark == 0
    assert follower.fetch(0) is None
    leader.lead()
    assert follower.fetch(0).high_watermark == 0
    assert follower.fetch(0) is None


@pytest.mark.parametrize("is_session_new", [True, False])
def test_a_follower_that_had_to_truncate_gets_the_watermark_again(
    leader: LeadingBroker, is_session_new: bool
) -> None:
    """A follower ignores all else in a response that makes it truncate its log."""
    leader.send(acks=1)
    old = leader.leader().leader_epoch
    leader.lead()
    follower = FakeFollower(leader, OTHER)
    if not is_session_new:
        assert follower.fetch(1, last_epoch=old).high_watermark == 0
        assert follower.fetch(1, last_epoch=old) is None
    assert follower.fetch(2, last_epoch=old).diverging_epoch.end_offset == 1
    assert follower.fetch(1, last_epoch=old).high_watermark == 0
    assert follower.fetch(1, last_epoch=old) is None


def test_no_consumer_takes_the_place_of_a_follower_that_is_at_work() -> None:
    leader = LeadingBroker(max_incremental_fetch_session_cache_slots=1)
    leader.lead()
    follower = FakeFollower(leader, OTHER)
    follower.fetch(0)
    for _ in range(3):
        leader.memory.pass_time(100_000)
        follower.fetch()
    consumer = SessionClient(leader.memory)
    consumer.begin_session({("plain", each): 0 for each in range(3)})
    assert consumer.session_id == 0
    follower.fetch()


def test_idle_partitions_are_neither_read_nor_forgotten(
    leader: LeadingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    followers = [FakeFollower(leader, OTHER), FakeFollower(leader, THIRD)]
    for each in (*followers, *followers):
        each.fetch(0)
        each.fetch()
    looked_at: list[int] = []
    read = FetchReader.read

    def counted(reader: FetchReader, partitions: Any) -> Any:
        looked_at.append(len(partitions))
        return read(reader, partitions)

    monkeypatch.setattr(FetchReader, "read", counted)
    for each in followers:
        each.fetch()
    assert looked_at == [0, 0]
    leader.memory.pass_time(10 * LAG_MS)
    leader.send(acks=1)
    leader.leader().look_after_followers()
    leader.memory.turns()
    assert not leader.controller.asked, "they had all there was until just now"


def test_a_caught_up_follower_that_was_refused_is_requested_for_the_isr_again() -> None:
    leader = LeadingBroker()
    leader.lead(in_sync=(ME, OTHER))
    third = FakeFollower(leader, THIRD)
    third.fetch(0)
    assert leader.wanted() == [[ME, OTHER, THIRD]]
    leader.grant(ErrorCode.INELIGIBLE_REPLICA)
    asked = len(leader.controller.asked)
    leader.leader().look_after_followers()
    leader.memory.turns()
    assert len(leader.controller.asked) == asked + 1
    assert leader.wanted() == [[ME, OTHER, THIRD]]


def test_a_resigning_leader_fails_all_waiting_requests(leader: LeadingBroker) -> None:
    follower = FakeFollower(leader, OTHER)
    follower.fetch(0)
    follower.fetch()
    follower.send(wait_ms=LONG_MS)
    topic = DeleteRecordsTopic(
        name="plain", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)]
    )
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=LONG_MS)
    deletion = leader.memory.send(request, 2)
    assert not deletion.sent, "the third has not told where its log starts"
    produced = leader.send()
    assert follower.has_answer()
    follower.answer()
    follower.send(1, wait_ms=LONG_MS)
    leader.resign()
    assert names(follower.answer()) == "NOT_LEADER_OR_FOLLOWER"
    assert leader.outcome(produced) == "NOT_LEADER_OR_FOLLOWER"
    row = answer_of(deletion, request, 2).topics[0].partitions[0]
    assert (names(row), row.low_watermark) == ("NOT_LEADER_OR_FOLLOWER", -1)


# --- acks=all ------------------------------------------------------------------------------------
@pytest.mark.parametrize("with_kernel", [False, True])
def test_acks_all_is_answered_when_all_in_sync_have_it(with_kernel: bool) -> None:
    leader = LeadingBroker(with_kernel=with_kernel)
    leader.lead()
    one, two = FakeFollower(leader, OTHER), FakeFollower(leader, THIRD)
    stream = leader.send()
    assert leader.outcome(leader.send(acks=1)) == "NONE"
    one.fetch(2)
    assert leader.outcome(stream) is None
    two.fetch(1)
    assert leader.outcome(stream) == "NONE"


@pytest.mark.parametrize("with_kernel", [False, True])
def test_acks_all_waits_no_longer_than_it_asks(with_kernel: bool) -> None:
    leader = LeadingBroker(with_kernel=with_kernel)
    leader.lead()
    stream = leader.send(timeout_ms=500)
    leader.memory.pass_time(499)
    assert leader.outcome(stream) is None
    leader.memory.pass_time(2)
    assert leader.outcome(stream) == "REQUEST_TIMED_OUT"
    assert leader.log().log_end_offset == 1


def test_a_stopping_leader_fails_producers_that_wait_for_followers(leader: LeadingBroker) -> None:
    """Producers get the error at once, because followers never fetch from this broker again."""
    leader.lead()
    stream = leader.send()
    assert leader.outcome(stream) is None
    server = leader.memory.broker.server
    leader.memory.broker.loop.post(Shutdown(server, leader.services, lambda: None).start)
    leader.memory.turns()
    assert leader.outcome(stream) == "NOT_LEADER_OR_FOLLOWER"


@pytest.mark.parametrize("with_kernel", [False, True])
def test_nothing_waits_for_a_disconnected_client(with_kernel: bool) -> None:
    leader = LeadingBroker(with_kernel=with_kernel)
    leader.lead()
    stream = leader.send()
    assert leader.services.purgatory.waiting_by_kind["Produce"] == 1
    stream.is_broken = True
    stream.inbox += b"\0"
    leader.memory.turns()
    assert stream.is_closed
    assert leader.services.purgatory.waiting_by_kind["Produce"] == 0


def test_records_are_let_go_once_they_are_appended(leader: LeadingBroker) -> None:
    """A request may have megabytes of them, and followers may take long."""

    def requests() -> int:
        gc.collect()
        return sum(isinstance(each, ProduceRequest) for each in gc.get_objects())

    before = requests()
    assert leader.outcome(leader.send()) is None
    assert requests() == before


@pytest.mark.parametrize("with_kernel", [False, True])
def test_too_few_in_sync_replicas_fail_before_the_append(with_kernel: bool) -> None:
    leader = LeadingBroker(with_kernel=with_kernel)
    leader.lead("two-in-sync", in_sync=(ME,))
    assert leader.outcome(leader.send("two-in-sync")) == "NOT_ENOUGH_REPLICAS"
    assert leader.log("two-in-sync").log_end_offset == 0
    assert leader.outcome(leader.send("two-in-sync", acks=1)) == "NONE"


# --- the in-sync set -----------------------------------------------------------------------------
def test_a_caught_up_follower_joins_once_the_controller_has_confirmed(
    leader: LeadingBroker,
) -> None:
    leader.lead(in_sync=(ME,))
    leader.send(acks=1)
    follower = FakeFollower(leader, OTHER)
    follower.fetch(0)
    assert not leader.controller.asked
    follower.fetch(1)
    assert leader.wanted() == [[ME, OTHER]]
    epochs = [
        each.broker_epoch
        for each in leader.controller.asked[0].topics[0].partitions[0].new_isr_with_epochs
    ]
    assert epochs == [70, 71]
    stream = leader.send()
    assert leader.outcome(stream) is None, "the controller may have added it already"
    leader.grant()
    assert leader.leader().replicas.in_sync.members == (ME, OTHER)
    assert leader.outcome(stream) is None
    follower.fetch(2)
    assert leader.outcome(stream) == "NONE"


def test_a_failed_follower_holds_nothing_up(leader: LeadingBroker) -> None:
    """The follower kept pace, as a stopping one does, and the controller refused to add it."""
    leader.lead(in_sync=(ME, OTHER))
    one, two = FakeFollower(leader, OTHER), FakeFollower(leader, THIRD)
    two.fetch(0)
    leader.grant(ErrorCode.INELIGIBLE_REPLICA)
    stream = leader.send()
    one.fetch(1)
    assert leader.outcome(stream) is None
    leader.remove_broker(THIRD)
    assert leader.outcome(stream) == "NONE"


def test_a_lagging_follower_leaves_the_isr_and_holds_nothing_up(leader: LeadingBroker) -> None:
    one = FakeFollower(leader, OTHER)
    FakeFollower(leader, THIRD).fetch(0)
    stream = leader.send()
    for _ in range(4):
        leader.memory.pass_time(LAG_MS // 2)
        one.fetch(1)
    assert leader.wanted() == [[ME, OTHER]]
    assert leader.outcome(stream) is None
    leader.grant()
    assert leader.outcome(stream) == "NONE"


@pytest.mark.parametrize("error", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_a_change_that_is_not_made_counts_no_longer(
    leader: LeadingBroker, error: ErrorCode
) -> None:
    leader.lead(in_sync=(ME,))
    FakeFollower(leader, OTHER).fetch(0)
    assert leader.leader().replicas.in_sync.maximal == (ME, OTHER)
    leader.grant(error)
    assert leader.leader().replicas.in_sync.maximal == (ME,)
    leader.memory.pass_time(100)
    assert len(leader.controller.asked) == 1


def test_an_isr_change_without_an_outcome_is_sent_again(leader: LeadingBroker) -> None:
    leader.lead(in_sync=(ME,))
    FakeFollower(leader, OTHER).fetch(0)
    leader.answer(None)
    assert len(leader.controller.asked) == 1
    assert leader.leader().replicas.in_sync.maximal == (ME, OTHER)
    leader.memory.pass_time(60)
    assert leader.wanted() == [[ME, OTHER]]
    leader.grant(ErrorCode.NOT_CONTROLLER)
    leader.memory.pass_time(60)
    assert len(leader.controller.asked) == 3
    leader.grant()
    assert leader.leader().replicas.in_sync.members == (ME, OTHER)


@pytest.mark.parametrize("error", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
def test_what_is_refused_for_another_state_is_asked_for_again(
    leader: LeadingBroker, error: ErrorCode
) -> None:
    leader.lead(in_sync=(ME,))
    FakeFollower(leader, OTHER).fetch(0)
    leader.grant(error)
    assert len(leader.controller.asked) == 1
    leader.memory.pass_time(LAG_MS)
    assert leader.leader().replicas.in_sync.maximal == (ME, OTHER), "it may have been made"
    assert leader.wanted() == [[ME, OTHER]]
    assert len(leader.controller.asked) == 2
    leader.grant()
    assert leader.leader().replicas.in_sync.members == (ME, OTHER)
    leader.memory.pass_time(LAG_MS)
    assert len(leader.controller.asked) == 2


def test_a_newer_partition_state_ends_an_isr_change_of_an_older_one(
    leader: LeadingBroker,
) -> None:
    leader.lead(in_sync=(ME, OTHER, THIRD))
    FakeFollower(leader, OTHER).fetch(0)
    stream = leader.send()
    leader.memory.pass_time(2 * LAG_MS)
    asked = leader.leader().replicas.pending_change
    assert asked is not None
    leader.grant(ErrorCode.INVALID_UPDATE_VERSION)
    assert leader.outcome(stream) is None
    leader.publish_state("plain", in_sync=(ME,), partition_epoch=asked.partition_epoch + 1)
    leader.memory.pass_time(LAG_MS)
    assert leader.leader().replicas.in_sync.maximal == (ME,)
    assert leader.outcome(stream) == "NONE"


def test_a_refusal_is_not_the_end_while_an_earlier_request_may_come(leader: LeadingBroker) -> None:
    leader.lead(in_sync=(ME,))
    FakeFollower(leader, OTHER).fetch(0)
    leader.answer(None)
    leader.memory.pass_time(60)
    leader.grant(ErrorCode.INELIGIBLE_REPLICA)
    assert leader.leader().replicas.in_sync.maximal == (ME, OTHER)
    leader.memory.pass_time(60)
    assert leader.wanted() == [[ME]]
    leader.grant()
    assert leader.leader().replicas.in_sync.maximal == (ME,)
    assert len(leader.controller.asked) == 3


def test_one_request_at_a_time_takes_all_that_is_wanted(leader: LeadingBroker) -> None:
    for topic in ("plain", "dense-index", "short-lived"):
        leader.lead(topic, in_sync=(ME,))
    FakeFollower(leader, OTHER).fetch(0)
    for topic in ("dense-index", "short-lived"):
        FakeFollower(leader, OTHER).fetch(0, topic)
    assert len(leader.controller.asked) == 1
    assert len(leader.wanted()) == 1
    leader.grant()
    assert len(leader.controller.asked) == 2
    assert len(leader.wanted()) == 2


def test_a_leadership_that_is_over_asks_for_nothing(leader: LeadingBroker) -> None:
    leader.lead(in_sync=(ME,))
    FakeFollower(leader, OTHER).fetch(0)
    leader.resign()
    leader.answer(None)
    leader.memory.pass_time(100)
    assert len(leader.controller.asked) == 1


def test_an_answer_for_a_leadership_that_is_over_moves_nothing(leader: LeadingBroker) -> None:
    leader.send(acks=1)
    FakeFollower(leader, OTHER).fetch(1)
    leader.memory.pass_time(2 * LAG_MS)
    FakeFollower(leader, OTHER).fetch(1)
    leader.memory.pass_time(LAG_MS // 2)
    assert leader.wanted() == [[ME, OTHER]]
    leader.resign()
    leader.grant()
    assert leader.log().high_watermark == 0


# --- what else waits for followers ---------------------------------------------------------------
def delete(leader: LeadingBroker, timeout_ms: int) -> Any:
    topic = DeleteRecordsTopic(
        name="plain", partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)]
    )
    return leader.memory.send(DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms), 2)


def deleted(stream: Any) -> tuple[str, int]:
    row = answer_of(stream, DeleteRecordsRequest(), 2).topics[0].partitions[0]
    return names(row), row.low_watermark


def test_records_are_deleted_when_no_replica_shows_them(leader: LeadingBroker) -> None:
    one, two = FakeFollower(leader, OTHER), FakeFollower(leader, THIRD)
    leader.send(acks=1)
    one.fetch(1)
    two.fetch(1)
    first, second = delete(leader, LONG_MS), delete(leader, 500)
    assert not first.sent
    one.fetch(1, start=1)
    assert not first.sent
    leader.memory.pass_time(501)
    assert deleted(second) == ("REQUEST_TIMED_OUT", 0)
    two.fetch(1, start=1)
    assert deleted(first) == ("NONE", 1)


def test_a_deletion_waits_on_in_the_leaders_next_epoch(leader: LeadingBroker) -> None:
    """Kafka's leader, too, stays the leader when a follower dies."""
    one, two = FakeFollower(leader, OTHER), FakeFollower(leader, THIRD)
    leader.send(acks=1)
    one.fetch(1)
    two.fetch(1)
    waiting = delete(leader, LONG_MS)
    leader.lead()
    one.fetch(1, start=1)
    assert not waiting.sent
    two.fetch(1, start=1)
    assert deleted(waiting) == ("NONE", 1)


def test_a_failed_broker_is_not_waited_for(leader: LeadingBroker) -> None:
    for number in (OTHER, THIRD):
        FakeFollower(leader, number).fetch(0)
    leader.send(acks=1)
    for number in (OTHER, THIRD):
        FakeFollower(leader, number).fetch(1)
    waiting = delete(leader, LONG_MS)
    FakeFollower(leader, OTHER).fetch(1, start=1)
    assert not waiting.sent
    leader.leader().replicas.live = (ME, OTHER)
    leader.memory.pass_time(LAG_MS // 2)
    assert deleted(waiting) == ("NONE", 1)


def latest(
    leader: LeadingBroker, version: int, replica_id: int = -1, timestamp: int = LATEST
) -> Any:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsTopic(name="plain", partitions=[asked])
    answer = leader.memory.call(ListOffsetsRequest(replica_id=replica_id, topics=[topic]), version)
    row = answer.topics[0].partitions[0]
    return names(row), row.offset


def test_a_new_leader_lists_no_offset_that_could_be_too_small(leader: LeadingBroker) -> None:
    leader.send(acks=1)
    assert latest(leader, 5) == ("NONE", 0)
    leader.lead()
    assert latest(leader, 5) == ("OFFSET_NOT_AVAILABLE", -1)
    assert latest(leader, 4) == ("LEADER_NOT_AVAILABLE", -1)
    assert latest(leader, 5, timestamp=0) == ("OFFSET_NOT_AVAILABLE", -1)
    assert latest(leader, 5, timestamp=-2) == ("NONE", 0)
    assert latest(leader, 5, replica_id=OTHER) == ("NONE", 1)
    for number in ALL[1:]:
        FakeFollower(leader, number).fetch(1)
    assert latest(leader, 5) == ("NONE", 1)
