"""One controller on a simulated ZooKeeper: its writes, its requests and its responses.

The simulation (tests/simulation/controllers) checks its promises under faults.
"""

from typing import Any

import pytest

from klog_broker.controller.zookeeper.controller_requests import ValidatedTopic
from klog_broker.controller.zookeeper.request_batch import FULL
from klog_broker.controller.zookeeper.znode_writer import PARTITIONS_A_TURN
from klog_broker.runtime.zookeeper.sessions import ANY_VERSION
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId, TopicPartition
from pyspark_klog.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from pyspark_klog.protocol.apis.alter_partition import AlterPartitionRequest
from pyspark_klog.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from pyspark_klog.protocol.apis.stop_replica import (
    StopReplicaRequest,
)
from pyspark_klog.protocol.apis.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from pyspark_klog.znodes.paths import (
    CONTROLLER_EPOCH,
    PRODUCER_ID_BLOCK,
    TOPICS,
    broker_path,
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
    decode_topic,
    encode_partition_state,
    encode_topic,
)
from tests.support.cluster.controller import (
    GIVEN_ID,
    ONE,
    PARTITION,
    THREE,
    TOPIC_ID,
    TWO,
    Controlled,
)


@pytest.fixture
def cluster() -> Controlled:
    return Controlled.of_three()


def _topic_of(topic_id: TopicId) -> bytes:
    return encode_topic(TopicAssignment(topic_id, {0: PartitionAssignment((TWO, THREE))}))


def test_a_new_controller_sends_all_brokers_everything(cluster: Controlled) -> None:
    told = cluster.pop_requests(UpdateMetadataRequest)
    assert {number for number, _ in told} == {1, 2, 3}
    for number, order in told:
        assert (order.controller_id, order.controller_epoch) == (1, 3)
        assert order.broker_epoch == cluster.epoch(number)
        assert sorted(each.id for each in order.live_brokers) == [1, 2, 3]
    assert FULL in [order.type for _, order in told]


def test_a_new_topic_is_led_and_published(
    cluster: Controlled,
) -> None:
    cluster.requests.clear()
    assert cluster.create(2, 3, configs={"retention.ms": "5"}) is ErrorCode.NONE
    assert cluster.state() == PartitionState(TWO, LeaderEpoch(0), (TWO, THREE), 3)
    kinds = [(number, type(order)) for number, order in cluster.requests]
    assert sorted(number for number, kind in kinds if kind is LeaderAndIsrRequest) == [2, 3]
    assert sorted(number for number, kind in kinds if kind is UpdateMetadataRequest) == [1, 2, 3]
    (order,) = (each for number, each in cluster.pop_requests(LeaderAndIsrRequest) if number == 2)
    (topic,) = order.topic_states
    assert (topic.topic_name, topic.topic_id) == ("t", TOPIC_ID)
    assert (topic.partition_states[0].is_new, topic.partition_states[0].leader) == (True, 2)
    assert b'"retention.ms":"5"' in (cluster.data("/config/topics/t") or b"")
    assert cluster.create(2, 3) is ErrorCode.NONE, "the same id: an answer was lost before"
    other = ValidatedTopic("t", GIVEN_ID, ((ONE,),), {})
    error = cluster.call(cluster.controller.create_topic, other)
    assert error is ErrorCode.TOPIC_ALREADY_EXISTS


def test_many_partitions_are_published_in_parts(cluster: Controlled) -> None:
    count = 2 * PARTITIONS_A_TURN + 100
    topic = ValidatedTopic("t", TOPIC_ID, ((TWO, THREE),) * count, {})
    assert cluster.call(cluster.controller.create_topic, topic) is ErrorCode.NONE
    cluster.advance(3_000)
    cluster.requests.clear()
    cluster.unregister_broker(2)
    cluster.advance(3_000)
    told = [order for number, order in cluster.pop_requests(LeaderAndIsrRequest) if number == 3]
    sizes = [len(order.topic_states[0].partition_states) for order in told]
    assert sum(sizes) == count
    assert max(sizes) <= PARTITIONS_A_TURN
    states = [cluster.state(TopicPartition("t", number)) for number in (0, count - 1)]
    assert [each and each.leader for each in states] == [THREE, THREE]
    cluster.call(cluster.controller.delete_topic, "t", TOPIC_ID)
    cluster.register(2)
    cluster.advance(3_000)
    stops = [
        order.topic_states[0].partition_states
        for _, order in cluster.pop_requests(StopReplicaRequest)
    ]
    assert sum(map(len, stops)) == 2 * count
    assert max(map(len, stops)) <= PARTITIONS_A_TURN
    assert cluster.data(topic_path("t")) is None


