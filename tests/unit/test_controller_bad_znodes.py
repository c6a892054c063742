"""Znodes that somebody has damaged, and requests that ZooKeeper cannot take: the controller names
or refuses them, and goes on with all else."""

import pytest

from klog_broker.controller.asking import NewTopic
from klog_broker.runtime.zookeeper import ANY_VERSION
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from pyspark_klog.znodes.paths import (
    PRODUCER_ID_BLOCK,
    delete_topic_path,
    partition_state_path,
    topic_path,
)
from tests.support.controlled_cluster import GIVEN_ID, ONE, PARTITION, THREE, TWO, Controlled


@pytest.fixture
def cluster() -> Controlled:
    made = Controlled()
    made.register(1, 2, 3)
    made.begin()
    return made


def works(cluster: Controlled, name: str = "works") -> None:
    assert cluster.create(2, 3, name=name) is ErrorCode.NONE
    assert cluster.state(TopicPartition(name, 0)) is not None


def test_a_bad_block_of_producer_ids_is_named_and_stops_nothing_else(
    cluster: Controlled, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.ask("set", PRODUCER_ID_BLOCK, b"rubbish", ANY_VERSION)
    request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    for _ in range(2):
        answer = cluster.call(cluster.controller.allocate_producer_ids, request)
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len([each for each in caplog.messages if PRODUCER_ID_BLOCK in each]) == 1
    assert cluster.data(PRODUCER_ID_BLOCK) == b"rubbish"
    works(cluster)


def test_a_request_that_never_succeeds_is_given_up(cluster: Controlled) -> None:
    cluster.ask("delete", PRODUCER_ID_BLOCK, ANY_VERSION)
    request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    answers: list[ErrorCode] = []
    cluster.controller.allocate_producer_ids(
        request, lambda answer: answers.append(ErrorCode(answer.error_code))
    )
    works(cluster)
    assert answers == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_topic_that_no_znode_holds_is_refused(cluster: Controlled) -> None:
    many = ((ONE, TWO, THREE),) * 70_000
    answer = cluster.call(cluster.controller.create_topic, NewTopic("large", GIVEN_ID, many, {}))
    assert answer is ErrorCode.INVALID_REQUEST
    works(cluster)
    more = dict(enumerate(many, 1))
    answer = cluster.call(cluster.controller.add_partitions, "works", more)
    assert answer is ErrorCode.INVALID_REQUEST
    assert cluster.data(topic_path("large")) is None
    works(cluster, "too")


def test_an_order_to_delete_goes_with_all_below_it(cluster: Controlled) -> None:
    cluster.ask("create", f"{delete_topic_path('gone')}/by/whom", b"", makes_parents=True)
    works(cluster)
    assert cluster.data(delete_topic_path("gone")) is None


def test_a_topics_znodes_go_with_what_nobody_knows_below_them(cluster: Controlled) -> None:
    works(cluster, "t")
    strange = (
        f"{topic_path('t')}/note",
        f"{partition_state_path(PARTITION)}/a/b",
        "/config/topics/t/c",
    )
    for path in strange:
        cluster.ask("create", path, b"", makes_parents=True)
    cluster.call(cluster.controller.delete_topic, "t")
    cluster.advance(500)
    for path in (topic_path("t"), delete_topic_path("t"), "/config/topics/t"):
        assert cluster.data(path) is None, path
    works(cluster, "t")
