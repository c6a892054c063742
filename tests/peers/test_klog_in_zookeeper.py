"""klog's brokers in a cluster, as Kafka 3.9.1's tools and a broker of its own see them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from pyspark_klog.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pyspark_klog.protocol.apis.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from pyspark_klog.testing import Broker, KlogCluster
from pyspark_klog.testing.zookeeper import ZooKeeper
from tests.support.eventually import eventually
from tests.support.kafka.zookeeper_cluster import ZOOKEEPER_SHELL, ZooKeeperKafka
from tests.support.peers import OLDEST_KAFKA, run_tool
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def cluster() -> Iterator[KlogCluster]:
    with KlogCluster(zookeeper_session_timeout_ms=6_000) as started:
        yield started


def shell(zookeeper: str, *words: str) -> str:
    """Return the result that ZooKeeper's own zookeeper-shell prints. Another of its threads prints
    the connection's state before or after the result."""
    done = run_tool(OLDEST_KAFKA, ZOOKEEPER_SHELL, ["-server", zookeeper, *words])
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return [line for line in lines if not line.startswith(("WATCHER::", "WatchedEvent "))][-1]


def described(servers: str) -> tuple[dict[int, str], int]:
    """Brokers with their addresses, and the controller, as the broker there tells."""
    with BlockingClient({"bootstrap.servers": servers}) as client:
        link = client.link_to_any(client.deadline())
        reply = client.call(link, DescribeClusterResponse, lambda _: DescribeClusterRequest())
    return (
        {each.broker_id: f"{each.host}:{each.port} {each.rack}" for each in reply.brokers},
        reply.controller_id,
    )


def test_zookeeper_shell_reads_what_is_there(cluster: KlogCluster) -> None:
    address = cluster.zookeeper.address
    assert shell(address, "ls", "/brokers/ids") == "[1, 2, 3]"
    host, port = cluster.broker(2).bootstrap_servers.split(":")
    said = json.loads(shell(address, "get", "/brokers/ids/2"))
    assert (said["version"], said["endpoints"]) == (5, [f"PLAINTEXT://{host}:{port}"])
    controller = json.loads(shell(address, "get", "/controller"))
    _, told = described(cluster.bootstrap_servers)
    assert (controller["brokerid"], controller["kraftControllerEpoch"]) == (told, -1)
    assert shell(address, "get", "/controller_epoch") == "1"
    assert len(json.loads(shell(address, "get", "/cluster/id"))["id"]) == 22
    features = json.loads(shell(address, "get", "/feature"))
    assert features == {"features": {}, "version": 2, "status": 1}


def test_kafkas_tools_find_the_brokers(cluster: KlogCluster) -> None:
    servers = ["--bootstrap-server", cluster.bootstrap_servers]
    topics = run_tool(OLDEST_KAFKA, "org.apache.kafka.tools.TopicCommand", [*servers, "--list"])
    assert (topics.returncode, topics.stdout.strip()) == (0, "")
    versions = run_tool(OLDEST_KAFKA, "kafka.admin.BrokerApiVersionsCommand", servers)
    assert versions.returncode == 0, versions.stderr
    for number, broker in enumerate(cluster.brokers, 1):
        assert f"{broker.bootstrap_servers} (id: {number} rack: null)" in versions.stdout


def test_kafkas_tools_change_topics(cluster: KlogCluster) -> None:
    def topics(*words: str) -> str:
        servers = ["--bootstrap-server", cluster.bootstrap_servers]
        done = run_tool(OLDEST_KAFKA, "org.apache.kafka.tools.TopicCommand", [*servers, *words])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    named = ["--topic", "orders"]
    topics("--create", *named, "--partitions", "3", "--replication-factor", "2")
    topics("--alter", *named, "--partitions", "5")
    described = topics("--describe", *named)
    assert "PartitionCount: 5\tReplicationFactor: 2" in described
    assert "none" not in described
    assert topics("--list").split() == ["orders"]
    topics("--delete", *named)
    eventually(lambda: not topics("--list").split(), deadline_s=60, what="the deletion")