def test_partitions_are_added(cluster: Controlled) -> None:
    cluster.create(2, 3)
    add = cluster.controller.add_partitions
    assert cluster.call(add, "t", {1: (ONE, TWO)}) is ErrorCode.NONE
    state = cluster.state(TopicPartition("t", 1))
    assert state is not None and state.isr == (ONE, TWO)
    assert cluster.call(add, "t", {1: (ONE, TWO)}) is ErrorCode.NONE, "as after a lost answer"
    assert cluster.call(add, "t", {1: (THREE,)}) is ErrorCode.INVALID_PARTITIONS
    assert cluster.call(add, "t", {3: (THREE,)}) is ErrorCode.INVALID_PARTITIONS
    assert cluster.call(add, "u", {1: (ONE,)}) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_on_its_way_out_does_not_grow(cluster: Controlled) -> None:
    cluster.create(2, 3)
    cluster.unregister_broker(3)
    add, deleted = cluster.controller.add_partitions, []
    cluster.controller.delete_topic("t", TOPIC_ID, deleted.append)
    # The request comes before the controller has read its own change.
    assert cluster.call(add, "t", {1: (ONE, TWO)}) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert deleted == [ErrorCode.NONE]
    assert cluster.call(add, "t", {1: (ONE, TWO)}) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert list(decode_topic("t", cluster.data(topic_path("t"))).partitions) == [0]


def test_a_follower_is_elected_when_the_leader_fails_and_a_returning_broker_is_informed(
    cluster: Controlled,
) -> None:
    cluster.create(2, 3)
    cluster.unregister_broker(2)
    assert cluster.state() == PartitionState(THREE, LeaderEpoch(1), (THREE,), 3)
    cluster.requests.clear()
    cluster.register(2)
    assert cluster.state() == PartitionState(THREE, LeaderEpoch(1), (THREE,), 3)
    told = [order for number, order in cluster.pop_requests(LeaderAndIsrRequest) if number == 2]
    assert [each.topic_states[0].partition_states[0].leader for each in told] == [3]
    assert told[0].broker_epoch == cluster.epoch(2)


def test_a_replica_out_of_sync_leads_once_unclean_election_is_allowed(cluster: Controlled) -> None:
    cluster.create(2, 3)
    cluster.unregister_broker(3)
    cluster.unregister_broker(2)
    cluster.register(3)
    offline = PartitionState(BrokerId(-1), LeaderEpoch(2), (TWO,), 3)
    assert cluster.state() == offline
    cluster.controller.elect_again()
    cluster.advance(500)
    assert cluster.state() == offline
    cluster.unclean.add("t")
    cluster.advance(500)
    assert cluster.state() == offline
    cluster.controller.elect_again()
    cluster.advance(500)
    elected = cluster.state()
    assert elected is not None
    assert elected.leader == THREE
    cluster.controller.resigned()
    cluster.controller.elect_again()


def test_a_deletion_waits_for_brokers_and_is_tried_again(cluster: Controlled) -> None:
    cluster.create(2, 3)
    cluster.unregister_broker(3)
    cluster.fails_to_delete = 1
    cluster.requests.clear()
    assert cluster.call(cluster.controller.delete_topic, "t", TOPIC_ID) is ErrorCode.NONE
    stops = cluster.pop_requests(StopReplicaRequest)
    assert [number for number, _ in stops] == [2]
    assert stops[0][1].topic_states[0].partition_states[0].delete_partition
    cluster.advance(15_000)
    assert [number for number, _ in cluster.pop_requests(StopReplicaRequest)] == [2], "once more"
    assert cluster.data(topic_path("t")) is not None
    cluster.register(3)
    assert cluster.data(topic_path("t")) is None
    assert cluster.data(delete_topic_path("t")) is None
    assert cluster.data("/config/topics/t") is None
    error = cluster.call(cluster.controller.delete_topic, "t", TOPIC_ID)
    assert error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deletion_spares_a_recreated_topic(cluster: Controlled) -> None:
    cluster.create(2, 3)
    delete = cluster.controller.delete_topic
    assert cluster.call(delete, "t", TOPIC_ID) is ErrorCode.NONE
    again = ValidatedTopic("t", GIVEN_ID, ((TWO, THREE),), {})
    assert cluster.call(cluster.controller.create_topic, again) is ErrorCode.NONE
    assert cluster.call(delete, "t", TOPIC_ID) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.data(delete_topic_path("t")) is None
    assert cluster.state() is not None
    # By hand, and the controller has not heard of it when it is asked.
    cluster.call_zookeeper("set", topic_path("t"), _topic_of(TOPIC_ID), ANY_VERSION)
    answers: list[ErrorCode] = []
    delete("t", GIVEN_ID, answers.append)
    cluster.advance(500)
    assert answers == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert cluster.data(topic_path("t")) is not None


