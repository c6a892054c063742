"""Requests to partitions' leaders: after a leader change they are repeated; errors are kept."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.leaders import LeaderResults, call_leaders
from pyspark_klog.client.cluster.metadata import ClusterView, PartitionInfo, TopicInfo
from pyspark_klog.client.errors import ConnectionFailed, TimedOut, TopicMissing
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition

BROKERS = {1: Address("one", 9092), 2: Address("two", 9092)}
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class Client(BlockingClient):
    """A client that gets the views one by one (the last is repeated); a link is a broker's id."""

    def __init__(self, *views: Mapping[int, int]) -> None:
        self.time_ms = 0
        super().__init__(
            {"bootstrap.servers": "one:9092", "default.api.timeout.ms": 5_000},
            now_ms=lambda: self.time_ms,
            sleep=self._pass_time,
        )
        self.views = [
            ClusterView(
                BROKERS,
                {"t": TopicInfo("t", partitions={n: PartitionInfo(at) for n, at in view.items()})},
            )
            for view in views
        ]

    def _pass_time(self, seconds: float) -> None:
        self.time_ms += int(seconds * 1000)

    def refresh(self, topics: Iterable[str] | None, *_: Any, **__: Any) -> ClusterView:
        assert set(topics or ()) == {"t"}
        self.view = self.views.pop(0) if len(self.views) > 1 else self.views[0]
        return self.view

    def link_to_broker(self, broker_id: int, deadline_ms: int) -> Link:
        return cast("Link", broker_id)


def asked(
    client: Client, partitions: Iterable[TopicPartition], *answers: Any
) -> tuple[LeaderResults[str], list[tuple[int, list[int]]]]:
    """Return the results, and each request's broker and partitions. ``answers`` are given in turn:
    one for all partitions of a request, or an error that is raised."""
    calls = []
    left = list(answers)

    def call_leader(
        link: Link, by_topic: dict[str, list[int]]
    ) -> dict[TopicPartition, str | ErrorCode]:
        calls.append((cast("int", link), by_topic["t"]))
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {TopicPartition("t", n): answer for n in by_topic["t"]}

    return call_leaders(client, partitions, call_leader, "look"), calls


def test_each_leader_is_asked_once_about_what_it_leads() -> None:
    client = Client({0: 1, 1: 2, 2: 1})
    found, calls = asked(client, [T2, T0, T1], "a", "b")
    assert found == ({T0: "a", T2: "a", T1: "b"}, {})
    assert calls == [(1, [0, 2]), (2, [1])]


def test_a_changed_leader_is_looked_up_and_other_leaders_get_no_request() -> None:
    client = Client({0: 1, 1: 2}, {0: 2, 1: 2})
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    found, calls = asked(client, [T0, T1], moved, "b", "a")
    assert found == ({T0: "a", T1: "b"}, {})
    assert calls == [(1, [0]), (2, [1]), (2, [0])]


def test_a_lost_connection_is_tried_again() -> None:
    found, calls = asked(Client({0: 1}), [T0], ConnectionFailed("lost"), "a")
    assert (found.found, len(calls)) == ({T0: "a"}, 2)


def test_a_topic_that_may_not_be_described_is_refused_and_not_waited_for() -> None:
    client = Client({})
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    client.views = [ClusterView(BROKERS, {"t": TopicInfo("t", error=code)})]
    found, calls = asked(client, [T0])
    refused = {partition: str(error) for partition, error in found.refused.items()}
    assert refused.keys() == {T0} and "TOPIC_AUTHORIZATION_FAILED: look: t-0" in refused[T0]
    assert (found.found, calls, client.time_ms) == ({}, [], 0)


def test_a_refusal_is_final_and_the_rest_is_found() -> None:
    client = Client({0: 1, 1: 2})
    found, calls = asked(client, [T0, T1, T2], ErrorCode.OFFSET_OUT_OF_RANGE, "b")
    assert found.found == {T1: "b"}
    assert isinstance(found.refused[T0], BrokerError)
    assert str(found.refused[T0]).startswith("OFFSET_OUT_OF_RANGE: look: t-0: ")
    assert isinstance(found.refused[T2], TopicMissing)
    assert str(found.refused[T2]) == "t-2 does not exist"
    assert len(calls) == 2


def test_a_partition_without_a_leader_is_waited_for_until_the_deadline() -> None:
    found, _ = asked(Client({0: -1, 1: 1}, {0: 1, 1: 1}), [T0, T1], "b", "a")
    assert found.found == {T0: "a", T1: "b"}
    client = Client({0: -1, 1: 1})
    found, _ = asked(client, [T0, T1], "a")
    assert found.found == {T1: "a"}, "the other partition keeps its result"
    assert isinstance(found.refused[T0], TimedOut)
    assert str(found.refused[T0]) == "look did not succeed in time: t-0 has no leader now"
    assert client.time_ms > 3_000


def test_a_leader_that_fails_does_not_keep_the_other_leaders_from_their_request() -> None:
    client = Client({0: 1, 1: 2})
    lost = [ConnectionFailed("lost") for _ in range(20)]
    found, calls = asked(client, [T0, T1], lost[0], "b", *lost[1:])
    assert found.found == {T1: "b"}
    assert str(found.refused[T0]) == "look did not succeed in time: lost"
    assert calls[:2] == [(1, [0]), (2, [1])]


def test_an_answer_that_leaves_a_partition_out_is_no_answer() -> None:
    calls = 0

    def call_leader(
        link: Link, by_topic: dict[str, list[int]]
    ) -> dict[TopicPartition, str | ErrorCode]:
        nonlocal calls
        calls += 1
        return {}

    found = call_leaders(Client({0: 1}), [T0], call_leader, "look")
    expected = "look did not succeed in time: the response of the leader of t-0 lacks"
    assert str(found.refused[T0]).startswith(expected)
    assert calls > 1


def test_nothing_to_ask() -> None:
    class Quiet(Client):
        def refresh(self, topics: Iterable[str] | None, *_: Any, **__: Any) -> ClusterView:
            return ClusterView(BROKERS)

    assert asked(Quiet({}), []) == (({}, {}), [])
