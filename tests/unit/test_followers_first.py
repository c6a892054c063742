"""What was appended leaves for the followers before anything else that the turn has to do: acks=all
waits for them."""

import pytest

from pyspark_klog.protocol.headers import RequestHeader, encode_request
from tests.support.fake_network import FakeStream
from tests.support.leader_of_many import LONG_MS, OTHER, THIRD, FakeFollower, LeaderOfMany
from tests.support.raw_requests import batch, produce_request

TOPIC = "two-in-sync"


def parked(leader: LeaderOfMany) -> list[FakeFollower]:
    """Followers that have all there is, and wait for more."""
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
    leader = LeaderOfMany(with_kernel=with_kernel)
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