def test_a_topic_recreated_by_hand_between_two_reads_is_noticed(
    cluster: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(2, 3)
    session = cluster.session
    assert session is not None
    list_children, has_read = session.children, []

    def children(path: str, done: Any, **options: Any) -> None:
        # The controller has read that the topic is gone, and now asks which topics there are.
        if path == TOPICS and not has_read:
            has_read.append(path)
            data = _topic_of(GIVEN_ID)
            session.create(topic_path("t"), data, lambda _: list_children(path, done, **options))
        else:
            list_children(path, done, **options)

    monkeypatch.setattr(session, "children", children)
    cluster.requests.clear()
    partitions = f"{topic_path('t')}/partitions"
    for path in (partition_state_path(PARTITION), f"{partitions}/0", partitions, topic_path("t")):
        cluster.call_zookeeper("delete", path, ANY_VERSION)
    cluster.advance(500)
    assert has_read
    ids = [order.topic_states[0].topic_id for _, order in cluster.pop_requests(LeaderAndIsrRequest)]
    assert ids == [GIVEN_ID, GIVEN_ID]
    assert cluster.state() == PartitionState(TWO, LeaderEpoch(0), (TWO, THREE), 3)


def test_a_znode_of_delete_topics_without_its_topic_is_removed(cluster: Controlled) -> None:
    cluster.call_zookeeper("create", delete_topic_path("u"), b"")
    cluster.advance(500)
    assert cluster.data(delete_topic_path("u")) is None


def test_nothing_is_deleted_where_that_is_switched_off() -> None:
    cluster = Controlled(deletes_topics=False)
    cluster.register(1, 2, 3)
    cluster.start_controller()
    cluster.create(2, 3)
    # As tools did that went past the brokers.
    cluster.call_zookeeper("create", delete_topic_path("t"), b"")
    cluster.advance(500)
    assert cluster.data(delete_topic_path("t")) is None
    assert cluster.pop_requests(StopReplicaRequest) == []
    assert cluster.state() is not None


def test_a_broker_about_to_stop_leads_only_what_nobody_else_can(cluster: Controlled) -> None:
    cluster.create(2, 3)
    stop = cluster.controller.shut_down
    old = ControlledShutdownRequest(broker_id=2, broker_epoch=cluster.epoch(2) - 1)
    assert cluster.call(stop, old).error_code == ErrorCode.STALE_BROKER_EPOCH
    nobody = ControlledShutdownRequest(broker_id=9, broker_epoch=1)
    assert cluster.call(stop, nobody).error_code == ErrorCode.BROKER_NOT_AVAILABLE
    two = ControlledShutdownRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    cluster.requests.clear()
    assert cluster.call(stop, two).remaining_partitions == []
    assert cluster.state() == PartitionState(THREE, LeaderEpoch(1), (THREE,), 3)
    assert [number for number, _ in cluster.pop_requests(StopReplicaRequest)] == [2]
    three = ControlledShutdownRequest(broker_id=3, broker_epoch=cluster.epoch(3))
    (remaining,) = cluster.call(stop, three).remaining_partitions
    assert (remaining.topic_name, remaining.partition_index) == ("t", 0)
    # A broken connection does not make the controller forget which broker is about to stop.
    cluster.client.reset()
    cluster.advance(3_000)
    cluster.unregister_broker(3)
    assert cluster.state() == PartitionState(BrokerId(-1), LeaderEpoch(2), (THREE,), 3)


def test_leaders_are_elected_on_demand(cluster: Controlled) -> None:
    cluster.create(2, 3)
    elect = cluster.controller.elect_leaders
    unknown = TopicPartition("u", 0)
    errors = cluster.call(elect, [PARTITION, unknown], unclean=False)
    assert errors[PARTITION] is ErrorCode.ELECTION_NOT_NEEDED
    assert errors[unknown] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.unregister_broker(2)
    errors = cluster.call(elect, None, unclean=False)
    assert errors == {PARTITION: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert cluster.call(elect, None, unclean=True)[PARTITION] is ErrorCode.ELECTION_NOT_NEEDED
    cluster.unregister_broker(3)
    errors = cluster.call(elect, None, unclean=True)
    assert errors[PARTITION] is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    cluster.register(2)
    state = cluster.state()
    assert state is not None and state.leader == -1
    assert cluster.call(elect, None, unclean=True)[PARTITION] is ErrorCode.NONE
    state = cluster.state()
    assert state is not None
    assert (state.leader, state.isr, int(state.leader_recovery_state)) == (TWO, (TWO,), 1)


def test_an_elected_leader_is_a_success_even_if_the_response_of_zookeeper_is_lost(
    cluster: Controlled,
) -> None:
    cluster.create(2, 3)
    cluster.unregister_broker(2)
    cluster.unregister_broker(3)
    cluster.register(2)
    answers: list[Any] = []
    cluster.controller.elect_leaders([PARTITION], answers.append, unclean=True)
    cluster.until(lambda: (state := cluster.state()) is not None and state.leader == TWO)
    assert not answers
    cluster.client.reset()
    cluster.until(lambda: answers)
    assert answers == [{PARTITION: ErrorCode.NONE}]
    elect = cluster.controller.elect_leaders
    again = cluster.call(elect, [PARTITION], unclean=True)
    assert again == {PARTITION: ErrorCode.ELECTION_NOT_NEEDED}


def test_nothing_is_elected_for_a_topic_on_its_way_out(cluster: Controlled) -> None:
    cluster.create(2, 3)
    cluster.create(2, 3, name="u")
    cluster.unregister_broker(3)
    cluster.call(cluster.controller.delete_topic, "t", TOPIC_ID)
    elect = cluster.controller.elect_leaders
    errors = cluster.call(elect, None, unclean=False)
    assert errors == {TopicPartition("u", 0): ErrorCode.ELECTION_NOT_NEEDED}
    errors = cluster.call(elect, [PARTITION], unclean=False)
    assert errors == {PARTITION: ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_producer_ids_come_in_blocks(cluster: Controlled) -> None:
    allocate = cluster.controller.allocate_producer_ids
    request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    assert [cluster.call(allocate, request).producer_id_start for _ in range(2)] == [0, 1_000]
    assert b'"block_end":"1999"' in (cluster.data(PRODUCER_ID_BLOCK) or b"")
    stale = AllocateProducerIdsRequest(broker_id=2, broker_epoch=1)
    assert cluster.call(allocate, stale).error_code == ErrorCode.STALE_BROKER_EPOCH
    unknown = AllocateProducerIdsRequest(broker_id=9, broker_epoch=1)
    assert cluster.call(allocate, unknown).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_zombies_in_sync_set_is_refused(cluster: Controlled) -> None:
    request = AlterPartitionRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    alter = cluster.controller.alter_partition
    assert cluster.call(alter, request).error_code == ErrorCode.NONE
    cluster.unregister_broker(2)
    assert cluster.call(alter, request).error_code == ErrorCode.STALE_BROKER_EPOCH
    cluster.register(2)
    assert cluster.call(alter, request).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_that_is_not_the_controller_answers_not_controller(cluster: Controlled) -> None:
    controller = cluster.controller
    # Another controller is elected, and this one gets a request before it can know.
    cluster.call_zookeeper("set", CONTROLLER_EPOCH, b"4", ANY_VERSION)
    assert cluster.create(2, 3) is ErrorCode.NOT_CONTROLLER
    assert cluster.data(topic_path("t")) is None
    request = AlterPartitionRequest(broker_id=2, broker_epoch=1)
    assert cluster.call(controller.alter_partition, request).error_code == ErrorCode.NOT_CONTROLLER
    stop = ControlledShutdownRequest(broker_id=2)
    assert cluster.call(controller.shut_down, stop).error_code == ErrorCode.NOT_CONTROLLER
    ids = AllocateProducerIdsRequest(broker_id=2)
    answer = cluster.call(controller.allocate_producer_ids, ids)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    elected = cluster.call(controller.elect_leaders, None, unclean=False)
    assert elected is ErrorCode.NOT_CONTROLLER


def test_a_topic_of_long_ago_gets_an_id(cluster: Controlled) -> None:
    data = b'{"version":1,"partitions":{"0":[2]}}'
    cluster.call_zookeeper("create", topic_path("old"), data)
    cluster.advance(500)
    assert decode_topic("old", cluster.data(topic_path("old"))).topic_id == GIVEN_ID
    assert cluster.state(TopicPartition("old", 0)) is not None


def test_bad_znodes_are_named_once_and_left(
    cluster: Controlled, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create(2, 3)
    cluster.call_zookeeper("set", partition_state_path(PARTITION), b"rubbish", ANY_VERSION)
    cluster.call_zookeeper("create", topic_path("bad"), b"{}")
    cluster.call_zookeeper("create", "/brokers/ids/07x", b"{}")
    cluster.call_zookeeper("create", f"/brokers/ids/{'9' * 5_000}", b"{}")
    cluster.call_zookeeper("create", broker_path(BrokerId(8)), b"[]")
    cluster.advance(500)
    caplog.clear()
    cluster.client.reset()
    cluster.advance(3_000)
    assert cluster.create(2, 3, name="u") is ErrorCode.NONE
    for path in (partition_state_path(PARTITION), topic_path("bad"), "/brokers/ids/07x"):
        assert len([each for each in caplog.messages if f"znode={path} " in each]) == 1, path
    assert cluster.data(partition_state_path(PARTITION)) == b"rubbish"
    # Znodes that are readable again are used at once, and marked topics can be deleted.
    cluster.call_zookeeper("create", delete_topic_path("bad"), b"")
    cluster.advance(500)
    assert cluster.data(delete_topic_path("bad")) is not None
    cluster.call_zookeeper(
        "set", topic_path("bad"), b'{"version":1,"partitions":{"0":[2]}}', ANY_VERSION
    )
    cluster.advance(500)
    assert cluster.data(topic_path("bad")) is None
    cluster.call(cluster.controller.delete_topic, "t", TOPIC_ID)
    assert cluster.data(topic_path("t")) is None


def test_unreadable_topics_are_not_published_as_deleted(cluster: Controlled) -> None:
    cluster.create(2, 3)
    cluster.create(2, 3, name="u")
    cluster.call_zookeeper("set", partition_state_path(PARTITION), b"rubbish", ANY_VERSION)
    good = cluster.data(topic_path("u"))
    cluster.call_zookeeper("set", topic_path("u"), b"{}", ANY_VERSION)
    told = _told_anew(cluster)
    assert [each.leader for each in told["t"].partition_states] == [-1]
    assert (told["u"].topic_id, told["u"].partition_states) == (NO_TOPIC_ID, [])
    cluster.call_zookeeper("set", topic_path("u"), good, ANY_VERSION)
    assert _told_anew(cluster)["u"].partition_states
    cluster.call_zookeeper("set", topic_path("u"), b"{}", ANY_VERSION)
    assert _told_anew(cluster)["u"].topic_id == NO_TOPIC_ID
    for path in (partition_state_path(TopicPartition("u", 0)), partition_path(_U), *_PARENTS_OF_U):
        cluster.call_zookeeper("delete", path, ANY_VERSION)
    assert "u" not in _told_anew(cluster)


_U = TopicPartition("u", 0)
_PARENTS_OF_U = (partitions_path("u"), topic_path("u"))


def _told_anew(cluster: Controlled) -> dict[str, UpdateMetadataTopicState]:
    """Return the topics in the requests that brokers get when the controller reads all again."""
    cluster.advance(500)
    cluster.requests.clear()
    cluster.client.reset()
    cluster.advance(3_000)
    told = [order for _, order in cluster.pop_requests(UpdateMetadataRequest) if order.type == FULL]
    assert len(told) == 3
    return {each.topic_name: each for each in told[0].topic_states}


def test_an_outdated_controller_context_is_read_again(cluster: Controlled) -> None:
    cluster.create(2, 3)
    state = PartitionState(TWO, LeaderEpoch(7), (TWO, THREE), 3)
    cluster.call_zookeeper(
        "set", partition_state_path(PARTITION), encode_partition_state(state), ANY_VERSION
    )
    cluster.unregister_broker(2)
    cluster.advance(3_000)
    assert cluster.state() == PartitionState(THREE, LeaderEpoch(8), (THREE,), 3)
