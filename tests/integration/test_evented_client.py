"""The evented client of a cluster in a background thread: metadata, brokers, and their failures."""

from collections.abc import Iterator

import pytest

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.errors import LeaderUnknown, SettingError
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataResponse
from tests.support.client.thread_client import ClusterClient
from tests.support.eventually import eventually


@pytest.fixture(scope="module")
def cluster() -> Iterator[testing.KlogCluster]:
    with testing.KlogCluster(3, default_replication_factor=3) as started:
        with Admin(started.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 6), NewTopic("bills", 1)])
        yield started


def settings(servers: str, **more: str) -> dict[str, str]:
    return {"bootstrap.servers": servers} | {n.replace("__", "."): v for n, v in more.items()}


def test_the_leaders_of_the_followed_topics_are_known(cluster: testing.KlogCluster) -> None:
    with ClusterClient(settings(cluster.bootstrap_servers)) as client:
        client.follow("orders", "bills")
        view = client.client.view
        assert len(view.topics["orders"].partitions) == 6
        assert all(view.leader(TopicPartition("orders", n)) for n in range(6))
        assert sorted(view.brokers) == [1, 2, 3]
        request = MetadataRequest(topics=[])
        for broker_id in view.brokers:
            response = client.call_broker(broker_id, MetadataResponse, lambda _: request)
            assert response.cluster_id == view.cluster_id
        assert client.failures == []


def test_a_topic_that_does_not_exist(cluster: testing.KlogCluster) -> None:
    with ClusterClient(settings(cluster.bootstrap_servers)) as client:
        client.follow("nowhere")
        found = client.client.view.topics["nowhere"]
        assert (found.error, found.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {})


def test_a_topic_is_created_when_the_client_may_create_topics(cluster: testing.KlogCluster) -> None:
    with ClusterClient(settings(cluster.bootstrap_servers), may_create_topics=True) as client:
        client.follow("created")

        def has_leader() -> bool:
            client.loop.post(lambda: client.client.doubt("created"))
            return client.client.view.leader(TopicPartition("created", 0)) is not None

        eventually(has_leader, deadline_s=60, what="the leader of the created topic")


def test_a_broker_that_is_not_known(cluster: testing.KlogCluster) -> None:
    with ClusterClient(settings(cluster.bootstrap_servers)) as client, pytest.raises(LeaderUnknown):
        client.call_broker(99, MetadataResponse, lambda _: MetadataRequest(topics=[]))


def test_a_bootstrap_server_that_cannot_be_reached(cluster: testing.KlogCluster) -> None:
    servers = f"127.0.0.1:1,{cluster.bootstrap_servers.split(',')[0]}"
    with ClusterClient(settings(servers, retry__backoff__ms="10")) as client:
        client.follow("orders")
        assert len(client.client.view.brokers) == 3


def test_no_bootstrap_server() -> None:
    with pytest.raises(SettingError, match=r"bootstrap\.servers is missing"):
        ClusterClient({})


def test_the_new_leader_is_found_after_a_leader_has_died() -> None:
    with testing.KlogCluster(2, default_replication_factor=2) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1)])
        given = settings(cluster.bootstrap_servers, retry__backoff__ms="20")
        with ClusterClient(given) as client:
            client.follow("t")
            partition = TopicPartition("t", 0)
            first = client.client.view.leader(partition)
            assert first is not None
            cluster.broker(first.leader).kill()

            def has_another_leader() -> bool:
                client.loop.post(lambda: client.client.doubt("t"))
                found = client.client.view.leader(partition)
                return found is not None and found.leader != first.leader

            eventually(has_another_leader, deadline_s=90, what="another leader")
