"""Znodes that an access list keeps from the controller: named, and no more than that."""

from typing import Any

import pytest

from klog_broker.runtime.zookeeper.sessions import ANY_VERSION, Check, MultiFailed, NoAuth
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicPartition
from pyspark_klog.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from pyspark_klog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from pyspark_klog.znodes.configs import TOPICS, config_path, entity
from pyspark_klog.znodes.paths import (
    DELETE_TOPICS,
    PRODUCER_ID_BLOCK,
    broker_path,
    delete_topic_path,
    partition_state_path,
    topic_path,
)
from pyspark_klog.znodes.topics import PartitionState
from tests.support.cluster.controller import PARTITION, THREE, TWO, Controlled

STATE = partition_state_path(PARTITION)
OTHER = TopicPartition("u", 0)


class Denying:
    """Lets the controller read, or write, some znodes no more."""

    def __init__(self, cluster: Controlled, patch: pytest.MonkeyPatch) -> None:
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        session = cluster.session
        assert session is not None
        for name in ("get", "children"):
            patch.setattr(session, name, self._reading(getattr(session, name)))
        patch.setattr(session, "multi", self._writing(session.multi))

    def _reading(self, original: Any) -> Any:
        def read(path: str, done: Any, **options: Any) -> None:
            denied = path in self.reads
            original(path, lambda answer: done(NoAuth(path) if denied else answer), **options)

        return read

    def _writing(self, original: Any) -> Any:
        def multi(operations: Any, done: Any) -> None:
            for index, each in enumerate(operations):
                if each.path in self.writes and not isinstance(each, Check):
                    failed = MultiFailed(index, NoAuth(each.path))
                    original([operations[0]], lambda _, failed=failed: done(failed))
                    return
            original(operations, done)

        return multi


@pytest.fixture
def cluster() -> Controlled:
    return Controlled.of_three()


@pytest.fixture
def denying(cluster: Controlled, monkeypatch: pytest.MonkeyPatch) -> Denying:
    return Denying(cluster, monkeypatch)


def named(caplog: pytest.LogCaptureFixture, path: str) -> int:
    return len([each for each in caplog.messages if f"znode={path} " in each])


def leads(cluster: Controlled, partition: TopicPartition) -> int:
    state = cluster.state(partition)
    assert state is not None
    return int(state.leader)


