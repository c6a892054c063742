"""The promises of a cluster's brokers, checked by the state of each broker after every turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

from klog_broker.log.errors import DamagedLog
from klog_broker.membership.cluster_lifecycle import InCluster
from klog_broker.membership.member import ZooKeeperMember
from klog_broker.replication.leader import Leader
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.errors import RecordsError
from pyspark_klog.records.record import Record
from tests.simulation.checks.high_watermarks import Marks
from tests.simulation.clusters.losses import Losses
from tests.simulation.clusters.machines import ClusterMachine
from tests.simulation.clusters.states import States
from tests.simulation.controllers.checks import Key
from tests.simulation.elections.checks import Checks as ElectionChecks
from tests.simulation.machine import Machine, SimBroker, Watcher
from tests.simulation.world import Violation
from tests.support.log.harness import read_batches

TOLD = "a broker's metadata of a partition never goes back"
WHOLE = "a replica can be read"
WHOLE_TOPICS = "Metadata shows all partitions of a topic or none"
ORDERS = "a replica takes no role that is older than its last one"


def member_of(machine: Machine) -> ZooKeeperMember | None:
    """The running broker's member of the cluster, which registers and takes part in elections."""
    broker = machine.broker
    part = None if broker is None else broker.cluster_lifecycle
    return part.membership._member if isinstance(part, InCluster) else None


def is_controller(machine: Machine) -> bool:
    """Whether the machine's broker believes that it is the controller."""
    member = member_of(machine)
    return member is not None and member.election.writes is not None


class Elections(Watcher):
    """Checks that every acting controller was elected, and that an epoch has only one."""

    def __init__(self, checks: ElectionChecks) -> None:
        self._checks = checks
        self._epochs: dict[str, int] = {}

    def on_start(self, machine: Machine) -> None:
        self._epochs.pop(machine.name, None)

    def on_turn(self, machine: Machine) -> None:
        member = member_of(machine)
        assert member is not None and isinstance(machine, ClusterMachine)
        writes = member.election.writes
        if writes is None or self._epochs.get(machine.name) == writes.epoch.number:
            return
        self._epochs[machine.name] = writes.epoch.number
        assert machine.session is not None
        name = f"{machine.name}.{machine.lives}"
        machine.note(f"is controller {writes.epoch.number}")
        self._checks.elected(name, machine.session.session_id, writes.epoch)


class ReplicaMarks(Marks):
    """Watches the marks of replicas.

    A follower's log may be truncated, but never below the high watermark, except where power cuts
    have taken the records.
    """

    def __init__(self, losses: Losses) -> None:
        super().__init__()
        self._losses = losses

    def _went_back(self, log: Any, before: tuple[int, ...], marks: tuple[int, ...]) -> bool:
        watermark, _, start, _ = marks
        has_fallen = watermark < before[0] and not self._losses.may_fall_to(log, watermark)
        return has_fallen or start < before[2]

    def _waits_for_flush(self, machine: Machine, log: Any) -> bool:
        return leads(machine, log.topic_partition) and super()._waits_for_flush(machine, log)


class Leaders(Watcher):
    """Checks that a partition's leader was elected, and that one run of one broker leads an epoch.

    No replica takes the role of an older request. ``begins(key, number, role)`` is called with each
    new leader.
    """

    def __init__(self, states: States, begins: Callable[[Key, int, Leader], None]) -> None:
        self._states = states
        self._begins = begins
        self._told: dict[tuple[Key, int], tuple[str, int]] = {}
        self._epochs: dict[Key, tuple[int, int]] = {}
        """The epochs of the newest role of each partition, in this run of the broker."""
        self._lives = 0

    def on_step(self, machine: Machine, broker: SimBroker) -> None:
        self._look(machine, broker)

    def on_turn(self, machine: Machine) -> None:
        assert machine.broker is not None
        self._look(machine, machine.broker)

    def _look(self, machine: Machine, broker: SimBroker) -> None:
        assert isinstance(machine, ClusterMachine)
        if self._lives != machine.lives:
            self._lives = machine.lives
            self._epochs.clear()
        for partition in broker.services.replicas.partitions():
            role = partition.role
            key = (partition.topic_id, partition.topic_partition.partition)
            epochs = self._epochs.get(key, partition.epochs)
            if partition.epochs < epochs:
                text = f"{partition.topic_partition} of {machine.name} goes from {epochs}"
                raise Violation(ORDERS, f"{text} to {partition.epochs}")
            self._epochs[key] = partition.epochs
            if not isinstance(role, Leader):
                continue
            life = (machine.name, machine.lives)
            if self._told.get((key, role.leader_epoch)) != life:
                self._told[key, role.leader_epoch] = life
                machine.note(f"leads {partition.topic_partition} in {role.leader_epoch}")
                self._states.leads(key, role.leader_epoch, machine.number, machine.lives)
                self._begins(key, machine.number, role)


