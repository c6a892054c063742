"""The two clusters of a benchmark: three brokers and a ZooKeeper each, klog's and Kafka 3.9.1's."""

import itertools
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from benchmarks._brokers import KAFKA, KLOG
from benchmarks._load.jobs import LoadFailed, Target
from benchmarks._turns import progress
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.metadata import PartitionInfo
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.testing import Broker, KlogCluster
from pyspark_klog.testing.zookeeper import ZooKeeper
from pyspark_klog.znodes.cluster import decode_controller
from tests.support.eventually import eventually
from tests.support.kafka.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperKafka, kafka_cluster

BROKERS = 3
HEAP_MB = 512
"""The heap of each of Kafka's three brokers; the default of its start script is 1 GB."""

_SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "log.segment.delete.delay.ms": "100",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
}
# Only a benchmark moves leaders: Kafka would move them by itself after five minutes, klog never.
_KAFKA_SETTINGS = {**_SETTINGS, "auto.leader.rebalance.enable": "false"}
_CLIENT = {
    "connections.max.idle.ms": "600000",
    "request.timeout.ms": "120000",
    "default.api.timeout.ms": "300000",
}
_WARM_DEADLINE_S = 300.0
_DEADLINE_S = 180.0
_SHOWN_CHARACTERS = 2_000
_LATEST = -1


@dataclass(frozen=True)
class Node:
    """A broker that can be ended and started again, on the same port and data."""

    broker_id: int
    pid: Callable[[], int]
    data: Path
    kill: Callable[[], None]
    """Ends the broker by SIGKILL."""
    stop: Callable[[], None]
    """Sends SIGTERM and waits for the end."""
    start: Callable[[], None]
    """Starts the broker and waits until it answers."""
    output: Callable[[], str]


@dataclass
class ClusterSide:
    """A running cluster."""

    name: str
    nodes: dict[int, Node]
    client: BlockingClient
    zookeeper: KazooClient
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    # --- topics ----------------------------------------------------------------------------------
    def create_topic(self, purpose: str, partitions: int = 1, replicas: int = BROKERS) -> str:
        """Create a topic; wait until all replicas are in sync and partition 0 serves."""
        name = f"bench-{purpose}-{next(self._numbers)}"
        Admin(client=self.client).create_topics([NewTopic(name, partitions, replicas)])
        self.wait_until_whole(name, replicas)
        self.end_offset(name)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until its files are gone on all brokers."""
        Admin(client=self.client).delete_topics([name])
        of_topic = re.compile(rf"{re.escape(name)}-\d+(\..*)?")

        def is_gone() -> bool:
            entries = (entry for node in self.nodes.values() for entry in node.data.iterdir())
            return not any(of_topic.fullmatch(entry.name) for entry in entries)

        eventually(is_gone, _DEADLINE_S, f"{self.name} removing the files of {name}")

    @contextmanager
    def topic(self, purpose: str, partitions: int = 1, replicas: int = BROKERS) -> Iterator[str]:
        """A topic that exists for the with statement."""
        name = self.create_topic(purpose, partitions, replicas)
        try:
            yield name
        finally:
            self.delete_topic(name)

    def partitions(self, topic: str) -> dict[int, PartitionInfo]:
        """Leaders and in-sync replicas in the metadata of a broker now."""
        view = self.client.refresh([topic])
        return dict(view.topics[topic].partitions)

    def wait_until_whole(self, topic: str, replicas: int = BROKERS) -> None:
        """Wait until every partition has a leader and all replicas are in sync."""

        def is_whole() -> bool:
            infos = self.partitions(topic).values()
            return bool(infos) and all(
                info.leader >= 0 and len(info.in_sync) == replicas for info in infos
            )

        eventually(is_whole, _DEADLINE_S, f"{self.name} having all replicas of {topic} in sync")

    def elect_preferred(self, topic: str) -> None:
        """Move the leadership of each partition to the first of its replicas."""
        deadline_ms = self.client.deadline()
        numbers = list(self.partitions(topic))
        wanted = [TopicPartitions(topic=topic, partitions=numbers)]
        link = self.client.link_to_broker(self.controller(), deadline_ms)
        self.client.call(
            link, ElectLeadersResponse, lambda _: ElectLeadersRequest(topic_partitions=wanted)
        )

        def is_back() -> bool:
            infos = self.partitions(topic).values()
            return all(info.leader == info.replicas[0] for info in infos)

        eventually(is_back, _DEADLINE_S, f"{self.name} having preferred leaders of {topic}")

    def end_offset(self, topic: str, number: int = 0) -> int:
        """The end of a partition for consumers, according to its leader."""
        partition = TopicPartition(topic, number)
        deadline_ms = self.client.deadline()

        def latest_offset() -> list[int]:
            leader = self.client.leader_of(partition, deadline_ms).leader
            link = self.client.link_to_broker(leader, deadline_ms)
            reply = self.client.call(
                link, ListOffsetsResponse, lambda _: latest_offsets(topic, [number]), low=1
            )
            row = reply.topics[0].partitions[0]
            if row.error_code:
                self.client.forget_topic(topic)
            return [] if row.error_code else [row.offset]

        (found,) = eventually(
            latest_offset, _DEADLINE_S, f"{self.name} telling where {partition} ends"
        )
        return found

    def expect_records(self, topic: str, expected: int, number: int = 0) -> None:
        """Raise LoadFailed unless the new topic holds ``expected`` records."""
        found = self.end_offset(topic, number)
        if found != expected:
            raise LoadFailed(f"{self.name}: {topic} holds {found} records, expected {expected}")

    # --- brokers ---------------------------------------------------------------------------------
    def address(self, broker_id: int) -> Address:
        """The address where a broker listens."""
        return self.client.view.brokers[broker_id]

    def controller(self) -> int:
        """The controller's broker id, from its znode."""
        return decode_controller(self.zookeeper.get("/controller")[0]).broker_id

    def target(self, topic: str, number: int = 0) -> Target:
        """A partition at its leader as a target; the CPU time is that of all brokers."""
        topic_info = self.client.refresh([topic]).topics[topic]
        leader = topic_info.partitions[number].leader
        address = self.address(leader)
        others = tuple(node.pid() for each, node in self.nodes.items() if each != leader)
        pid = self.nodes[leader].pid()
        uuid = str(topic_info.topic_id)
        return Target(address.host, address.port, pid, topic, uuid, number, others)

    def first_led(self, topic: str) -> int:
        """The number of a partition that the first broker leads.

        A leader that is always the same has warm kernels or compiled code, in every turn but the
        first.
        """
        first = min(self.nodes)
        infos = self.partitions(topic)
        return next(number for number, info in infos.items() if info.leader == first)

    def newest_version(self, api_key: ApiKey) -> int:
        """The newest version of an API that both these brokers and klog's own client support."""
        return self.client.link_to_any(self.client.deadline()).connection.version(api_key)


