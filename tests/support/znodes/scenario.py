"""A small cluster of Apache Kafka 3.9.1 and what is done to it, so that its znodes are there.

Three brokers on one ZooKeeper; broker 0 is the controller.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kafka import KafkaProducer
from kazoo.client import KazooClient

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.eventually import eventually
from tests.support.kafka.zookeeper_cluster import ZooKeeperKafka
from tests.support.raw_client import RawClient

USER = "CN=a b*é+/%~"
_DEADLINE_S = 60.0


class Found(NamedTuple):
    """A znode with data, or a leaf without."""

    path: str
    data: bytes
    ephemeral: bool


OF_BROKERS = {
    0: {"broker.rack": "rack-a"},
    1: {"broker.rack": 'rack "b"'},
    2: {"broker.rack": r"r\u00e4ck \ud83d\ude00"},
}
"""Properties of single brokers. (Java reads a file of properties as Latin-1.)"""


def tool(broker: ZooKeeperKafka, main_class: str, *arguments: str, stdin: str | None = None) -> str:
    """Runs one of Kafka's tools against the broker; it has to succeed."""
    options = ("--bootstrap-server", broker.bootstrap_servers, *arguments)
    done = broker.run_tool(main_class, *options, stdin=stdin)
    assert done.returncode == 0, f"{main_class} {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def topics(broker: ZooKeeperKafka, *arguments: str) -> str:
    """kafka-topics."""
    return tool(broker, "org.apache.kafka.tools.TopicCommand", *arguments)


def configs(broker: ZooKeeperKafka, *arguments: str) -> str:
    """kafka-configs."""
    return tool(broker, "kafka.admin.ConfigCommand", *arguments)


def fill(broker: ZooKeeperKafka) -> None:
    """Topics, settings of all kinds of entities, a block of producer ids, and a position that is
    kept in ZooKeeper."""
    wide = ("--partitions", "6", "--replication-factor", "2")
    some = ("--config", "cleanup.policy=compact", "--config", "retention.ms=1000000")
    topics(broker, "--create", "--topic", "orders", *wide, *some)
    clients = ("--entity-type", "clients")
    for entity, setting in (
        (("--entity-type", "brokers", "--entity-default"), "log.cleaner.threads=2"),
        (("--entity-type", "brokers", "--entity-name", "1"), "log.cleaner.backoff.ms=1000"),
        (
            ("--entity-type", "users", "--entity-name", USER, *clients, "--entity-default"),
            "consumer_byte_rate=1000000",
        ),
        ((*clients, "--entity-name", "a/b"), "request_percentage=150.5"),
        (("--entity-type", "ips", "--entity-name", "127.0.0.9"), "connection_creation_rate=100"),
    ):
        configs(broker, "--alter", *entity, "--add-config", setting)
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True, acks="all"
    )
    producer.send("orders", key=b"1", value=b"first").get(_DEADLINE_S)
    producer.close()
    position = OffsetCommitRequestPartition(partition_index=3, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="orders", partitions=[position])
    with RawClient(("127.0.0.1", broker.port), timeout_s=_DEADLINE_S) as client:
        answer = client.call(OffsetCommitRequest(group_id="a group", topics=[topic]), 0)
        assert answer.topics[0].partitions[0].error_code == 0


def leave_unfinished(brokers: dict[int, ZooKeeperKafka], zookeeper: KazooClient) -> None:
    """Begin a reassignment and a deletion that cannot end, because broker 2 is paused. At the end
    broker 2 is dead, and a partition has lost its leader."""
    broker = brokers[0]
    for name, replicas in (("moving", "0:1"), ("going", "0:2"), ("lone", "2")):
        topics(broker, "--create", "--topic", name, "--replica-assignment", replicas)
    brokers[2].pause()
    # Kafka's tools may ask the paused broker, so send the request directly.
    move = ReassignablePartition(partition_index=0, replicas=[2, 0])
    with RawClient(("127.0.0.1", broker.port), timeout_s=_DEADLINE_S) as controller:
        answer = controller.call(
            AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name="moving", partitions=[move])]
            ),
            0,
        )
        assert answer.error_code == answer.responses[0].partitions[0].error_code == 0
        answer = controller.call(DeleteTopicsRequest(topic_names=["going"], timeout_ms=1), 1)
        assert answer.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    brokers[2].resume()
    brokers[2].kill()
    eventually(
        lambda: b'"leader":-1' in zookeeper.get("/brokers/topics/lone/partitions/0/state")[0],
        _DEADLINE_S,
        "a partition without a leader",
    )


def znodes(zookeeper: KazooClient, path: str = "/") -> Iterator[Found]:
    """Everything below ``path`` that has data or no children."""
    data, stat = zookeeper.get(path)
    children = sorted(zookeeper.get_children(path))
    if data or not children:
        yield Found(path, data or b"", stat.ephemeralOwner != 0)
    for child in children:
        yield from znodes(zookeeper, f"{path.rstrip('/')}/{child}")
