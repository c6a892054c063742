"""A controller names all partitions of a topic in one UpdateMetadata request, or none."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from klog_broker.controller.zookeeper import request_sender, znode_writer
from klog_broker.controller.zookeeper.controller_requests import ValidatedTopic
from klog_broker.controller.zookeeper.request_batch import FULL, LEADER_DURING_DELETE, RequestBatch
from klog_broker.controller.zookeeper.znode_writer import Writer
from klog_broker.runtime.zookeeper.sessions import Create
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from pyspark_klog.protocol.apis.update_metadata import UpdateMetadataRequest
from pyspark_klog.znodes.paths import topic_path
from pyspark_klog.znodes.topics import PartitionAssignment, TopicAssignment, encode_topic
from tests.simulation.zookeeper.servers import Entry
from tests.support.cluster.controller import ONE, THREE, TOPIC_ID, TWO, Controlled

COUNT = 350
ALL = set(range(COUNT))


@pytest.fixture
def cluster() -> Controlled:
    return Controlled.of_three()


def create(cluster: Controlled, *replicas: BrokerId, count: int = COUNT) -> ErrorCode:
    topic = ValidatedTopic("t", TOPIC_ID, (replicas,) * count, {})
    code: ErrorCode = cluster.call(cluster.controller.create_topic, topic)
    cluster.advance(5_000)
    return code


def named(orders: Iterable[tuple[BrokerId, Any]], to: BrokerId) -> list[dict[int, int]]:
    """Leaders by partition, of each UpdateMetadata request to a broker that names the topic."""
    return [
        {each.partition_index: each.leader for each in topic.partition_states}
        for broker_id, order in orders
        if broker_id == to and isinstance(order, UpdateMetadataRequest)
        for topic in order.topic_states
        if topic.topic_name == "t"
    ]


def test_a_new_topic_is_named_as_a_whole(cluster: Controlled) -> None:
    cluster.requests.clear()
    assert create(cluster, TWO, THREE) is ErrorCode.NONE
    for broker_id in (ONE, TWO, THREE):
        assert named(cluster.requests, broker_id) == [dict.fromkeys(range(COUNT), TWO)]
    roles = [
        len(order.topic_states[0].partition_states)
        for to, order in cluster.requests
        if to == TWO and isinstance(order, LeaderAndIsrRequest)
    ]
    assert (sum(roles), max(roles)) == (COUNT, 100), "replicas get their roles in slices"


def test_new_partitions_of_a_topic_are_named_together(cluster: Controlled) -> None:
    create(cluster, TWO, THREE, count=5)
    cluster.requests.clear()
    added = dict.fromkeys(range(5, COUNT), (THREE, TWO))
    assert cluster.call(cluster.controller.add_partitions, "t", added) is ErrorCode.NONE
    cluster.advance(5_000)
    for broker_id in (ONE, TWO, THREE):
        assert named(cluster.requests, broker_id) == [dict.fromkeys(range(5, COUNT), THREE)]


def test_the_partitions_of_a_deleted_topic_are_named_together(cluster: Controlled) -> None:
    create(cluster, TWO, THREE)
    cluster.requests.clear()
    code = cluster.call(cluster.controller.delete_topic, "t", TOPIC_ID)
    assert code is ErrorCode.NONE
    cluster.until(lambda: cluster.data(topic_path("t")) is None)
    for broker_id in (ONE, TWO, THREE):
        assert named(cluster.requests, broker_id) == [
            dict.fromkeys(range(COUNT), LEADER_DURING_DELETE)
        ]


def test_partitions_that_no_broker_can_lead_are_named(cluster: Controlled) -> None:
    """Clients that miss a partition would spread its keys over the others."""
    cluster.unregister_broker(3)
    cluster.requests.clear()
    topic = ValidatedTopic("t", TOPIC_ID, ((TWO,), (THREE,)), {})
    assert cluster.call(cluster.controller.create_topic, topic) is ErrorCode.NONE
    assert named(cluster.requests, ONE) == [{0: TWO, 1: -1}]
    cluster.requests.clear()
    cluster.register(3)
    cluster.advance(5_000)
    assert named(cluster.requests, ONE) == [{1: THREE}]
    assert named(cluster.requests, THREE) == [{0: TWO, 1: THREE}]


def test_a_broker_that_comes_back_sees_whole_topics_from_the_start(cluster: Controlled) -> None:
    create(cluster, TWO, THREE)
    cluster.unregister_broker(3)
    cluster.requests.clear()
    cluster.register(3)
    cluster.advance(5_000)
    seen = named(cluster.requests, THREE)
    assert seen
    assert all(each.keys() == ALL for each in seen)


def test_a_broker_that_comes_while_a_topic_is_made_sees_it_as_a_whole(
    cluster: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.unregister_broker(3)
    cluster.requests.clear()
    original: Callable[..., Any] = Writer._put_some
    calls = 0

    def put_some(writer: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            cluster.register(3)
        return (yield from original(writer, *arguments, **options))

    partitions = {number: PartitionAssignment((TWO, THREE)) for number in range(COUNT)}
    data = encode_topic(TopicAssignment(TOPIC_ID, partitions))
    monkeypatch.setattr(Writer, "_put_some", put_some)
    cluster.zookeeper.commit(Entry(0, Create(topic_path("t"), data)))
    cluster.advance(10_000)
    assert calls > 3
    for broker_id in (ONE, TWO, THREE):
        first, *_ = named(cluster.requests, broker_id)
        assert first.keys() == ALL
    assert cluster.state(TopicPartition("t", COUNT - 1))


def test_a_new_controller_names_whole_topics_before_it_has_named_everything(
    cluster: Controlled,
) -> None:
    """Clients hear of new leaders, though everything takes long."""
    create(cluster, TWO, THREE)
    cluster.requests.clear()
    cluster.client.reset()
    cluster.advance(5_000)
    orders = [each for _, each in cluster.requests if isinstance(each, UpdateMetadataRequest)]
    kinds = [each.type for each in orders if each.topic_states]
    assert kinds[0] != FULL
    assert kinds[-1] == FULL
    for broker_id in (ONE, TWO, THREE):
        assert all(each.keys() == ALL for each in named(cluster.requests, broker_id))


def test_a_turn_encodes_one_large_request(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    original = Controlled._send

    def send(cluster: Controlled, to: Any, order: Any, done: Any) -> None:
        if named([(to.broker_id, order)], to.broker_id):
            turns.append(cluster.loop.turn)
        original(cluster, to, order, done)

    monkeypatch.setattr(request_sender, "LARGE_REQUEST", COUNT)
    monkeypatch.setattr(Controlled, "_send", send)
    create(Controlled.of_three(), TWO, THREE)
    assert len(turns) == len(set(turns)) == 3


def test_a_large_topic_is_collected_in_slices(
    cluster: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: dict[int, int] = {}
    original = RequestBatch._partition_state

    def told_state(batch: RequestBatch, partition: TopicPartition) -> Any:
        turns[cluster.loop.turn] = turns.get(cluster.loop.turn, 0) + 1
        return original(batch, partition)

    monkeypatch.setattr(RequestBatch, "_partition_state", told_state)
    assert create(cluster, TWO, THREE, count=2_500) is ErrorCode.NONE
    (seen,) = cluster.until(lambda: named(cluster.requests, ONE))
    assert len(seen) == 2_500
    # An answer of ZooKeeper begins one slice, and its callback the next slice in the same turn.
    assert max(turns.values()) <= 2 * znode_writer.LOOKED_AT_A_TURN