def test_a_state_that_may_not_be_written_holds_nothing_else_up(
    cluster: Controlled, denying: Denying, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create(2, 3)
    cluster.create(2, 3, name="u")
    denying.writes = {STATE}
    cluster.unregister_broker(2)
    cluster.advance(3_000)
    assert (leads(cluster, PARTITION), leads(cluster, OTHER)) == (2, 3)
    assert "reading everything from ZooKeeper again" not in caplog.text
    cluster.register(2)
    assert cluster.create(1, name="v") is ErrorCode.NONE
    assert leads(cluster, TopicPartition("v", 0)) == 1
    assert named(caplog, STATE) == 1
    # Once it is allowed the next change of brokers settles it.
    denying.writes = set()
    cluster.unregister_broker(2)
    assert leads(cluster, PARTITION) == 3


@pytest.mark.parametrize("path", [STATE, f"{topic_path('t')}/partitions"])
def test_a_new_topic_without_writable_states_is_left(
    cluster: Controlled, denying: Denying, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    denying.writes = {path}
    cluster.create(2, 3)
    assert cluster.create(2, 3, name="u") is ErrorCode.NONE
    assert cluster.state() is None
    assert leads(cluster, OTHER) == 2
    assert named(caplog, path) == 1


def test_a_request_for_a_state_that_may_not_be_written_fails(
    cluster: Controlled, denying: Denying
) -> None:
    cluster.create(2, 3)
    cluster.create(2, 3, name="u")
    cluster.unregister_broker(2)
    cluster.register(2)
    denying.writes = {STATE}
    topics = []
    for name in ("t", "u"):
        state = cluster.state(TopicPartition(name, 0))
        assert state is not None
        data = PartitionData(
            partition_index=0,
            leader_epoch=state.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=cluster.epoch(each)) for each in (3, 2)
            ],
            partition_epoch=cluster.stat(partition_state_path(TopicPartition(name, 0))).version,
        )
        topics.append(TopicData(topic_id=cluster.topic_id(name), partitions=[data]))
    request = AlterPartitionRequest(broker_id=3, broker_epoch=cluster.epoch(3), topics=topics)
    answer = cluster.call(cluster.controller.alter_partition, request)
    codes = [each.partitions[0].error_code for each in answer.topics]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    elected = cluster.call(cluster.controller.elect_leaders, [PARTITION, OTHER], unclean=False)
    assert elected == {
        PARTITION: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        OTHER: ErrorCode.NONE,
    }
    state = PartitionState(THREE, LeaderEpoch(1), (THREE, TWO), 3)
    denying.writes = set()
    assert cluster.call(cluster.controller.alter_partition, request).error_code == 0
    assert cluster.state() == state
    denying.writes = {STATE}
    elected = cluster.call(cluster.controller.elect_leaders, [PARTITION], unclean=False)
    assert elected == {PARTITION: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert cluster.state() == state


@pytest.mark.parametrize("path", [STATE, topic_path("t"), broker_path(BrokerId(1)), DELETE_TOPICS])
def test_what_may_not_be_read_holds_nothing_else_up(
    cluster: Controlled, denying: Denying, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    cluster.create(2, 3)
    cluster.create(2, 3, name="u")
    denying.reads = {path}
    for _ in range(2):
        cluster.client.reset()
        cluster.advance(3_000)
    cluster.unregister_broker(2)
    assert leads(cluster, OTHER) == 3
    assert cluster.create(3, name="v") is ErrorCode.NONE
    assert leads(cluster, TopicPartition("v", 0)) == 3
    assert "reading everything from ZooKeeper again" not in caplog.text
    assert named(caplog, path) >= 1


def test_a_known_topic_that_may_not_be_read_stays(cluster: Controlled, denying: Denying) -> None:
    cluster.create(2, 3)
    denying.reads = {topic_path("t")}
    data = cluster.data(topic_path("t"))
    cluster.call_zookeeper("set", topic_path("t"), data, ANY_VERSION)
    cluster.advance(500)
    cluster.unregister_broker(2)
    assert leads(cluster, PARTITION) == 3


@pytest.mark.parametrize("path", [topic_path("t"), STATE, delete_topic_path("t")])
def test_a_topic_that_may_not_be_erased_waits(
    cluster: Controlled, denying: Denying, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    cluster.create(2, 3)
    cluster.call_zookeeper("create", delete_topic_path("t"), b"")
    denying.writes = {path}
    cluster.advance(3_000)
    assert cluster.create(2, 3, name="u") is ErrorCode.NONE
    assert leads(cluster, OTHER) == 2
    assert "reading everything from ZooKeeper again" not in caplog.text
    assert cluster.data(topic_path("t")) is not None
    assert named(caplog, path) == 1
    denying.writes = set()
    cluster.call(cluster.controller.delete_topic, "u", cluster.topic_id("u"))
    assert cluster.data(topic_path("t")) is None
    assert cluster.data(delete_topic_path("t")) is None


def test_a_topic_of_long_ago_that_may_not_get_an_id_is_left(
    cluster: Controlled, denying: Denying, caplog: pytest.LogCaptureFixture
) -> None:
    denying.writes = {topic_path("old")}
    cluster.call_zookeeper("create", topic_path("old"), b'{"version":1,"partitions":{"0":[2]}}')
    assert cluster.create(2, 3) is ErrorCode.NONE
    assert leads(cluster, PARTITION) == 2
    assert "reading everything from ZooKeeper again" not in caplog.text
    assert named(caplog, topic_path("old")) == 1


def request_change(cluster: Controlled, what: str) -> Any:
    controller = cluster.controller
    topic_id = cluster.topic_id("t")
    match what:
        case "create":
            return cluster.create(2, 3, name="u")
        case "grow":
            return cluster.call(controller.add_partitions, "t", {1: (TWO, THREE)})
        case "delete":
            return cluster.call(controller.delete_topic, "t", topic_id)
    request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    return ErrorCode(cluster.call(controller.allocate_producer_ids, request).error_code)


@pytest.mark.parametrize(
    ("what", "reads", "writes"),
    [
        ("create", "", topic_path("u")),
        ("create", "", config_path(entity(TOPICS, "u"))),
        ("grow", topic_path("t"), ""),
        ("grow", "", topic_path("t")),
        ("delete", "", delete_topic_path("t")),
        ("producer ids", PRODUCER_ID_BLOCK, ""),
        ("producer ids", "", PRODUCER_ID_BLOCK),
    ],
)
def test_a_request_that_an_access_list_forbids_is_refused_at_once(
    cluster: Controlled,
    denying: Denying,
    caplog: pytest.LogCaptureFixture,
    what: str,
    reads: str,
    writes: str,
) -> None:
    cluster.create(2, 3)
    denying.reads, denying.writes = {reads}, {writes}
    assert request_change(cluster, what) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "reading everything from ZooKeeper again" not in caplog.text
    assert named(caplog, reads or writes) == 1
    denying.reads, denying.writes = set(), set()
    assert request_change(cluster, what) is ErrorCode.NONE
