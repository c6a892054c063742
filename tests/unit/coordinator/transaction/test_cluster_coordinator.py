"""A cluster broker's parts for transactions: its coordinator reaches other brokers."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from klog_broker.cluster.known_topics import TopicsFromController
from klog_broker.cluster.role_change_queue import ControllerRequestQueue
from klog_broker.config import BrokerConfig
from klog_broker.coordinator_hosting.groups import new_groups
from klog_broker.coordinator_hosting.hosting import follow_leaderships
from klog_broker.coordinator_hosting.transactions import new_transactions_in_cluster
from klog_broker.metadata.image import CONSUMER_OFFSETS, TRANSACTION_STATE, MetadataImage
from klog_broker.metadata.interface import MetadataStore
from klog_broker.metadata.zookeeper.image_updater import ImageUpdater
from klog_broker.runtime.peers import Peers
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from tests.support.cluster.connections import LISTENER, ScriptedBrokers, image_of
from tests.support.coordinator.transaction_client import (
    PLAIN,
    MemoryClient,
    broker_with_coordinators,
)

NONE = ErrorCode.NONE
FAR = TopicPartition("far", 0)
SETTINGS = {
    "zookeeper.connect": "zk:2181",
    "listeners": f"OUTSIDE://:9092,{LISTENER}://:9093",
    "listener.security.protocol.map": f"OUTSIDE:PLAINTEXT,{LISTENER}:PLAINTEXT",
    "inter.broker.listener.name": LISTENER,
}


class Cluster:
    """Broker 0 has both coordinators; broker 2 leads "far", and is another broker in memory."""

    def __init__(self) -> None:
        self.broker, self.other = broker_with_coordinators(), broker_with_coordinators()
        services = self.services = self.broker.broker.services
        self.whole = services.metadata.image
        self.coordinators = [TopicPartition(TRANSACTION_STATE, each) for each in range(2)]
        self.brokers = ScriptedBrokers(services.loop)
        self.orders = ControllerRequestQueue(lambda: 5)
        self.orders.note_full_metadata(0, 5)
        self.view = ImageUpdater("cluster", lambda _: {})
        services.known_topics = TopicsFromController(
            self.orders, lambda: self.view.unreadable, services.loop
        )
        services.config = BrokerConfig.load(None, SETTINGS)
        self.image_is(
            image_of({FAR: 2, PLAIN: 0, **dict.fromkeys(self.coordinators, 0)}, {2: 9093})
        )
        services.replicas.on_lead.clear()
        services.replicas.on_resign.clear()
        services.groups = new_groups(services)
        follow_leaderships(services, CONSUMER_OFFSETS, services.groups)
        made = new_transactions_in_cluster(services, cast("Peers", self.brokers))
        services.transactions, services.verify_transactions, services.verifies_elsewhere = made
        follow_leaderships(services, TRANSACTION_STATE, services.transactions)
        self.broker.turns()
        self.client = MemoryClient(self.broker, raises=False)

    def image_is(self, image: MetadataImage) -> None:
        self.services.metadata = cast(
            "MetadataStore", SimpleNamespace(image=image, close=lambda: None)
        )
        for tell in self.services.on_image:
            tell()

    def state(self) -> str:
        known = self.services.transactions.describe("tx")[1]
        assert known is not None
        return known.state.kafkas_name


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def begin_transaction(cluster: Cluster) -> None:
    assert cluster.client.init() == 0
    assert cluster.client.add(PLAIN, FAR) == [NONE, NONE]
    cluster.client.write(PLAIN)


def test_markers_go_where_the_partitions_are_led(cluster: Cluster) -> None:
    begin_transaction(cluster)
    assert cluster.client.end_transaction() == NONE
    cluster.broker.pass_time(100)
    (asked,) = cluster.brokers.to(2).asked
    assert [topic.name for each in asked.message.markers for topic in each.topics] == ["far"]
    assert cluster.client.stable_offset() == cluster.broker.log(*PLAIN).log_end_offset
    assert cluster.state() == "PrepareCommit"
    # The other broker has died, so that no broker leads the partition; then the topic is deleted.
    cluster.image_is(image_of({FAR: -1, PLAIN: 0, **dict.fromkeys(cluster.coordinators, 0)}, {}))
    cluster.broker.pass_time(1_000)
    assert cluster.brokers.to(2).is_closed
    assert cluster.state() == "PrepareCommit"
    cluster.image_is(image_of({PLAIN: 0, **dict.fromkeys(cluster.coordinators, 0)}, {}))
    cluster.broker.pass_time(1_000)
    cluster.broker.pass_time(1_000)
    assert cluster.state() == "CompleteCommit"


def test_a_topic_that_the_controller_cannot_read_gets_its_marker_once_it_is_published(
    cluster: Cluster,
) -> None:
    begin_transaction(cluster)
    own = {PLAIN: 0, **dict.fromkeys(cluster.coordinators, 0)}
    # A broker that has just started receives the topics in this way.
    cluster.view.update_topics([], is_all=True, unreadable={FAR.topic})
    cluster.image_is(image_of(own, {2: 9093}))
    assert cluster.client.end_transaction() == NONE
    cluster.broker.pass_time(1_000)
    assert cluster.state() == "PrepareCommit"
    cluster.image_is(image_of({FAR: 2, **own}, {2: 9093}))
    cluster.broker.pass_time(1_000)
    (asked,) = cluster.brokers.to(2).asked
    assert [topic.name for each in asked.message.markers for topic in each.topics] == ["far"]


def test_adding_a_partition_before_the_full_update_gets_a_retriable_error(cluster: Cluster) -> None:
    assert cluster.client.init() == 0
    unknown = TopicPartition("unknown", 0)
    cluster.orders.controller_epoch = 1
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert cluster.client.add(FAR, unknown) == [loading, loading]
    assert cluster.client.add(FAR) == [NONE]
    cluster.orders.note_full_metadata(1, 5)
    assert cluster.client.add(FAR, unknown) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_the_broker_that_leads_an_id_is_asked_about_it(cluster: Cluster) -> None:
    for each in cluster.coordinators:
        order = cluster.broker.role_assignment(each.topic, each.partition, leader_epoch=1)
        cluster.broker.apply(order)
        assert cluster.services.transactions.serving_error("tx") is NONE
    answers: list[Any] = []

    def verify_partition() -> None:
        cluster.services.verify_transactions("tx", 7, 0, [PLAIN], adds=False, done=answers.append)
        cluster.broker.pass_time(100)

    verify_partition()
    assert answers.pop() == {PLAIN: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    for each in cluster.coordinators:
        cluster.services.transactions.on_resign(each)
    cluster.image_is(image_of(dict.fromkeys(cluster.coordinators, 2), {2: 9093}))
    cluster.brokers.serve["10.0.0.2"] = cluster.other.call
    verify_partition()
    assert answers.pop() == {PLAIN: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert len(cluster.brokers.made) == 1


def test_waiting_requests_fail_when_the_broker_stops(cluster: Cluster) -> None:
    begin_transaction(cluster)
    assert cluster.client.end_transaction() == NONE
    cluster.broker.pass_time(100)
    cluster.broker.broker.close()
    assert cluster.brokers.to(2).is_closed