@dataclass(frozen=True)
class ClusterPair:
    klog: ClusterSide
    kafka: ClusterSide

    @property
    def sides(self) -> tuple[ClusterSide, ClusterSide]:
        return self.klog, self.kafka

    def common_version(self, api_key: ApiKey) -> int:
        """The newest version of an API that both clusters support."""
        return min(side.newest_version(api_key) for side in self.sides)


def latest_offsets(topic: str, numbers: Sequence[int]) -> ListOffsetsRequest:
    """A request for the ends of partitions."""
    rows = [ListOffsetsPartition(partition_index=each, timestamp=_LATEST) for each in numbers]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=rows)])


@contextmanager
def both_clusters() -> Iterator[ClusterPair]:
    """Both clusters, each with its own ZooKeeper; the first broker of each is the controller."""
    for package in ("pyspark_klog", "klog_broker"):
        command = [sys.executable, "-m", f"{package}.warm"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=_WARM_DEADLINE_S)
    with klog_cluster() as klog, kafka_cluster_side() as kafka:
        yield ClusterPair(klog, kafka)


@contextmanager
def klog_cluster() -> Iterator[ClusterSide]:
    named: dict[str, Any] = {name.replace(".", "_"): text for name, text in _SETTINGS.items()}
    with KlogCluster(BROKERS, start_timeout_s=_DEADLINE_S, **named) as cluster:
        nodes = {number: _klog_node(number, cluster.broker(number)) for number in (1, 2, 3)}
        at = cluster.bootstrap_servers, cluster.zookeeper.address
        with _side(KLOG, nodes, *at) as side:
            yield side


@contextmanager
def kafka_cluster_side() -> Iterator[ClusterSide]:
    numbers = (1, 2, 3)
    with (
        ZooKeeper() as zookeeper,
        kafka_cluster(
            zookeeper.address, numbers, properties=_KAFKA_SETTINGS, heap_mb=HEAP_MB
        ) as servers,
    ):
        nodes = {number: _kafka_node(number, servers[number]) for number in numbers}
        addresses = ",".join(servers[number].bootstrap_servers for number in numbers)
        with _side(KAFKA, nodes, addresses, zookeeper.address) as side:
            yield side


def _klog_node(number: int, broker: Broker) -> Node:
    pid = partial(getattr, broker, "pid")
    return Node(number, pid, broker.data, broker.kill, broker.stop, broker.start, broker.output)


def _kafka_node(number: int, server: ZooKeeperKafka) -> Node:
    pid = partial(getattr, server, "pid")
    ends = server.kill, server.shut_down, server.start_again
    return Node(number, pid, server.log_dir, *ends, server.output)


@contextmanager
def _side(
    name: str, nodes: Mapping[int, Node], bootstrap_servers: str, zookeeper: str
) -> Iterator[ClusterSide]:
    before = signal.signal(signal.SIGTERM, _end)
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGTERM, before)
        settings = {"bootstrap.servers": bootstrap_servers, **_CLIENT}
        client = stack.enter_context(BlockingClient(settings))
        keeper = KazooClient(zookeeper)
        keeper.start(timeout=60)
        stack.callback(keeper.close)
        stack.callback(keeper.stop)
        side = ClusterSide(name, dict(nodes), client, keeper)
        eventually(
            lambda: len(client.refresh([]).brokers) == BROKERS,
            _DEADLINE_S,
            f"{name} telling of all its brokers",
        )
        try:
            yield side
        except Exception:
            for node in nodes.values():
                end = node.output()[-_SHOWN_CHARACTERS:]
                progress(f"the end of what {name}'s broker {node.broker_id} printed:\n{end}")
            raise


def _end(number: int, _: object) -> None:
    """Raise SystemExit, so that the brokers are stopped: they would run on otherwise."""
    raise SystemExit(128 + number)
