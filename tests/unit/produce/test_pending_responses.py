"""acks=all on a leader of many, planned by the kernel: as the generic handler answers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from klog_broker.metrics.histogram import SUM
from klog_broker.metrics.requests import head_of
from klog_broker.replication.replica_progress import FollowerFetch
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.produce import ProduceRequest
from pyspark_klog.protocol.headers import RequestHeader, decode_response, encode_request
from pyspark_klog.protocol.keys import ApiKey
from tests.support.cluster.broker import ME
from tests.support.cluster.leading_broker import (
    ALL,
    LONG_MS,
    OTHER,
    THIRD,
    FakeFollower,
    LeadingBroker,
)
from tests.support.raw_requests import batch, produce_request

VERSIONS = (3, 7, 9, 12)


def replicate(leader: LeadingBroker, offset: int, topic: str = "plain") -> None:
    for number in (OTHER, THIRD):
        FakeFollower(leader, number).fetch(offset, topic)


def go_below_the_least(leader: LeadingBroker) -> None:
    """When all have the record."""
    made = leader.leader("two-in-sync")

    def in_one_turn() -> None:
        for number in (OTHER, THIRD):
            made.fetched(number, FollowerFetch(made.log.log_end_offset))
        made.replicas.set_min_in_sync(4)
        made.replicas.replicas = (*ALL, 7)
        leader.services.purgatory.check(made.topic_partition)

    leader.memory.broker.loop.post(in_one_turn)
    leader.memory.turns()


ENDINGS: dict[str, Callable[[LeadingBroker], None]] = {
    "NONE": lambda leader: replicate(
        leader, leader.log("two-in-sync").log_end_offset, "two-in-sync"
    ),
    "NOT_LEADER_OR_FOLLOWER": lambda leader: leader.resign("two-in-sync"),
    "REQUEST_TIMED_OUT": lambda leader: leader.memory.pass_time(LONG_MS + 1),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": go_below_the_least,
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_each_ending_is_answered_byte_for_byte_alike(ending: str, version: int) -> None:
    answers = []
    for with_kernel in (False, True):
        leader = LeadingBroker(with_kernel=with_kernel)
        leader.lead("two-in-sync")
        request = produce_request("two-in-sync", batch(b"x"), acks=-1, timeout_ms=LONG_MS)
        stream = leader.memory.send(request, version)
        assert leader.memory.planned == with_kernel
        assert not stream.sent
        ENDINGS[ending](leader)
        answer: Any = decode_response(bytes(stream.sent[4:]), ProduceRequest.api_key, version)
        row = answer.responses[0].partition_responses[0]
        assert ErrorCode(row.error_code).name == ending
        answers.append(bytes(stream.sent))
    assert answers[0] == answers[1]


def lead_anew(leader: LeadingBroker) -> None:
    """Lead in a newer epoch, as after a follower's death."""
    leader.lead("two-in-sync", (ME, OTHER))


def replicate_to_the_other(leader: LeadingBroker) -> None:
    FakeFollower(leader, OTHER).fetch(leader.log("two-in-sync").log_end_offset, "two-in-sync")


@pytest.mark.parametrize("with_kernel", [False, True])
@pytest.mark.parametrize(
    ("ending", "then"),
    [
        ("NONE", replicate_to_the_other),
        ("NOT_LEADER_OR_FOLLOWER", lambda leader: leader.resign("two-in-sync")),
        ("REQUEST_TIMED_OUT", lambda leader: leader.memory.pass_time(LONG_MS + 1)),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", go_below_the_least),
    ],
)
def test_a_newer_epoch_of_the_same_leader_ends_no_wait(
    ending: str, then: Callable[[LeadingBroker], None], with_kernel: bool
) -> None:
    leader = LeadingBroker(with_kernel=with_kernel)
    leader.lead("two-in-sync")
    request = produce_request("two-in-sync", batch(b"x"), acks=-1, timeout_ms=LONG_MS)
    stream = leader.memory.send(request, 9)
    assert leader.memory.planned == with_kernel
    lead_anew(leader)
    lead_anew(leader)
    leader.memory.turns()
    assert not stream.sent
    then(leader)
    answer: Any = decode_response(bytes(stream.sent[4:]), ProduceRequest.api_key, 9)
    row = answer.responses[0].partition_responses[0]
    assert ErrorCode(row.error_code).name == ending
    assert row.base_offset == (0 if ending == "NONE" else -1)


