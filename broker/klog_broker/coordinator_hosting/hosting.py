"""Gives a coordinator its services, and the partitions of its state topic that this broker
leads."""

from typing import Protocol

from klog_broker.coordinator.loading import KernelWalk
from klog_broker.coordinator.runtime import RuntimeServices
from klog_broker.coordinator.state_log import StateLog
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.log.validation.kernel_checks import KernelChecks
from klog_broker.replication.leader import Leader
from klog_broker.replication.leader_state_log import LeaderStateLog
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.purgatory import Purgatory
from klog_broker.runtime.event_loop.slices import Slices
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.ids import TopicPartition


class HostingServices(Protocol):
    """The services that every coordinator of a broker gets."""

    @property
    def clock(self) -> Clock: ...

    @property
    def helpers(self) -> Helpers: ...

    @property
    def logs(self) -> LogManager: ...

    @property
    def loop(self) -> Loop: ...

    @property
    def purgatory(self) -> Purgatory: ...

    @property
    def replicas(self) -> ReplicaManager: ...


class HostedCoordinator(Protocol):
    """A coordinator that ``follow_leaderships`` informs about the partitions that this broker
    leads."""

    def on_lead(self, log: StateLog, /) -> None: ...

    def on_resign(self, topic_partition: TopicPartition, /) -> None: ...


def runtime_services(services: HostingServices) -> RuntimeServices:
    """The services of one coordinator's runtime. Each coordinator has its own ``Slices``, which
    divides long work so that the event loop serves requests in between."""
    return RuntimeServices(
        loop=services.loop,
        purgatory=services.purgatory,
        clock=services.clock,
        helpers=services.helpers,
        slices=Slices(services.loop),
        new_walk=lambda: KernelWalk() if isinstance(services.logs.checks, KernelChecks) else None,
    )


def follow_leaderships(
    services: HostingServices, topic: str, coordinator: HostedCoordinator
) -> None:
    """Inform the coordinator about the topic's partitions that this broker leads now, and whenever
    the broker begins or ceases to lead one."""

    def lead(leader: Leader) -> None:
        if leader.topic_partition.topic == topic:
            coordinator.on_lead(LeaderStateLog(leader, services.clock))

    def resign(topic_partition: TopicPartition) -> None:
        # If this broker stays the leader in a newer leader epoch, `led` has the partition's new
        # Leader by now. The coordinator then keeps the partition's shard: the state that it has
        # loaded from the partition.
        if topic_partition.topic == topic and topic_partition not in services.replicas.led:
            coordinator.on_resign(topic_partition)

    for leader in services.replicas.led.values():
        lead(leader)
    services.replicas.on_lead.append(lead)
    services.replicas.on_resign.append(resign)
