"""A cluster of two brokers and three ZooKeeper servers that fails step by step, with its alerts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

from klog_broker.monitoring.catalog import BY_NAME, ONLY_IN_CLUSTER
from pyspark_klog.client.admin.topics import Admin, NewTopic
from tests.support.alerts.history import History, Target
from tests.support.alerts.promql import Labels
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually
from tests.support.monitoring.scraping import Samples, parse_samples
from tests.support.zookeeper.ensemble import Ensemble

CLUSTER_ALERTS = ("KlogNoZooKeeperSession", "KlogNoController")
"""The alerts for which only this cluster has the failure."""

_NONE: Labels = frozenset()
_CONTROLLERS = "kafka_controller_kafkacontroller_activecontrollercount"
_CONNECTED = "klog_zookeeper_session_connected"
_UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"


class Step(NamedTuple):
    """The cluster's history up to a failure that lasts, and the alerts that then fire."""

    name: str
    history: History
    alerts: frozenset[str]


class WatchedCluster:
    """Two brokers in threads, which are scraped together."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self.ensemble = running.enter_context(Ensemble(folder))
        self.brokers: dict[str, BrokerThread] = {}
        self.stopped: set[str] = set()
        for number in (1, 2):
            settings = {
                "metrics.listener": "127.0.0.1:0",
                "zookeeper.connect": self.ensemble.connect,
                "zookeeper.session.timeout.ms": "3000",
                "controlled.shutdown.enable": "false",
                "broker.id": str(number),
                "min.insync.replicas": "2",
            }
            name = f"broker-{number}"
            self.brokers[name] = BrokerThread(folder / name, settings)
            running.callback(self.stop, name)

    def stop(self, name: str) -> None:
        """Stop a broker, unless it is stopped."""
        if name not in self.stopped:
            self.stopped.add(name)
            self.brokers[name].stop()

    def scrape(self, name: str) -> Samples:
        """Return the metrics of a broker."""
        with urlopen(f"http://127.0.0.1:{self.brokers[name].broker.metrics_port}/metrics") as found:
            return parse_samples(found.read().decode())

    def status(self, name: str) -> int:
        """Return the status of a broker's /ready."""
        port = self.brokers[name].broker.metrics_port
        try:
            with urlopen(f"http://127.0.0.1:{port}/ready") as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code

    def targets(self) -> dict[str, Target]:
        """Scrape all brokers."""
        return {
            name: Target(None if name in self.stopped else self.scrape(name), time.time())
            for name in self.brokers
        }

    def wait_for(self, metric: str, value: float) -> dict[str, Target]:
        """Scrape until the sum of a metric over the brokers has this value."""

        def is_reached() -> dict[str, Target] | None:
            targets = self.targets()
            found = [(each.samples or {}).get((metric, _NONE)) for each in targets.values()]
            return targets if sum(each or 0 for each in found) == value else None

        return eventually(is_reached, 60, f"{metric} {value:g}")

    def knows_all_brokers(self) -> bool:
        """Whether each broker's metadata has all brokers."""
        images = [each.broker.services.metadata.image for each in self.brokers.values()]
        return all(len(image.brokers) == len(images) for image in images)

    def lags(self) -> set[tuple[str, float]]:
        """Return (leader, lag) of the partitions that the brokers follow."""
        return {
            (dict(labels)["leader"], lag)
            for each in self.targets().values()
            for (name, labels), lag in (each.samples or {}).items()
            if name == "klog_replica_fetcher_lag"
        }


def failing_cluster(folder: Path) -> Iterator[Step]:
    """Let a cluster fail step by step; yield its history and its alerts after each step."""
    with ExitStack() as running:
        cluster = WatchedCluster(folder, running)
        history = History()
        cluster.wait_for(_CONTROLLERS, 1)
        eventually(cluster.knows_all_brokers, 60, "both brokers in the metadata of both")
        with Admin(cluster.brokers["broker-1"].bootstrap_servers) as admin:
            admin.create_topics([NewTopic("copied", num_partitions=2, replication_factor=2)])
        eventually(lambda: cluster.lags() == {("1", 0), ("2", 0)}, 60, "followers without lag")
        yield from _healthy_cluster(cluster, history)

        cluster.ensemble.kill(2, 3)
        history.record(**cluster.wait_for(_CONNECTED, 0))
        history.hold(10)
        assert [cluster.status(name) for name in cluster.brokers] == [503, 503]
        yield Step(
            "two of three ZooKeeper servers are down", history, _alerts("NoZooKeeperSession")
        )

        controllers = {
            name: (each.samples or {})[_CONTROLLERS, _NONE]
            for name, each in cluster.targets().items()
        }
        cluster.stop(max(controllers, key=lambda name: controllers[name]))
        history.record(**cluster.wait_for(_CONTROLLERS, 0))
        history.hold(10)
        alerts = _alerts("NoZooKeeperSession", "BrokerDown", "NoController")
        yield Step("the controller stops meanwhile", history, alerts)

        cluster.ensemble.start(2, 3)
        history.record(**cluster.wait_for(_UNDER_REPLICATED, 2))
        history.hold(20)
        alerts = _alerts("BrokerDown", "UnderReplicated", "UnderMinIsr")
        yield Step("ZooKeeper is back, the broker is not", history, alerts)


def _healthy_cluster(cluster: WatchedCluster, history: History) -> Iterator[Step]:
    targets = cluster.targets()
    served = {name for each in targets.values() for name, _ in each.samples or {}}
    expected = {name for name in ONLY_IN_CLUSTER if BY_NAME[name].kind != "histogram"}
    assert expected <= served, expected - served
    assert [cluster.status(name) for name in cluster.brokers] == [200, 200]
    history.record(**targets)
    history.hold(20)
    yield Step("no failure", history, frozenset())


def _alerts(*names: str) -> frozenset[str]:
    return frozenset(f"Klog{name}" for name in names)
