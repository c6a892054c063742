"""A cluster's metadata as clients see it: leaders, in-sync replicas and the controller."""

from collections.abc import Iterable
from typing import NamedTuple

from kazoo.client import KazooClient

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.metadata import ClusterView
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataResponse
from pyspark_klog.testing import Broker, KlogCluster


class Sight(NamedTuple):
    """The metadata of a cluster as one broker reports it."""

    controller: int
    leaders: dict[tuple[str, int], int]
    in_sync: dict[tuple[str, int], frozenset[int]]

    def lacks(self, brokers: frozenset[int], topics: Iterable[str]) -> str | None:
        """The first problem (no controller, a topic missing, not led, not in sync), or None."""
        if self.controller not in brokers:
            return "no controller"
        there = {topic for topic, _ in self.leaders}
        missing = sorted(set(topics) - there)
        if missing:
            return f"no topic {missing[0]}"
        for (topic, number), leader in self.leaders.items():
            if leader not in brokers:
                return f"{topic}-{number} has no leader"
            if self.in_sync[topic, number] != brokers:
                return f"{topic}-{number} has in sync {sorted(self.in_sync[topic, number])}"
        return None


def seen_by(broker: Broker) -> Sight | None:
    """The metadata that a broker reports; None if the broker does not answer."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "default.api.timeout.ms": 3_000,
        "request.timeout.ms": 2_000,
    }
    try:
        with BlockingClient(settings) as client:
            link = client.link_to_any(client.deadline())
            reply = client.call(link, MetadataResponse, lambda _: MetadataRequest(topics=None))
    except (KlogError, OSError):
        return None
    view = ClusterView.of(reply)
    rows = {
        (name, number): each
        for name, topic in view.topics.items()
        for number, each in topic.partitions.items()
    }
    return Sight(
        view.controller_id,
        {where: each.leader for where, each in rows.items()},
        {where: frozenset(each.in_sync) for where, each in rows.items()},
    )


def lacks(cluster: KlogCluster, topics: Iterable[str]) -> str | None:
    """The first problem that any broker reports; None if all agree that all is well."""
    numbers = frozenset(range(1, len(cluster.brokers) + 1))
    first: Sight | None = None
    for number, broker in enumerate(cluster.brokers, 1):
        sight = seen_by(broker)
        if sight is None:
            return f"broker {number} does not answer"
        found = sight.lacks(numbers, topics)
        if found is not None:
            return f"broker {number} sees: {found}"
        first = first or sight
        if sight != first:
            return f"broker {number} sees other leaders than broker 1"
    return None


def session_of(cluster: KlogCluster, number: int) -> int | None:
    """The id of the ZooKeeper session that registered a broker; None: there is none."""
    client = KazooClient(cluster.zookeeper.address)
    client.start(timeout=60)
    try:
        stat = client.exists(f"/brokers/ids/{number}")
        return None if stat is None else int(stat.ephemeralOwner)
    finally:
        client.stop()
        client.close()
