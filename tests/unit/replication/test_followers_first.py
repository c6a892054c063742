"""Appended records are sent to followers before all other work of the turn, because acks=all waits
for the followers."""

import pytest

from klog_broker.runtime.event_loop.purgatory import DelayedOperation
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from tests.support.cluster.leading_broker import LONG_MS, OTHER, THIRD, FakeFollower, LeadingBroker
from tests.support.raw_requests import batch, produce_request
from tests.support.runtime.fake_network import FakeStream

TOPIC = "two-in-sync"


class Appends(DelayedOperation):
    """Waits for a record to become visible, then appends another, as a transaction's end does."""

    kind = "Appends"

    def __init__(self, leader: LeadingBroker, offset: int) -> None:
        self._leader = leader
        self._offset = offset

    def try_complete(self, now_ms: int) -> bool:
        if self._leader.log(TOPIC).high_watermark <= self._offset:
            return False
        self._leader.leader(TOPIC).append(batch(b"y"), acks_all=False, now_ms=now_ms)
        return True

    def on_expire(self, _now_ms: int) -> None:
        raise AssertionError("nobody has seen the record")


def parked(leader: LeadingBroker) -> list[FakeFollower]:
    """Followers that have fetched all records, and wait for more."""
    followers = [FakeFollower(leader, number) for number in (OTHER, THIRD)]
    for follower in followers:
        follower.fetch(0, TOPIC)
        follower.send(wait_ms=LONG_MS)
        assert not follower.has_answer()
    return followers


@pytest.mark.parametrize("with_kernel", [False, True])
def test_followers_are_sent_a_turns_records_before_producers_are_answered(
    monkeypatch: pytest.MonkeyPatch, with_kernel: bool
) -> None:
    leader = LeadingBroker(with_kernel=with_kernel)
    leader.lead(TOPIC)
    followers = parked(leader)
    producers = [leader.memory.connect(), leader.memory.connect()]
    order: list[FakeStream] = []
    take = FakeStream._take

    def noted(stream: FakeStream, data: bytes) -> int:
        order.append(stream)
        return take(stream, data)

    monkeypatch.setattr(FakeStream, "_take", noted)
    for stream, acks in zip(producers, (1, -1), strict=True):
        request = produce_request(TOPIC, batch(b"x"), acks=acks, timeout_ms=LONG_MS)
        stream.inbox += encode_request(RequestHeader(request.api_key, 9, 1, "producer"), request)
    leader.memory.turns()
    assert leader.memory.planned == with_kernel * 2
    assert order == [*(each.stream for each in followers), producers[0]]
    for follower in followers:
        row = follower.answer()
        assert len(row.records) == 2 * len(batch(b"x"))
        follower.send(2, TOPIC)
    assert order[-1] is not producers[0]
    assert len(order) == 6
    assert producers[1] in order


@pytest.mark.parametrize("with_kernel", [False, True])
def test_producers_are_answered_before_the_fetch_that_they_wait_for_is_put_by(
    monkeypatch: pytest.MonkeyPatch, with_kernel: bool
) -> None:
    leader = LeadingBroker(with_kernel=with_kernel)
    leader.lead(TOPIC)
    followers = parked(leader)
    producer = leader.memory.connect()
    waiting = leader.services.purgatory.waiting_by_kind
    seen: list[tuple[int, int]] = []
    take = FakeStream._take

    def noted(stream: FakeStream, data: bytes) -> int:
        if stream is producer:
            seen.append((waiting["Fetch"], waiting["Produce"]))
        return take(stream, data)

    monkeypatch.setattr(FakeStream, "_take", noted)
    for offset in (1, 2, 3):
        request = produce_request(TOPIC, batch(b"x"), acks=-1, timeout_ms=LONG_MS)
        header = RequestHeader(request.api_key, 9, offset, "producer")
        producer.inbox += encode_request(header, request)
        leader.memory.turns()
        for follower in followers:
            assert not seen
            assert follower.answer().records
            follower.send(offset, TOPIC, wait_ms=LONG_MS)
        # Requests that come for the first time take the long way.
        assert offset < 3 or seen == [(1, 0)]
        seen.clear()
        assert waiting == {"Fetch": 2, "Produce": 0}
    assert producer.sends == 3


def test_a_fetch_is_not_put_by_without_what_was_appended_meanwhile() -> None:
    leader = LeadingBroker()
    leader.lead(TOPIC)
    followers = parked(leader)
    for offset in (1, 2, 3):
        leader.send(TOPIC)
        if offset == 3:
            purgatory, partition = leader.services.purgatory, leader.leader(TOPIC).topic_partition
            assert not purgatory.watch(Appends(leader, 2), [partition], LONG_MS)
        for follower in followers:
            assert follower.answer().records
            follower.send(offset, TOPIC, wait_ms=LONG_MS)
    assert leader.log(TOPIC).log_end_offset == 4
    for follower in followers:
        assert len(follower.answer().records) == len(batch(b"y"))