class Pipeline:
    """One connection with requests one behind the other."""

    def __init__(self, leader: LeadingBroker) -> None:
        self.leader = leader
        self.stream = leader.memory.connect()
        self._number = 0

    def send(self, *acks: int, topic: str = "plain") -> None:
        for each in acks:
            self._number += 1
            request = produce_request(topic, batch(b"x"), acks=each, timeout_ms=LONG_MS)
            self.stream.inbox += encode_request(RequestHeader(0, 9, self._number, "me"), request)
        self.leader.memory.turns()

    def answered_ids(self) -> list[int]:
        """Return the correlation ids of the responses, in their order."""
        found, data = [], bytes(self.stream.sent)
        while data:
            size = int.from_bytes(data[:4], "big")
            answer: Any = decode_response(data[4 : 4 + size], 0, 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
            found.append(int.from_bytes(data[4:8], "big"))
            data = data[4 + size :]
        return found


def test_requests_behind_a_held_one_are_planned_and_answered_in_order() -> None:
    leader = LeadingBroker(with_kernel=True)
    leader.lead()
    pipeline = Pipeline(leader)
    pipeline.send(-1, 1)
    pipeline.send(1)
    pipeline.send(-1)
    assert (leader.memory.planned, leader.log().log_end_offset) == (4, 4)
    assert pipeline.answered_ids() == []
    replicate(leader, 1)
    assert pipeline.answered_ids() == [1, 2, 3]
    pipeline.send(0, -1)
    replicate(leader, 6)
    assert pipeline.answered_ids() == [1, 2, 3, 4, 6]
    pipeline.send(1)
    assert (pipeline.answered_ids()[-1], leader.memory.planned) == (7, 7)
    pipeline.send(-1)  # received and planned together with requests of other connections
    assert pipeline.answered_ids()[-1] == 7
    replicate(leader, 8)
    assert (pipeline.answered_ids()[-1], leader.memory.planned) == (8, 8)


def counted(leader: LeadingBroker) -> dict[int, tuple[int, int]]:
    """Return by version of Produce the number of answered requests, and their time in ms."""
    rows = leader.memory.broker.server.requests.rows
    return {
        version: (sum(rows[head][:-1]), round(rows[head][SUM] / 1e6))
        for version in VERSIONS
        if (head := head_of(ApiKey.PRODUCE, version)) in rows
    }


def test_a_request_counts_when_it_is_answered_and_not_in_its_turn() -> None:
    leader = LeadingBroker(with_kernel=True)
    leader.lead()
    pipeline = Pipeline(leader)
    pipeline.send(-1, -1)
    request = produce_request("plain", batch(b"x"), acks=-1, timeout_ms=LONG_MS)
    leader.memory.send(request, 7)
    pipeline.send(1)  # in the line behind them, at once
    leader.memory.turns()
    assert leader.memory.planned == 4
    assert counted(leader) == {9: (1, 0)}
    leader.memory.pass_time(40)
    replicate(leader, 4)
    assert counted(leader) == {7: (1, 40), 9: (3, 80)}


def test_requests_of_several_versions_in_one_plan_are_counted_apart() -> None:
    leader = LeadingBroker(with_kernel=True)
    leader.lead()
    streams = [leader.memory.connect() for _ in range(3)]
    for stream, version, acks in zip(streams, (7, 9, 9), (-1, -1, 1), strict=True):
        request = produce_request("plain", batch(b"x"), acks=acks, timeout_ms=LONG_MS)
        stream.inbox += encode_request(RequestHeader(0, version, 1, "me"), request)
    leader.memory.turns()
    assert leader.memory.planned == 3
    assert counted(leader) == {9: (1, 0)}
    leader.memory.pass_time(10)
    replicate(leader, 3)
    assert counted(leader) == {7: (1, 10), 9: (2, 10)}


def test_a_request_to_many_partitions_waits_for_all_of_them() -> None:
    leader = LeadingBroker(with_kernel=True)
    leader.lead()
    leader.lead("dense-index")
    pipeline = Pipeline(leader)
    pipeline.send(-1)
    pipeline.send(-1, topic="dense-index")
    replicate(leader, 1, "dense-index")
    assert pipeline.answered_ids() == []
    replicate(leader, 1)
    assert pipeline.answered_ids() == [1, 2]


@pytest.mark.parametrize("with_kernel", [False, True])
@pytest.mark.parametrize("times", [(1_000, 30_000), (30_000, 1_000, 30_000)])
def test_each_request_is_waited_for_as_long_as_it_asks(
    times: tuple[int, ...], *, with_kernel: bool
) -> None:
    leader = LeadingBroker(with_kernel=with_kernel)
    leader.lead()
    leader.lead("dense-index")
    stream = leader.memory.connect()
    for number, timeout_ms in enumerate(times):
        for topic, acks in (("dense-index", 1), ("plain", -1), ("dense-index", 0)):
            request = produce_request(topic, batch(b"x"), acks=acks, timeout_ms=timeout_ms)
            stream.inbox += encode_request(RequestHeader(0, 9, number, "me"), request)
    leader.memory.turns()
    assert leader.memory.planned == (3 * len(times) if with_kernel else 0)
    leader.memory.pass_time(1_001)
    replicate(leader, len(times))
    wanted = []
    for number, timeout_ms in enumerate(times):
        late = ErrorCode.REQUEST_TIMED_OUT if timeout_ms == 1_000 else ErrorCode.NONE
        wanted += [(number, ErrorCode.NONE), (number, late)]
    assert codes_of(bytes(stream.sent)) == wanted
    if with_kernel:
        assert counted(leader)[9][0] == 3 * len(times)


def codes_of(data: bytes) -> list[tuple[int, int]]:
    """Return each response's correlation id and the error of its only partition."""
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        answer: Any = decode_response(data[4 : 4 + size], 0, 9)
        code = answer.responses[0].partition_responses[0].error_code
        found.append((int.from_bytes(data[4:8], "big"), code))
        data = data[4 + size :]
    return found


def test_other_requests_wait_behind_a_held_one() -> None:
    leader = LeadingBroker(with_kernel=True)
    leader.lead()
    pipeline = Pipeline(leader)
    pipeline.send(-1)
    pipeline.send(-1, topic="stored-as-lz4")
    assert pipeline.answered_ids() == []
    replicate(leader, 1)
    assert pipeline.answered_ids() == [1, 2]


def test_nothing_is_planned_behind_what_is_not() -> None:
    leader = LeadingBroker(with_kernel=True)
    leader.lead()
    leader.lead("stored-as-lz4")
    pipeline = Pipeline(leader)
    pipeline.send(-1, -1)
    replicate(leader, 2)
    planned = leader.memory.planned
    pipeline.send(-1, topic="stored-as-lz4")
    pipeline.send(1)
    assert leader.memory.planned == planned
    replicate(leader, 1, "stored-as-lz4")
    assert pipeline.answered_ids() == [1, 2, 3, 4]


def test_a_connection_that_goes_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = LeadingBroker(with_kernel=True)
    leader.lead()
    pipeline = Pipeline(leader)
    pipeline.send(-1)
    assert leader.services.purgatory.waiting == 1

    def reset(_: memoryview) -> int:
        raise ConnectionResetError

    monkeypatch.setattr(pipeline.stream, "recv_into", reset)
    pipeline.stream.is_at_end = True
    leader.memory.turns()
    assert leader.services.purgatory.waiting == 0


def test_a_change_of_the_in_sync_set_counts_from_the_next_plan_on() -> None:
    """A plan keeps cached partitions, which must go when the partition changes."""
    leader = LeadingBroker(with_kernel=True)
    leader.lead("two-in-sync")
    assert leader.outcome(leader.send("two-in-sync")) is None
    leader.assign_role("two-in-sync", in_sync=(ME,))
    assert leader.outcome(leader.send("two-in-sync")) == "NOT_ENOUGH_REPLICAS"
    assert leader.log("two-in-sync").log_end_offset == 1


def test_a_set_that_the_controller_lets_shrink_counts_from_the_next_plan_on() -> None:
    leader = LeadingBroker(with_kernel=True)
    leader.lead("two-in-sync", in_sync=(ME, OTHER))
    assert leader.outcome(leader.send("two-in-sync")) is None
    for _ in range(4):
        leader.memory.pass_time(15_000)
    assert leader.wanted() == [[ME]]
    leader.grant()
    assert leader.outcome(leader.send("two-in-sync")) == "NOT_ENOUGH_REPLICAS"
