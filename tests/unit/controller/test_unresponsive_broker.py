"""A registered broker that does not respond: requests that wait for it, and the later ones."""

import pytest

from klog_broker.controller.zookeeper import cluster_state
from klog_broker.controller.zookeeper.controller_requests import ValidatedTopic
from klog_broker.controller.zookeeper.request_batch import FULL, ControllerRequest
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID, BrokerId, TopicId
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from pyspark_klog.protocol.apis.stop_replica import StopReplicaRequest
from pyspark_klog.protocol.apis.update_metadata import UpdateMetadataRequest
from pyspark_klog.znodes.paths import delete_topic_path, topic_path
from tests.support.cluster.controller import THREE, TWO, Controlled

AT_LEAST = 40
ROUNDS = 60


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Controlled:
    monkeypatch.setattr(cluster_state, "MIN_QUEUE_SIZE", AT_LEAST)
    made = Controlled.of_three()
    made.create(2, 3)
    made.create(2, 3, name="kept")
    return made


def delete(cluster: Controlled, name: str) -> None:
    topic_id = cluster.topic_id(name)
    assert cluster.call(cluster.controller.delete_topic, name, topic_id) is ErrorCode.NONE


def come_and_go(cluster: Controlled) -> None:
    """Topics that broker 2 only hears of."""
    for number in range(ROUNDS):
        name = f"u{number}"
        cluster.create(3, name=name)
        delete(cluster, name)


def of(cluster: Controlled, broker_id: BrokerId) -> list[ControllerRequest]:
    return [order for to, order in cluster.requests if to == broker_id]


def named(order: ControllerRequest) -> set[str]:
    return {each.topic_name for each in order.topic_states}


def test_a_broker_that_responds_late_gets_everything_instead_of_waiting_requests(
    cluster: Controlled, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.silent = {2}
    come_and_go(cluster)
    cluster.create(2, 3, name="new")
    cluster.requests.clear()
    cluster.release_responses()
    told = of(cluster, TWO)
    full, led = told
    assert isinstance(led, LeaderAndIsrRequest)
    assert named(led) == {"t", "kept", "new"}
    assert isinstance(full, UpdateMetadataRequest)
    assert (full.type, named(full)) == (FULL, {"t", "kept", "new"})
    assert of(cluster, THREE) == [], "the others knew all that"
    assert len([each for each in caplog.messages if "broker_id=2 does not answer" in each]) == 1
    # The broker is treated like all others again.
    cluster.requests.clear()
    cluster.create(2, name="v")
    assert [named(each) for each in of(cluster, TWO)][:2] == [{"v"}, {"v"}]


def test_partitions_without_a_leader_do_not_let_the_catch_up_be_dropped(
    cluster: Controlled,
) -> None:
    cluster.silent = {2}
    gone = (BrokerId(9),)
    topic = ValidatedTopic("w", TopicId(UUID(int=9)), (gone,) * 2 * AT_LEAST, {})
    assert cluster.call(cluster.controller.create_topic, topic) is ErrorCode.NONE
    come_and_go(cluster)
    cluster.requests.clear()
    cluster.release_responses(still_silent=True)
    full, *_ = of(cluster, TWO)
    assert isinstance(full, UpdateMetadataRequest)
    assert (full.type, named(full)) == (FULL, {"t", "kept", "w"})
    cluster.requests.clear()
    cluster.release_responses()
    (led,) = of(cluster, TWO)
    assert isinstance(led, LeaderAndIsrRequest)
    assert named(led) == {"t", "kept"}


def test_it_deletes_what_was_to_be_deleted_meanwhile(cluster: Controlled) -> None:
    cluster.silent = {2}
    cluster.create(3, name="x")
    delete(cluster, "kept")
    come_and_go(cluster)
    delete(cluster, "t")
    assert cluster.data(delete_topic_path("t")) is not None
    cluster.requests.clear()
    cluster.release_responses()
    stopped = [each for each in of(cluster, TWO) if isinstance(each, StopReplicaRequest)]
    assert set().union(*map(named, stopped)) == {"t", "kept"}
    for name in ("t", "kept"):
        assert cluster.data(topic_path(name)) is None
        assert cluster.data(delete_topic_path(name)) is None
    assert cluster.create(2, 3) is ErrorCode.NONE, "the name is free"


def test_other_brokers_get_their_requests_meanwhile(cluster: Controlled) -> None:
    cluster.silent = {2}
    cluster.requests.clear()
    come_and_go(cluster)
    assert {f"u{number}" for number in range(ROUNDS)} <= set().union(
        *(named(each) for each in of(cluster, THREE))
    )
    assert len(of(cluster, TWO)) <= 1


def test_a_new_broker_epoch_gets_everything_as_any_that_registers(cluster: Controlled) -> None:
    cluster.silent = {2}
    come_and_go(cluster)
    cluster.unregister_broker(2)
    cluster.silent = set()
    cluster.requests.clear()
    cluster.register(2)
    told = of(cluster, TWO)
    assert any(isinstance(each, UpdateMetadataRequest) and each.type == FULL for each in told)
    cluster.requests.clear()
    cluster.release_responses()
    assert of(cluster, TWO) == [], "the answer of its last life says nothing"


def test_topics_that_were_read_again_meanwhile_are_sent_once_it_responds(
    cluster: Controlled,
) -> None:
    cluster.silent = {2}
    come_and_go(cluster)
    cluster.client.reset()
    cluster.advance(5_000)
    cluster.requests.clear()
    cluster.release_responses()
    told = of(cluster, TWO)
    assert isinstance(told[0], UpdateMetadataRequest)
    assert (told[0].type, named(told[0])) == (FULL, {"t", "kept"})
    assert isinstance(told[-1], LeaderAndIsrRequest)
    assert named(told[-1]) == {"t", "kept"}