class Told(Watcher):
    """Checks that a broker's metadata about a partition never goes back while the broker runs."""

    def __init__(self) -> None:
        self._image: Any = None
        self._epochs: dict[Key, tuple[int, int]] = {}

    def on_start(self, machine: Machine) -> None:
        self._image = None
        self._epochs.clear()

    def on_turn(self, machine: Machine) -> None:
        assert machine.broker is not None
        image = machine.broker.services.metadata.image
        if image is self._image:
            return
        self._image = image
        for topic in image.topics.values():
            for number, state in enumerate(topic.partitions):
                key, now = (topic.topic_id, number), (state.leader_epoch, state.partition_epoch)
                before = self._epochs.get(key, now)
                if now < before:
                    text = f"{machine.name} knows {topic.name}-{number} in {now}, knew {before}"
                    raise Violation(TOLD, text)
                self._epochs[key] = now


class WholeTopics(Watcher):
    """Checks that a broker's metadata has all partitions of a topic, or none."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._seen: dict[str, Any] = {}

    def on_start(self, machine: Machine) -> None:
        self._seen = {}

    def on_turn(self, machine: Machine) -> None:
        assert machine.broker is not None
        topics = machine.broker.services.metadata.image.topics
        if topics is self._seen:
            return
        self._states.follow()
        for topic in topics.values():
            if topic is self._seen.get(topic.name):
                continue
            shown = sum(1 for each in topic.partitions if each.replicas)
            if shown not in self._states.counts[topic.topic_id]:
                counts = sorted(self._states.counts[topic.topic_id])
                text = f"{machine.name} shows {shown} partitions of {topic.name}, not {counts}"
                raise Violation(WHOLE_TOPICS, text)
        self._seen = topics


def leads(machine: Machine, partition: TopicPartition) -> bool:
    """Whether the machine's broker believes that it leads the partition."""
    broker = machine.broker
    found = broker and broker.services.replicas.partition(partition.topic, partition.partition)
    return bool(found and isinstance(found.role, Leader))


Batches = dict[int, tuple[int, int]]


def batches_of(machine: Machine, partition: TopicPartition) -> Batches | None:
    """The leader epoch and the checksum of each batch of the machine's replica, by base offset.

    In a topic that is cleaned, of each record by its offset instead.
    """
    for log in machine.logs():
        if log.topic_partition == partition:
            try:
                batches = list(read_batches(log, log.log_end_offset))
            except (DamagedLog, RecordsError) as error:
                raise Violation(WHOLE, f"{partition} of {machine.name}: {error}") from error
            if not is_cleaned(partition):
                return {
                    each.base_offset: (each.partition_leader_epoch, each.crc) for each in batches
                }
            return {
                record.offset: (batch.partition_leader_epoch, _checksum(record))
                for batch in batches
                for record in batch.records()
            }
    return None


def is_cleaned(partition: TopicPartition) -> bool:
    """Whether each broker's cleaner removes superseded records of the partition at its own pace."""
    return partition.topic.startswith("__")


def are_alike(partition: TopicPartition, one: Batches | None, other: Batches | None) -> bool:
    """Whether two replicas have equal batches, or equal records where both have kept them."""
    if one is None or other is None or not is_cleaned(partition):
        return one == other
    return all(other.get(at, batch) == batch for at, batch in one.items())


def _checksum(record: Record) -> int:
    return crc32(record.value or b"", crc32(record.key or b""))
