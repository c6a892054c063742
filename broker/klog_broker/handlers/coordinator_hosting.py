"""What every coordinator is given by its broker: services, and the partitions of its topic."""

from typing import Protocol

from klog_broker.coordinator.loading import KernelWalk
from klog_broker.coordinator.runtime import RuntimeServices
from klog_broker.coordinator.state_log import StateLog
from klog_broker.handlers.context import BrokerServices
from klog_broker.log.record_checks import KernelChecks
from klog_broker.replication.leader import Leader
from klog_broker.replication.leader_state_log import LeaderStateLog
from klog_broker.runtime.slices import Slices
from pyspark_klog.ids import TopicPartition


class HostedCoordinator(Protocol):
    """A coordinator, as far as it is told which partitions of its topic the broker leads."""

    def on_lead(self, log: StateLog, /) -> None: ...

    def on_resign(self, topic_partition: TopicPartition, /) -> None: ...


def runtime_services(broker: BrokerServices) -> RuntimeServices:
    """What the coordinator's runtime stands on. Each coordinator has slices of its own."""
    return RuntimeServices(
        loop=broker.loop,
        purgatory=broker.purgatory,
        clock=broker.clock,
        helpers=broker.helpers,
        slices=Slices(broker.loop),
        new_walk=lambda: KernelWalk() if isinstance(broker.logs.checks, KernelChecks) else None,
    )


def follow_leaderships(broker: BrokerServices, topic: str, coordinator: HostedCoordinator) -> None:
    """Tell the coordinator of the topic's partitions that the broker leads, now and from now on."""

    def lead(leader: Leader) -> None:
        if leader.topic_partition.topic == topic:
            coordinator.on_lead(LeaderStateLog(leader, broker.clock))

    def resign(topic_partition: TopicPartition) -> None:
        # A broker that leads on, in a newer epoch, does so by now: its coordinator stays.
        if topic_partition.topic == topic and topic_partition not in broker.replicas.led:
            coordinator.on_resign(topic_partition)

    for leader in broker.replicas.led.values():
        lead(leader)
    broker.replicas.on_lead.append(lead)
    broker.replicas.on_resign.append(resign)
