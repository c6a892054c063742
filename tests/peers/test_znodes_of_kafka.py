"""ZooKeeper's znodes between klog and a running Apache Kafka 3.9.1, both ways, and its shell."""

import json
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kazoo.client import KazooClient

from pyspark_klog.ids import UUID, TopicId, TopicPartition
from pyspark_klog.testing.zookeeper import ZooKeeper
from pyspark_klog.znodes.brokers import decode_broker
from pyspark_klog.znodes.configs import config_path, encode_config, encode_config_change, entity
from pyspark_klog.znodes.data import encode_uuid
from pyspark_klog.znodes.paths import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    CONTROLLER,
    broker_path,
    delete_topic_path,
    partition_state_path,
    topic_path,
)
from pyspark_klog.znodes.topics import (
    PartitionAssignment,
    TopicAssignment,
    decode_partition_state,
    encode_topic,
)
from tests.support.eventually import eventually
from tests.support.kafka.zookeeper_cluster import ZOOKEEPER_SHELL, ZooKeeperKafka, kafka_cluster
from tests.support.znodes.cases import codec
from tests.support.znodes.scenario import configs, fill, topics, znodes

pytestmark = pytest.mark.peers

CHROOT = "/kafka"
LISTENERS = {"EXTERNAL": "PLAINTEXT", "OTHER": "PLAINTEXT"}


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeper]:
    with ZooKeeper() as running:
        yield running


@pytest.fixture(scope="module")
def brokers(server: ZooKeeper) -> Iterator[dict[int, ZooKeeperKafka]]:
    with kafka_cluster(f"{server.address}{CHROOT}", (0, 1), listeners=LISTENERS) as running:
        fill(running[0])
        yield running


@pytest.fixture(scope="module")
def client(server: ZooKeeper, brokers: dict[int, ZooKeeperKafka]) -> Iterator[KazooClient]:
    client = KazooClient(f"{server.address}{CHROOT}", timeout=60.0)
    client.start()
    yield client
    client.stop()
    client.close()


def test_every_znode_that_kafka_writes_is_read_and_written_alike(client: KazooClient) -> None:
    kinds = set()
    for found in znodes(client):
        if found.data:
            both = codec(found.path)
            assert both.encode(both.decode(found.data)) == found.data, found.path
            kinds.add(found.path.split("/")[1])
    assert kinds == {
        *("brokers", "cluster", "config", "consumers", "controller", "controller_epoch"),
        *("feature", "latest_producer_id_block"),
    }


def test_a_brokers_listeners_are_those_that_it_has(
    client: KazooClient, brokers: dict[int, ZooKeeperKafka]
) -> None:
    found = decode_broker(1, client.get(broker_path(1))[0])
    addresses = {each.listener: f"{each.host}:{each.port}" for each in found.endpoints}
    assert addresses == {
        "PLAINTEXT": brokers[1].bootstrap_servers,
        **{name: brokers[1].address_of(name) for name in LISTENERS},
    }


def test_kafka_makes_what_klog_writes(
    client: KazooClient, brokers: dict[int, ZooKeeperKafka]
) -> None:
    """A topic, a setting of it with its change, and its deletion: as a controller of klog, or a
    broker without one, would write them."""
    topic, topic_id = "of-klog", TopicId(UUID(int=0x0123456789ABCDEF))
    partitions = {0: PartitionAssignment((1, 0)), 1: PartitionAssignment((0,))}
    names = entity("topics", topic)
    client.create(config_path(names), encode_config({"max.message.bytes": "2000"}))
    client.create(topic_path(topic), encode_topic(TopicAssignment(topic_id, partitions)))
    state_path = partition_state_path(TopicPartition(topic, 0))
    eventually(lambda: client.exists(state_path), 60, "Kafka's controller made the topic")
    state = decode_partition_state(TopicPartition(topic, 0), client.get(state_path)[0])
    assert (state.leader, state.isr) == (1, (1, 0))

    described = topics(brokers[0], "--describe", "--topic", topic)
    assert f"TopicId: {encode_uuid(topic_id)}" in described
    assert "PartitionCount: 2" in described and "max.message.bytes=2000" in described
    assert _is_too_large(brokers[0], topic, 3_000)
    _round_trip(brokers[0], topic)

    client.set(config_path(names), encode_config({"max.message.bytes": "200000"}))
    prefix = f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}"
    client.create(prefix, encode_config_change(names), sequence=True)
    eventually(lambda: not _is_too_large(brokers[0], topic, 3_000), 60, "the setting is in force")
    listed = configs(brokers[0], "--describe", "--entity-type", "topics", "--entity-name", topic)
    assert "max.message.bytes=200000" in listed

    client.create(delete_topic_path(topic), b"")
    eventually(lambda: not client.exists(topic_path(topic)), 60, "Kafka's controller deleted it")
    assert topic not in topics(brokers[0], "--list").split()


def test_kafkas_zookeeper_shell_shows_what_klog_writes(
    server: ZooKeeper, client: KazooClient, brokers: dict[int, ZooKeeperKafka]
) -> None:
    data = codec("/brokers/topics/t").encode(
        TopicAssignment(None, {0: PartitionAssignment((0, 1), (1,), ())})
    )
    client.create("/shown", data)
    done = brokers[0].run_tool(ZOOKEEPER_SHELL, "-server", server.address, "get", f"{CHROOT}/shown")
    assert data.decode() in done.stdout, done.stdout + done.stderr
    done = brokers[0].run_tool(
        ZOOKEEPER_SHELL, "-server", server.address, "get", f"{CHROOT}{CONTROLLER}"
    )
    shown = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    assert codec(CONTROLLER).decode(shown.encode()).broker_id == 0
    assert json.loads(shown)["version"] == 2


def _is_too_large(broker: ZooKeeperKafka, topic: str, size: int) -> bool:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all", retries=5)
    try:
        producer.send(topic, b"x" * size, partition=0).get(30)
    except Exception as error:
        assert "MessageSizeTooLarge" in repr(error), error
        return True
    finally:
        producer.close()
    return False


def _round_trip(broker: ZooKeeperKafka, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all")
    producer.send(topic, b"first", partition=1).get(30)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    assert next(consumer).value == b"first"
    consumer.close()
