"""klog's brokers in a cluster, as Kafka 3.9.1's tools and a broker of its own see them."""

import json
from collections.abc import Iterator

import pytest

from pyspark_klog.client.admin import Admin, NewTopic
from pyspark_klog.client.blocking import BlockingClient
from pyspark_klog.protocol.apis.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from pyspark_klog.testing import Broker, Cluster
from pyspark_klog.testing.zookeeper import ZooKeeper
from tests.support.eventually import eventually
from tests.support.kafka_zookeeper import ZOOKEEPER_SHELL, ZooKeeperKafka
from tests.support.peers import OLDEST_KAFKA, run_tool

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(zookeeper_session_timeout_ms=6_000) as started:
        yield started


def shell(zookeeper: str, *words: str) -> str:
    """What zookeeper-shell prints: the tool is ZooKeeper's own. A thread of its own tells of the
    connection, before the answer or behind it."""
    done = run_tool(OLDEST_KAFKA, ZOOKEEPER_SHELL, ["-server", zookeeper, *words])
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return [line for line in lines if not line.startswith(("WATCHER::", "WatchedEvent "))][-1]


def described(servers: str) -> tuple[dict[int, str], int]:
    """Brokers with their addresses, and the controller, as the broker there tells."""
    with BlockingClient({"bootstrap.servers": servers}) as client:
        link = client.link_to_any(client.deadline())
        reply = client.ask(link, DescribeClusterResponse, lambda _: DescribeClusterRequest())
    return (
        {each.broker_id: f"{each.host}:{each.port} {each.rack}" for each in reply.brokers},
        reply.controller_id,
    )


def test_zookeeper_shell_reads_what_is_there(cluster: Cluster) -> None:
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


def test_kafkas_tools_find_the_brokers(cluster: Cluster) -> None:
    servers = ["--bootstrap-server", cluster.bootstrap_servers]
    topics = run_tool(OLDEST_KAFKA, "org.apache.kafka.tools.TopicCommand", [*servers, "--list"])
    assert (topics.returncode, topics.stdout.strip()) == (0, "")
    versions = run_tool(OLDEST_KAFKA, "kafka.admin.BrokerApiVersionsCommand", servers)
    assert versions.returncode == 0, versions.stderr
    for number, broker in enumerate(cluster.brokers, 1):
        assert f"{broker.bootstrap_servers} (id: {number} rack: null)" in versions.stdout


def test_kafkas_tools_change_topics(cluster: Cluster) -> None:
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
    cluster: Cluster,
) -> None:
    """--zookeeper: what the tool writes there itself is followed."""
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