def test_kafkas_configs_tool_changes_settings_through_brokers_and_through_zookeeper(
    cluster: KlogCluster,
) -> None:
    """Settings that the tool writes to ZooKeeper itself (--zookeeper) are applied."""
    servers = ["--bootstrap-server", cluster.bootstrap_servers]

    def configs(*words: str) -> str:
        done = run_tool(OLDEST_KAFKA, "kafka.admin.ConfigCommand", list(words))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("set", 1, 1)])
    topic = ["--entity-type", "topics", "--entity-name", "set"]
    configs(*servers, "--alter", *topic, "--add-config", "retention.ms=1234")
    assert "retention.ms=1234 " in configs(*servers, "--describe", *topic)
    brokers = ["--entity-type", "brokers", "--entity-default"]
    configs(*servers, "--alter", *brokers, "--add-config", "log.retention.ms=777")
    assert "log.retention.ms=777 " in configs(*servers, "--describe", *brokers)
    users = ["--entity-type", "users", "--entity-name", "al/ice"]
    clients = ["--entity-type", "clients", "--entity-default"]
    rate = "producer_byte_rate=1000"
    configs(*servers, "--alter", *users, *clients, "--add-config", rate)
    told = configs(*servers, "--describe", *users, *clients)
    assert "producer_byte_rate=1000.0" in told
    address = cluster.zookeeper.address
    assert json.loads(shell(address, "get", "/config/users/al%2Fice/clients/<default>")) == {
        "version": 1,
        "config": {"producer_byte_rate": "1000"},
    }
    zookeeper = ["--zookeeper", address]
    user = ["--entity-type", "users", "--entity-name", "bob"]
    configs(*zookeeper, "--alter", *user, "--add-config", "SCRAM-SHA-256=[password=secret]")
    path = "/config/users/bob"
    assert "SCRAM-SHA-256" in json.loads(shell(address, "get", path))["config"]
    configs(*servers, "--alter", *user, "--add-config", "request_percentage=12.5")
    written = json.loads(shell(address, "get", path))["config"]
    assert written.keys() == {"SCRAM-SHA-256", "request_percentage"}, "passwords stay"


def test_kafkas_broker_and_klogs_see_each_other() -> None:
    """Kafka's controller has read klog's registration, and klog both of Kafka's znodes."""
    with (
        ZooKeeper() as zookeeper,
        ZooKeeperKafka(zookeeper.address, 9) as kafka,
        Broker(
            broker_id=1,
            broker_rack="r1",
            zookeeper_connect=zookeeper.address,
            zookeeper_session_timeout_ms=6_000,
        ) as klog,
    ):
        expected = {1: f"{klog.bootstrap_servers} r1", 9: f"127.0.0.1:{kafka.port} None"}
        for servers in (klog.bootstrap_servers, kafka.bootstrap_servers):
            eventually(
                lambda servers=servers: described(servers) == (expected, 9),
                deadline_s=60,
                what=f"both brokers, as {servers} tells",
            )


def test_kafkas_broker_shows_all_partitions_of_a_topic_of_klogs_controller_or_none() -> None:
    """Kafka's broker has no replicas of these topics and only gets UpdateMetadata requests."""
    with (
        ZooKeeper() as zookeeper,
        Broker(
            broker_id=1,
            zookeeper_connect=zookeeper.address,
            zookeeper_session_timeout_ms=6_000,
        ) as klog,
        ZooKeeperKafka(zookeeper.address, 9) as kafka,
        BlockingClient({"bootstrap.servers": klog.bootstrap_servers}) as client,
        Admin(klog.bootstrap_servers) as admin,
    ):
        with partition_counts(kafka.bootstrap_servers, "grows") as counts:
            create_on_klog(client, "grows", 300, timeout_ms=60_000)
            eventually(lambda: counts[-1] == 300, deadline_s=60, what="the new topic")
            grow_on_klog(client, "grows", 300, 600)
            eventually(lambda: counts[-1] == 600, deadline_s=60, what="the new partitions")
            admin.delete_topics(["grows"])
            eventually(lambda: counts[-1] == 0, deadline_s=60, what="the deletion")
        assert counts == [0, 300, 600, 0]
        with partition_counts(kafka.bootstrap_servers, "large") as counts:
            # Kafka's broker shows the topic long before klog's has made all of its logs.
            create_on_klog(client, "large", 10_000, timeout_ms=1)
            eventually(lambda: counts[-1] == 10_000, deadline_s=120, what="the large topic")
        assert counts == [0, 10_000]


