"""Znodes that somebody has damaged, and requests that ZooKeeper cannot take: the controller names
or refuses them, and goes on with all else."""

import json

import pytest

from klog_broker.controller.zookeeper.controller_requests import ValidatedTopic
from klog_broker.controller.zookeeper.request_batch import LEADER_DURING_DELETE
from klog_broker.runtime.zookeeper.sessions import ANY_VERSION
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicPartition
from pyspark_klog.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from pyspark_klog.protocol.apis.update_metadata import UpdateMetadataRequest
from pyspark_klog.znodes.paths import (
    PRODUCER_ID_BLOCK,
    broker_path,
    delete_topic_path,
    partition_state_path,
    topic_path,
)
from pyspark_klog.znodes.topics import PartitionState, encode_partition_state
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


def works(cluster: Controlled, name: str = "works") -> None:
    assert cluster.create(2, 3, name=name) is ErrorCode.NONE
    assert cluster.state(TopicPartition(name, 0)) is not None


def test_a_bad_block_of_producer_ids_is_named_and_stops_nothing_else(
    cluster: Controlled, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.call_zookeeper("set", PRODUCER_ID_BLOCK, b"rubbish", ANY_VERSION)
    request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    for _ in range(2):
        answer = cluster.call(cluster.controller.allocate_producer_ids, request)
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len([each for each in caplog.messages if PRODUCER_ID_BLOCK in each]) == 1
    assert cluster.data(PRODUCER_ID_BLOCK) == b"rubbish"
    works(cluster)


def test_a_request_that_never_succeeds_is_given_up(cluster: Controlled) -> None:
    cluster.call_zookeeper("delete", PRODUCER_ID_BLOCK, ANY_VERSION)
    request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    answers: list[ErrorCode] = []
    cluster.controller.allocate_producer_ids(
        request, lambda answer: answers.append(ErrorCode(answer.error_code))
    )
    works(cluster)
    assert answers == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_topic_that_no_znode_holds_is_refused(cluster: Controlled) -> None:
    many = ((ONE, TWO, THREE),) * 70_000
    answer = cluster.call(
        cluster.controller.create_topic, ValidatedTopic("large", GIVEN_ID, many, {})
    )
    assert answer is ErrorCode.INVALID_REQUEST
    works(cluster)
    more = dict(enumerate(many, 1))
    answer = cluster.call(cluster.controller.add_partitions, "works", more)
    assert answer is ErrorCode.INVALID_REQUEST
    assert cluster.data(topic_path("large")) is None
    works(cluster, "too")


def test_a_znode_of_delete_topics_is_removed_with_all_below_it(cluster: Controlled) -> None:
    cluster.call_zookeeper(
        "create", f"{delete_topic_path('gone')}/by/whom", b"", makes_parents=True
    )
    works(cluster)
    assert cluster.data(delete_topic_path("gone")) is None


def test_a_topics_znodes_are_removed_with_unknown_ones_below_them(cluster: Controlled) -> None:
    works(cluster, "t")
    strange = (
        f"{topic_path('t')}/note",
        f"{partition_state_path(PARTITION)}/a/b",
        "/config/topics/t/c",
    )
    for path in strange:
        cluster.call_zookeeper("create", path, b"", makes_parents=True)
    cluster.call(cluster.controller.delete_topic, "t", TOPIC_ID)
    cluster.advance(500)
    for path in (topic_path("t"), delete_topic_path("t"), "/config/topics/t"):
        assert cluster.data(path) is None, path
    works(cluster, "t")


def _registration(**fields: object) -> bytes:
    listeners = {"listener_security_protocol_map": {"A": "PLAINTEXT"}, "endpoints": ["A://h:1"]}
    return json.dumps({"version": 5, "jmx_port": -1, **listeners, **fields}).encode()


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (broker_path(BrokerId(8)), _registration(rack="r" * 50_000)),
        (broker_path(BrokerId(8)), _registration(endpoints=[f"A://{'h' * 50_000}:1"])),
        (broker_path(BrokerId(8)), _registration(version=1, host="h" * 50_000, port=1)),
        (broker_path(BrokerId(8)), _registration(version=1, host="h", port=65_536)),
        (broker_path(BrokerId(8)), _registration(version=1, host="h", port=-1)),
        (broker_path(BrokerId(8)), _registration(endpoints=["A://h:1"] * 101)),
        (topic_path("n" * 40_000), b'{"version":1,"partitions":{"0":[2]}}'),
        (topic_path("idless"), b'{"partitions":{"0":[2]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAA"}'),
        (topic_path("two words"), b'{"version":1,"partitions":{"0":[2]}}'),
    ],
)
def test_a_registration_that_no_request_can_carry_is_left_out(
    cluster: Controlled, caplog: pytest.LogCaptureFixture, path: str, data: bytes
) -> None:
    cluster.call_zookeeper("create", path, data)
    works(cluster)
    assert f"znode={path[:300]}" in caplog.text
    assert 8 not in [
        each.id for each in cluster.pop_requests(UpdateMetadataRequest)[-1][1].live_brokers
    ]


def test_the_largest_epoch_is_not_changed(
    cluster: Controlled, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create(2, 3)
    state = PartitionState(TWO, LeaderEpoch((1 << 31) - 1), (TWO, THREE), 3)
    data = encode_partition_state(state)
    cluster.call_zookeeper("set", partition_state_path(PARTITION), data, ANY_VERSION)
    cluster.client.reset()
    cluster.advance(3_000)
    cluster.unregister_broker(2)
    assert f"znode={partition_state_path(PARTITION)} is ignored" in caplog.text
    assert cluster.data(partition_state_path(PARTITION)) == data
    works(cluster)


def test_of_two_topics_with_one_id_the_second_is_left_out(
    cluster: Controlled, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create(2, 3)
    cluster.call_zookeeper("create", topic_path("copy"), cluster.data(topic_path("t")))
    works(cluster, "between")
    assert "its id is that of topic t" in caplog.text
    assert cluster.data(topic_path("copy")) is not None
    cluster.call(cluster.controller.delete_topic, "t", TOPIC_ID)
    assert cluster.data(topic_path("t")) is None
    works(cluster)


def test_a_topic_with_unreadable_states_is_published_as_deleted(cluster: Controlled) -> None:
    cluster.create(2, 3)
    cluster.call_zookeeper("set", partition_state_path(PARTITION), b"rubbish", ANY_VERSION)
    cluster.client.reset()
    cluster.advance(3_000)
    cluster.requests.clear()
    cluster.call(cluster.controller.delete_topic, "t", TOPIC_ID)
    assert cluster.data(topic_path("t")) is None
    told = {
        (broker, each.leader)
        for broker, request in cluster.pop_requests(UpdateMetadataRequest)
        for topic in request.topic_states
        for each in topic.partition_states
    }
    assert told == {(each, LEADER_DURING_DELETE) for each in (ONE, TWO, THREE)}
