"""The first conversation with ZooKeeper: the cluster's id, the broker's id, and checks to join."""

import pytest

from klog_broker.metadata.zookeeper.join_conversation import JoinConversation, JoinResult, NotJoined
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.zookeeper.sessions import ANY_VERSION
from pyspark_klog.ids import BrokerId
from pyspark_klog.znodes.cluster import (
    ControllerRegistration,
    decode_cluster_id,
    encode_cluster_id,
    encode_controller,
)
from pyspark_klog.znodes.paths import CLUSTER_ID, CONTROLLER, FEATURE, MIGRATION, PERSISTENT
from tests.support.cluster.zookeeper import ClusterWorld


@pytest.fixture
def cluster() -> ClusterWorld:
    return ClusterWorld()


def join(
    cluster: ClusterWorld, number: int | None = 1, *, reserved: int = 1000
) -> JoinResult | NotJoined:
    outcomes: list[JoinResult | NotJoined] = []
    broker_id = None if number is None else BrokerId(number)
    cluster.sessions(JoinConversation(Chance(1), broker_id, reserved, outcomes.append))
    cluster.until(lambda: outcomes)
    cluster.advance(100)
    (outcome,) = outcomes
    return outcome


def test_the_first_broker_begins_the_cluster_and_the_next_ones_find_it(
    cluster: ClusterWorld,
) -> None:
    first = join(cluster)
    assert isinstance(first, JoinResult)
    assert len(first.cluster_id) == 22
    assert decode_cluster_id(cluster.data(CLUSTER_ID)) == first.cluster_id
    for path in PERSISTENT:
        assert (cluster.data(path), cluster.stat(path).ephemeral_owner) == (b"", 0)
    assert cluster.data(FEATURE) == b'{"features":{},"version":2,"status":1}'
    written = len(cluster.zookeeper.entries)
    assert join(cluster, 2) == JoinResult(first.cluster_id, BrokerId(2))
    assert len(cluster.zookeeper.entries) == written


def test_a_cluster_of_kafkas_keeps_its_id(cluster: ClusterWorld) -> None:
    cluster.call_zookeeper("create", CLUSTER_ID, encode_cluster_id("kafkas"), makes_parents=True)
    assert join(cluster) == JoinResult("kafkas", BrokerId(1))


def test_features_that_somebody_has_finalized_stay(cluster: ClusterWorld) -> None:
    cluster.call_zookeeper("create", FEATURE, b"somebody's")
    assert isinstance(join(cluster), JoinResult)
    assert cluster.data(FEATURE) == b"somebody's"


def test_numbers_are_generated_above_those_that_can_be_set(cluster: ClusterWorld) -> None:
    found = [join(cluster, None), join(cluster, None), join(cluster, None, reserved=5)]
    assert [each.broker_id for each in found] == [1001, 1002, 8]


@pytest.mark.parametrize("breaks_at", range(0, 24, 2))
def test_a_broken_connection_starts_again(breaks_at: int) -> None:
    cluster = ClusterWorld(breaks_at)
    outcomes: list[JoinResult | NotJoined] = []
    _, client = cluster.sessions(JoinConversation(Chance(1), BrokerId(1), 1000, outcomes.append))
    cluster.until(lambda: len(cluster.zookeeper.entries) >= breaks_at)
    client.reset()
    cluster.until(lambda: outcomes)
    (outcome,) = outcomes
    assert isinstance(outcome, JoinResult)
    assert decode_cluster_id(cluster.data(CLUSTER_ID)) == outcome.cluster_id
    assert all(cluster.stat(path) is not None for path in (*PERSISTENT, FEATURE))


def test_a_cluster_on_its_way_to_kraft_is_not_joined(cluster: ClusterWorld) -> None:
    cluster.call_zookeeper("create", MIGRATION, b"{}")
    outcome = join(cluster)
    assert outcome == NotJoined(
        "the cluster is on its way to KRaft (there is /migration), which klog does not support; end"
        " the migration, and delete that znode if ZooKeeper is to stay"
    )
    assert cluster.data(CLUSTER_ID) is None


def test_a_cluster_that_krafts_controller_leads_is_not_joined(cluster: ClusterWorld) -> None:
    controller = ControllerRegistration(BrokerId(3000), 1, kraft_controller_epoch=7)
    cluster.call_zookeeper("create", CONTROLLER, encode_controller(controller))
    outcome = join(cluster)
    assert isinstance(outcome, NotJoined)
    assert outcome.text.startswith(
        "the cluster is led by KRaft's controller 3000 (/controller has kraftControllerEpoch 7)"
    )


def test_a_cluster_id_that_cannot_be_read_is_named_and_left(cluster: ClusterWorld) -> None:
    cluster.call_zookeeper("create", CLUSTER_ID, b"nonsense", makes_parents=True)
    outcome = join(cluster)
    assert isinstance(outcome, NotJoined)
    assert CLUSTER_ID in outcome.text
    assert cluster.data(CLUSTER_ID) == b"nonsense"


def test_a_controller_that_cannot_be_read_is_in_nobodys_way(
    cluster: ClusterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.call_zookeeper("create", CONTROLLER, b"nonsense")
    assert isinstance(join(cluster), JoinResult)
    assert "znode=/controller is ignored, and stays unchanged" in caplog.text
    cluster.call_zookeeper("delete", CONTROLLER, ANY_VERSION)
