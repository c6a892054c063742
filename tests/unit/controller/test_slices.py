"""A controller of many partitions does a part of its work in each turn of the loop."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from klog_broker.controller.decisions.context import ControllerContext
from klog_broker.controller.zookeeper import controller_requests, znode_reader, znode_writer
from klog_broker.controller.zookeeper.cluster_state import ControllerState
from klog_broker.controller.zookeeper.request_batch import FULL, RequestBatch
from klog_broker.runtime.zookeeper.sessions import Create
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID, LeaderEpoch, TopicId, TopicPartition
from pyspark_klog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from pyspark_klog.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from pyspark_klog.protocol.apis.stop_replica import StopReplicaRequest
from pyspark_klog.protocol.apis.update_metadata import UpdateMetadataRequest
from pyspark_klog.znodes import topics
from pyspark_klog.znodes.paths import (
    delete_topic_path,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_path,
)
from pyspark_klog.znodes.topics import (
    PartitionAssignment,
    PartitionState,
    TopicAssignment,
    encode_partition_state,
    encode_topic,
)
from tests.simulation.zookeeper.servers import Entry
from tests.support.cluster.controller import THREE, TOPIC_ID, TWO, Controlled

COUNT = 350
LOOKED_AT = 40
# An event from outside begins one slice, and this slice may begin the next one in the same turn.
LOOKED_AT_MOST = 2 * LOOKED_AT
SETTLED = 100


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Controlled:
    """A cluster with one topic, whose replicas are on brokers 2 and 3."""
    for module in (znode_writer, controller_requests):
        monkeypatch.setattr(module, "LOOKED_AT_A_TURN", LOOKED_AT)
    made = Controlled.of_three()
    state = encode_partition_state(PartitionState(TWO, LeaderEpoch(0), (TWO, THREE), 1))
    partitions = {number: PartitionAssignment((TWO, THREE)) for number in range(COUNT)}

    def commit(path: str, data: bytes) -> None:
        made.zookeeper.commit(Entry(0, Create(path, data)))

    commit(topic_path("t"), encode_topic(TopicAssignment(TOPIC_ID, partitions)))
    commit(partitions_path("t"), b"")
    for number in range(COUNT):
        commit(partition_path(TopicPartition("t", number)), b"")
        commit(partition_state_path(TopicPartition("t", number)), state)
    made.client.reset()
    made.advance(5_000)
    made.requests.clear()
    return made


@pytest.fixture
def most_a_turn(
    cluster: Controlled, monkeypatch: pytest.MonkeyPatch
) -> Callable[[type[Any], str], Callable[[], int]]:
    """How often a method is called in one turn, at most."""

    def count(owner: type[Any], name: str) -> Callable[[], int]:
        calls: Counter[int] = Counter()
        original = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            calls[cluster.loop.turn] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)
        return lambda: max(calls.values(), default=0)

    return count


MostATurn = Callable[[type[Any], str], Callable[[], int]]


def told(cluster: Controlled, kind: type[Any]) -> list[int]:
    """Return the number of partitions in each request of a kind to brokers 2 and 3."""
    return [
        sum(len(topic.partition_states) for topic in order.topic_states)
        for to, order in cluster.requests
        if isinstance(order, kind) and to in (TWO, THREE)
    ]


def test_requests_to_a_registering_broker_are_collected_in_slices(
    cluster: Controlled, most_a_turn: MostATurn
) -> None:
    cluster.unregister_broker(3)
    cluster.requests.clear()
    collected = most_a_turn(RequestBatch, "_partition_state")
    came = most_a_turn(ControllerState, "mark_replica_online")
    cluster.register(3)
    full = [
        each
        for to, each in cluster.requests
        if to == THREE and isinstance(each, UpdateMetadataRequest) and each.type == FULL
    ]
    assert [len(each.topic_states[0].partition_states) for each in full] == [COUNT]
    assert 0 < came() <= LOOKED_AT_MOST
    assert 0 < collected() <= SETTLED + LOOKED_AT_MOST


def test_a_failed_broker_is_handled_in_slices(cluster: Controlled, most_a_turn: MostATurn) -> None:
    went = most_a_turn(ControllerState, "mark_replica_offline")
    cluster.unregister_broker(2)
    assert 0 < went() <= LOOKED_AT_MOST
    for number in (0, COUNT - 1):
        state = cluster.state(TopicPartition("t", number))
        assert state is not None
        assert state.leader == THREE


def test_a_stopping_broker_is_handled_in_slices(
    cluster: Controlled, most_a_turn: MostATurn
) -> None:
    went = most_a_turn(ControllerState, "mark_replica_offline")
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    answer = cluster.call(cluster.controller.shut_down, request)
    assert (answer.error_code, answer.remaining_partitions) == (0, [])
    assert 0 < went() <= 2 * SETTLED
    stopped = told(cluster, StopReplicaRequest)
    assert sum(stopped) == COUNT
    assert max(stopped) <= SETTLED


def test_all_leaders_are_elected_in_slices(cluster: Controlled, most_a_turn: MostATurn) -> None:
    cluster.unregister_broker(2)
    cluster.register(2)
    for number in range(0, COUNT, 70):  # back in sync
        ask_for(cluster, [number], (3, 2))
    cluster.requests.clear()
    looked_at = most_a_turn(ControllerContext, "leadership")
    elected = cluster.call(cluster.controller.elect_leaders, None, unclean=False)
    codes = Counter(elected.values())
    assert codes == {
        ErrorCode.NONE: 5,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: COUNT - 5,
    }
    assert 0 < looked_at() <= LOOKED_AT_MOST
    assert sum(told(cluster, LeaderAndIsrRequest)) == 2 * 5


def test_elected_leaders_are_published_in_slices(cluster: Controlled) -> None:
    cluster.unregister_broker(2)
    cluster.register(2)
    ask_for(cluster, list(range(COUNT)), (3, 2))
    cluster.requests.clear()
    elected = cluster.call(cluster.controller.elect_leaders, None, unclean=False)
    assert set(elected.values()) == {ErrorCode.NONE}
    led = told(cluster, LeaderAndIsrRequest)
    assert sum(led) == 2 * COUNT
    assert max(led) <= SETTLED


def ask_for(cluster: Controlled, numbers: list[int], in_sync: tuple[int, ...]) -> Any:
    state = cluster.state(TopicPartition("t", numbers[0]))
    assert state is not None
    version = cluster.stat(partition_state_path(TopicPartition("t", numbers[0]))).version
    partitions = [
        PartitionData(
            partition_index=number,
            leader_epoch=state.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=cluster.epoch(each)) for each in in_sync
            ],
            partition_epoch=version,
        )
        for number in numbers
    ]
    leader = int(state.leader)
    request = AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=cluster.epoch(leader),
        topics=[TopicData(topic_id=TOPIC_ID, partitions=partitions)],
    )
    answer = cluster.call(cluster.controller.alter_partition, request)
    (topic,) = answer.topics
    assert [each.partition_index for each in topic.partitions] == numbers
    assert {each.error_code for each in topic.partitions} == {0}
    return answer


def test_a_deleted_topic_is_removed_in_slices(cluster: Controlled, most_a_turn: MostATurn) -> None:
    forgotten = most_a_turn(ControllerContext, "remove_partition")
    listed = most_a_turn(ControllerContext, "partitions_of")
    topic_id = cluster.topic_id("t")
    code = cluster.call(cluster.controller.delete_topic, "t", topic_id)
    assert code is ErrorCode.NONE
    cluster.until(lambda: cluster.data(topic_path("t")) is None)
    cluster.advance(500)
    assert 0 < forgotten() <= LOOKED_AT_MOST
    assert listed() <= 3, "an answer is not looked for among all partitions"
    assert cluster.create(2, 3) is ErrorCode.NONE


def test_small_topics_are_deleted_in_slices(cluster: Controlled, most_a_turn: MostATurn) -> None:
    """While a broker is away they wait, and each change has all of them looked at."""
    for number in range(COUNT):
        topic_id = TopicId(UUID(int=1000 + number))
        topic = TopicAssignment(topic_id, {0: PartitionAssignment((TWO, THREE))})
        commit = cluster.zookeeper.commit
        commit(Entry(0, Create(topic_path(f"small{number}"), encode_topic(topic))))
        commit(Entry(0, Create(delete_topic_path(f"small{number}"), b"")))
    cluster.unregister_broker(3)
    queued = most_a_turn(ControllerContext, "queue_deletion")
    ordered = most_a_turn(RequestBatch, "add_stop_replica")
    cluster.client.reset()
    cluster.advance(5_000)
    assert 0 < queued() <= 2 * SETTLED
    assert 0 < ordered() <= 2 * SETTLED


def test_the_znode_of_a_large_topic_is_decoded_in_several_turns(
    cluster: Controlled, most_a_turn: MostATurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(znode_reader, "_DECODED_A_TURN", LOOKED_AT)
    decoded = most_a_turn(topics, "_partition")
    added = {COUNT: (TWO, THREE)}
    assert cluster.call(cluster.controller.add_partitions, "t", added) is ErrorCode.NONE
    cluster.advance(1_000)
    assert cluster.state(TopicPartition("t", COUNT)) is not None
    assert 0 < decoded() <= LOOKED_AT_MOST
