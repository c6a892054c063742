"""The parts of a broker that its metrics and its health are read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from klog_broker.compaction.cleaner import Cleaner
from klog_broker.controller.zookeeper.controller import Controller
from klog_broker.coordinator.group.coordinator import GroupCoordinator
from klog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.metadata.interface import MetadataStore
from klog_broker.metrics.in_sync_counts import InSyncCounts
from klog_broker.metrics.zookeeper import ZooKeeperCounts
from klog_broker.network.server import Server
from klog_broker.replication.follower import FollowedPartition
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.purgatory import Purgatory
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.process_facts import ProcessFacts
from pyspark_klog.ids import BrokerId


class MonitoredServices(Protocol):
    """The parts of a broker that metrics are read from."""

    @property
    def broker_id(self) -> BrokerId: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def groups(self) -> GroupCoordinator: ...

    @property
    def in_sync_counts(self) -> InSyncCounts: ...

    @property
    def logs(self) -> LogManager: ...

    @property
    def loop(self) -> Loop: ...

    @property
    def metadata(self) -> MetadataStore: ...

    @property
    def purgatory(self) -> Purgatory: ...

    @property
    def replicas(self) -> ReplicaManager: ...

    @property
    def requests(self) -> RequestRuntime: ...

    @property
    def transactions(self) -> TransactionCoordinator: ...


class MonitoredCluster(Protocol):
    """The facts about a broker's cluster that metrics show."""

    def without_leader(self, offline: int) -> int:
        """Return the number of partitions without a leader. A cluster's controller returns the
        number for the whole cluster, and the other brokers of the cluster return 0. A standalone
        broker returns ``offline``, the number of its own replicas that are offline."""

    def followed(self) -> Iterable[tuple[BrokerId, FollowedPartition]]:
        """Return the partitions that this broker follows, each after the broker id of its
        leader."""

    def zookeeper_counts(self) -> ZooKeeperCounts | None:
        """Return the state of the ZooKeeper session; None for a standalone broker."""

    def controller(self) -> Controller | None:
        """Return the controller, which works only if this broker is elected; None for a standalone
        broker."""


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """The parts of one broker that its metrics and health are read from."""

    services: MonitoredServices
    cluster: MonitoredCluster
    server: Server
    cleaner: Cleaner
    process: Callable[[], ProcessFacts]
    is_starting: Callable[[], bool]
    """Returns whether the broker does not yet serve clients, or does not yet know the partitions of
    all topics, which the controller of a cluster sends."""
    is_stopping: Callable[[], bool]
    """Returns whether the broker has begun to stop. A broker in a cluster then still serves clients
    until its controlled shutdown is over."""
    began_ms: int
    """The time in ms at the end of the broker's start, by the monotonic clock; the next field has
    the same time by the wall clock."""
    began_wall_ms: int
