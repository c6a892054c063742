"""/consumers/G/offsets: commits of very old consumers, even through broken connections."""

from typing import Any

import pytest

from klog_broker.metadata.errors import NoResponse
from klog_broker.metadata.zookeeper.consumer_offsets import TIMEOUT_MS, ConsumerOffsets
from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.znodes.consumers import offset_path
from pyspark_klog.znodes.data import ZnodeError
from tests.support.cluster.zookeeper import ClusterWorld, NotedUser

ORDERS = [TopicPartition("orders", number) for number in range(3)]


class Offsets:
    """Sends requests and waits for their responses."""

    def __init__(self, cluster: ClusterWorld) -> None:
        self.cluster = cluster
        self.offsets = ConsumerOffsets(cluster.loop)
        self.noted = NotedUser()
        _, self.client = cluster.sessions(self.offsets, self.noted)

    def send_request(self, name: str, *arguments: Any) -> list[Any]:
        answers: list[Any] = []
        getattr(self.offsets, name)(*arguments, answers.append)
        return answers

    def call_store(self, name: str, *arguments: Any) -> Any:
        answers = self.send_request(name, *arguments)
        self.cluster.until(lambda: answers)
        self.cluster.advance(100)
        [answer] = answers
        return answer


@pytest.mark.parametrize("seed", range(10))
def test_a_commit_is_kafkas_znode_and_any_broker_reads_it(seed: int) -> None:
    """A broker reads the commit even if its ZooKeeper server lags behind."""
    cluster = ClusterWorld(seed)
    one, other = Offsets(cluster), Offsets(cluster)
    for offset in (5, 7):
        answers = one.send_request("commit_offsets", "g", {ORDERS[0]: offset, ORDERS[1]: 8})
        cluster.until(lambda answers=answers: answers)
        assert answers == [{ORDERS[0]: None, ORDERS[1]: None}]
        found = other.call_store("fetch_offsets", "g", ORDERS)
        assert found == {ORDERS[0]: offset, ORDERS[1]: 8, ORDERS[2]: None}
    assert cluster.data("/consumers/g/offsets/orders/0") == b"7"


def test_more_than_are_asked_for_at_once() -> None:
    offsets = Offsets(ClusterWorld())
    many = {TopicPartition("t", number): Offset(number) for number in range(210)}
    assert set(offsets.call_store("commit_offsets", "g", many).values()) == {None}
    assert offsets.call_store("fetch_offsets", "g", list(many)) == many


def test_nothing_to_ask_is_answered() -> None:
    offsets = Offsets(ClusterWorld())
    assert (
        offsets.call_store("fetch_offsets", "g", [])
        == offsets.call_store("commit_offsets", "g", {})
        == {}
    )


@pytest.mark.parametrize("breaks_at", range(8))
@pytest.mark.parametrize("expires", [False, True])
def test_what_was_under_way_is_asked_again(breaks_at: int, expires: bool) -> None:
    cluster = ClusterWorld(breaks_at)
    offsets = Offsets(cluster)
    answers = offsets.send_request("commit_offsets", "g", dict.fromkeys(ORDERS, Offset(5)))
    cluster.until(lambda: len(cluster.zookeeper.entries) >= breaks_at and offsets.noted.session)
    assert not answers
    session = offsets.noted.session
    if expires and session is not None:
        cluster.zookeeper.expire(session.session_id)
    offsets.client.reset()
    cluster.until(lambda: answers)
    assert answers == [dict.fromkeys(ORDERS)]
    assert {cluster.data(offset_path("g", each)) for each in ORDERS} == {b"5"}


def test_a_bad_znode_is_named_once_and_left(caplog: pytest.LogCaptureFixture) -> None:
    cluster = ClusterWorld()
    cluster.call_zookeeper("create", offset_path("g", ORDERS[0]), b"many", makes_parents=True)
    offsets = Offsets(cluster)
    for _ in range(2):
        found = offsets.call_store("fetch_offsets", "g", ORDERS)
        assert isinstance(found[ORDERS[0]], ZnodeError)
        assert found[ORDERS[1]] is None
    assert caplog.text.count("znode=/consumers/g/offsets/orders/0 is ignored") == 1
    assert cluster.data(offset_path("g", ORDERS[0])) == b"many"


@pytest.mark.parametrize("group_id", ["", "a/b", "..", "\x00"])
def test_a_group_that_no_znode_can_name_is_refused(group_id: str) -> None:
    cluster = ClusterWorld()
    offsets = Offsets(cluster)
    for found in (
        offsets.call_store("commit_offsets", group_id, {ORDERS[0]: Offset(1)}),
        offsets.call_store("fetch_offsets", group_id, ORDERS[:1]),
    ):
        assert isinstance(found[ORDERS[0]], ZnodeError)


def test_without_zookeeper_nobody_waits_for_ever() -> None:
    cluster = ClusterWorld()
    offsets = Offsets(cluster)
    offsets.call_store("commit_offsets", "g", {ORDERS[0]: Offset(1)})
    cluster.zookeeper.stop()
    answers = [
        offsets.send_request("commit_offsets", "g", {ORDERS[0]: Offset(2)}),
        offsets.send_request("fetch_offsets", "g", ORDERS[:1]),
    ]
    cluster.advance(TIMEOUT_MS + 1)
    for [found] in answers:
        assert isinstance(found[ORDERS[0]], NoResponse)
    cluster.zookeeper.start()
    cluster.advance(5_000)
    assert [len(each) for each in answers] == [1, 1]
