"""A broker of a cluster starts with an empty data directory in the place of one that it had.

Apache Kafka 3.9.1 with ZooKeeper and klog do the same: the broker starts, its followers copy
missing data from their leaders, and a partition that has no other replica begins again, empty.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from pyspark_klog.ids import UUID, DirectoryId
from pyspark_klog.storage.text_files import (
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from pyspark_klog.testing.ports import free_ports
from pyspark_klog.testing.zookeeper import ZooKeeper
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.kafka.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperKafka

pytestmark = pytest.mark.peers

PARTITIONS, RECORDS = 4, 10
REPLICAS = {"alone": [2], "shared": [1, 2]}


class KlogBroker:
    """A klog broker in a cluster, with the calls of a ZooKeeperKafka that are used here."""

    def __init__(self, zookeeper: str, broker_id: int, log_dirs: list[Path]) -> None:
        (self._port,) = free_ports(1)
        self._data = log_dirs[0].parent / "klog"
        self._settings = {
            "broker.id": broker_id,
            "zookeeper.connect": zookeeper,
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
            "log.dirs": ",".join(map(str, log_dirs)),
        }
        self._process: BrokerProcess
        self.start_again()

    @property
    def bootstrap_servers(self) -> str:
        return self._process.bootstrap_servers

    def start_again(self) -> None:
        self._process = BrokerProcess(self._data, self._settings, port=self._port)

    def shut_down(self) -> None:
        self._process.terminate()


Brokers = Mapping[int, Any]


@contextmanager
def cluster(maker: str, folder: Path) -> Iterator[Brokers]:
    """Brokers 1 and 2, with two data directories each."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper()).address
        brokers: dict[int, Any] = {}
        for number in (1, 2):
            log_dirs = directories(folder, number)
            for each in log_dirs:
                each.mkdir(parents=True)
            if maker == "klog":
                brokers[number] = KlogBroker(zookeeper, number, log_dirs)
                stack.callback(brokers[number].shut_down)
            else:
                settings = {"log.dirs": ",".join(map(str, log_dirs))}
                kafka = ZooKeeperKafka(zookeeper, number, properties=settings, heap_mb=400)
                brokers[number] = stack.enter_context(kafka)
        yield brokers


def directories(folder: Path, number: int) -> list[Path]:
    return [folder / str(number) / name for name in ("a", "b")]


def ends(servers: str, topic: str) -> list[int]:
    """The end offset of each partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "ends"})
    try:
        marks = [
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
            for number in range(PARTITIONS)
        ]
        return [high for _, high in marks]
    finally:
        consumer.close()


def has_all_in_sync(admin: AdminClient) -> bool:
    topics = admin.list_topics(timeout=30).topics
    return topics.keys() >= REPLICAS.keys() and all(
        sorted(partition.isrs) == REPLICAS[name] and partition.leader > 0
        for name in REPLICAS
        for partition in topics[name].partitions.values()
    )


def after_an_empty_directory(maker: str, folder: Path) -> dict[str, object]:
    """The view of clients after the second directory of broker 2 was emptied while stopped."""
    with cluster(maker, folder) as brokers:
        servers = brokers[1].bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        eventually(lambda: len(admin.list_topics().brokers) == 2, deadline_s=60, what="2 brokers")
        new = [
            NewTopic(name, PARTITIONS, replica_assignment=[replicas] * PARTITIONS)
            for name, replicas in REPLICAS.items()
        ]
        for future in admin.create_topics(new).values():
            future.result(60)
        eventually(lambda: has_all_in_sync(admin), deadline_s=60, what="all in sync")
        producer = Producer({"bootstrap.servers": servers, "acks": "all"})
        for name in REPLICAS:
            for number in range(PARTITIONS * RECORDS):
                producer.produce(name, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        brokers[2].shut_down()
        _, emptied = directories(folder, 2)
        lost = [n for n in range(PARTITIONS) if (emptied / f"alone-{n}").exists()]
        kept = [n for n in range(PARTITIONS) if n not in lost]
        shutil.rmtree(emptied)
        emptied.mkdir()
        brokers[2].start_again()
        eventually(lambda: has_all_in_sync(admin), deadline_s=120, what="all in sync again")
        alone = ends(servers, "alone")
        seen: dict[str, object] = {
            "lost": sorted({alone[n] for n in lost}),
            "kept": sorted({alone[n] for n in kept}),
            "meta.properties": (emptied / "meta.properties").exists(),
        }
        # Broker 2 is the only one that is left, and leads what it has copied.
        brokers[1].shut_down()
        copies = brokers[2].bootstrap_servers
        eventually(lambda: ends(copies, "shared"), deadline_s=60, what="a new leader")
        seen["shared"] = ends(copies, "shared")
        brokers[1].start_again()
        return seen


def test_a_cluster_handles_an_empty_directory_as_kafka_does(tmp_path: Path) -> None:
    makers = ("kafka", "klog")
    seen = {maker: after_an_empty_directory(maker, tmp_path / maker) for maker in makers}
    assert seen["klog"] == seen["kafka"]
    assert seen["klog"] == {
        "lost": [0],
        "kept": [RECORDS],
        "meta.properties": True,
        "shared": [RECORDS] * PARTITIONS,
    }


def test_kafka_reads_the_ids_of_directories_that_klog_writes(tmp_path: Path) -> None:
    """Kafka also refuses what klog refuses: a reserved id, and one id in two directories."""
    log_dirs = [tmp_path / name for name in ("a", "b")]
    settings = {"log.dirs": ",".join(map(str, log_dirs))}

    def give_ids(*numbers: int) -> None:
        for directory, number in zip(log_dirs, numbers, strict=True):
            meta = own._replace(directory_id=DirectoryId(UUID(int=number)))
            (directory / "meta.properties").write_bytes(encode_meta_properties(meta))

    with (
        ZooKeeper() as zookeeper,
        ZooKeeperKafka(zookeeper.address, 1, properties=settings) as kafka,
    ):
        kafka.shut_down()
        own = owner(log_dirs[0])
        give_ids(100, 1 << 101)
        kafka.start_again()
        kafka.shut_down()
        found = [owner(each).directory_id for each in log_dirs]
        assert found == [UUID(int=100), UUID(int=1 << 101)]
        for refused in ((1 << 100, 99), (1 << 100, 1 << 100)):
            give_ids(*refused)
            with pytest.raises(Exception, match="ended at its start"):
                kafka.start_again()


def owner(directory: Path) -> MetaProperties:
    return decode_meta_properties((directory / "meta.properties").read_bytes())