@contextmanager
def partition_counts(servers: str, topic: str) -> Iterator[list[int]]:
    """Ask a broker for a topic's partitions all the time. The list gets each new number of them."""
    counts: list[int] = []
    is_over, has_begun = Event(), Event()

    def poll_partitions() -> None:
        wanted = [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        with BlockingClient({"bootstrap.servers": servers}) as client:
            while not is_over.is_set():
                link = client.link_to_any(client.deadline())
                reply = client.call(link, MetadataResponse, lambda _: request)
                count = len(reply.topics[0].partitions)
                if counts[-1:] != [count]:
                    counts.append(count)
                has_begun.set()

    thread = Thread(target=poll_partitions)
    thread.start()
    try:
        assert has_begun.wait(60)
        yield counts
    finally:
        is_over.set()
        thread.join()


def create_on_klog(client: BlockingClient, topic: str, count: int, *, timeout_ms: int) -> None:
    """Create a topic whose partitions have their one replica on broker 1."""
    rows = [
        CreatableReplicaAssignment(partition_index=each, broker_ids=[1]) for each in range(count)
    ]
    wanted = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=rows)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=timeout_ms)
    link = client.link_to_any(client.deadline())
    reply = client.call(link, CreateTopicsResponse, lambda _: request, timeout_ms=120_000)
    expected = ErrorCode.NONE if timeout_ms > 1 else ErrorCode.REQUEST_TIMED_OUT
    assert reply.topics[0].error_code == expected


def grow_on_klog(client: BlockingClient, topic: str, before: int, after: int) -> None:
    """Add partitions that have their one replica on broker 1."""
    rows = [CreatePartitionsAssignment(broker_ids=[1]) for _ in range(before, after)]
    wanted = CreatePartitionsTopic(name=topic, count=after, assignments=rows)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=60_000)
    link = client.link_to_any(client.deadline())
    reply = client.call(link, CreatePartitionsResponse, lambda _: request, timeout_ms=120_000)
    assert reply.results[0].error_code == ErrorCode.NONE


def test_metadata_that_creates_a_topic_has_no_leader_yet_as_at_kafka(cluster: KlogCluster) -> None:
    """Each version, asked at the controller and at another broker."""
    _, controller = described(cluster.bootstrap_servers)
    other = controller % len(cluster.brokers) + 1
    servers = [cluster.broker(each).bootstrap_servers for each in (controller, other)]
    with ZooKeeper() as zookeeper, ZooKeeperKafka(zookeeper.address, 9) as kafka:
        for broker in (kafka.bootstrap_servers, *servers):
            host, port = broker.split(":")
            with RawClient((host, int(port))) as client:
                for version in range(MetadataRequest.min_version, 13):
                    topic = MetadataRequestTopic(name=f"created-{port}-{version}")
                    request = MetadataRequest(topics=[topic])
                    (answer,) = client.call(request, version).topics
                    found = (answer.error_code, answer.partitions)
                    assert found == (ErrorCode.LEADER_NOT_AVAILABLE, []), (broker, version)
                    eventually(
                        lambda client=client, request=request, version=version: (
                            client.call(request, version).topics[0].error_code == 0
                        ),
                        deadline_s=60,
                        what=f"the topic that version {version} has created",
                    )
