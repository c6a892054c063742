"""What a cluster's brokers promise together, by what each of them is after every turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

from klog_broker.cluster_part import InCluster
from klog_broker.controller.member import Member
from klog_broker.replication.leader import Leader
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.records.record import Record
from pyspark_klog.znodes.topics import PartitionState
from tests.simulation.checks.marks import Marks
from tests.simulation.clusters.machines import ClusterMachine
from tests.simulation.controllers.checks import Checks as ControllerChecks
from tests.simulation.controllers.checks import Key, Known
from tests.simulation.elections.checks import Checks as ElectionChecks
from tests.simulation.machine import Machine, Watcher
from tests.support.log_harness import read_batches


def member_of(machine: Machine) -> Member | None:
    """The running broker's part in the cluster."""
    broker = machine.broker
    part = None if broker is None else broker.cluster_part
    return part.membership._member if isinstance(part, InCluster) else None


def is_controller(machine: Machine) -> bool:
    """Whether it takes itself for it."""
    member = member_of(machine)
    return member is not None and member.election.writes is not None


class Elections(Watcher):
    """Who takes itself for the controller has been elected; an epoch has one."""

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
    """A follower's log is cut where its leader's goes another way, never below the watermark."""

    def _went_back(self, before: tuple[int, ...], marks: tuple[int, ...]) -> bool:
        watermark, _, start, _ = marks
        return watermark < before[0] or start < before[2]

    def _waits_for_flush(self, machine: Machine, log: Any) -> bool:
        return leads(machine, log.topic_partition) and super()._waits_for_flush(machine, log)


class States(ControllerChecks):
    """Of partitions, by what is committed. Who has caught up is the leaders' business here."""

    on_joined: Callable[[PartitionState, BrokerId], None] = staticmethod(lambda _after, _who: None)
    """Called with the state that adds somebody to those in sync, before its leader can know it."""

    def known(self, key: Key) -> PartitionState | None:
        """Its last state, also of a topic that is gone."""
        known = self._known.get(key)
        return None if known is None else known.state

    def _next(
        self, key: Key, partition: TopicPartition, before: Known, after: PartitionState
    ) -> Known:
        known = super()._next(key, partition, before, after)
        for each in after.isr:
            if each not in before.state.isr:
                self.on_joined(after, each)
        return known

    def _life_met(self, _key: Key, _leader_epoch: int, follower: BrokerId) -> int | None:
        # Its session may end while the controller adds it: it had caught up, and its next life is
        # another one.
        return self._life(follower) or 0


class Leaders(Watcher):
    """Who leads a partition has been elected, and in each epoch one life of one broker leads."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._told: dict[tuple[Key, int], tuple[str, int]] = {}

    def on_turn(self, machine: Machine) -> None:
        assert machine.broker is not None and isinstance(machine, ClusterMachine)
        for partition in machine.broker.services.replicas.partitions():
            role = partition.role
            if not isinstance(role, Leader):
                continue
            key = (partition.topic_id, partition.topic_partition.partition)
            life = (machine.name, machine.lives)
            if self._told.get((key, role.leader_epoch)) != life:
                self._told[key, role.leader_epoch] = life
                machine.note(f"leads {partition.topic_partition} in {role.leader_epoch}")
                self._states.leads(key, role.leader_epoch, machine.number, machine.lives)


def leads(machine: Machine, partition: TopicPartition) -> bool:
    """Whether its broker takes itself for the leader."""
    broker = machine.broker
    found = broker and broker.services.replicas.partition(partition.topic, partition.partition)
    return bool(found and isinstance(found.role, Leader))


Batches = dict[int, tuple[int, int]]


def batches_of(machine: Machine, partition: TopicPartition) -> Batches | None:
    """The leader epoch and the checksum of each batch of its replica, by the first offset; of each
    record where logs are cleaned."""
    for log in machine.logs():
        if log.topic_partition == partition:
            batches = read_batches(log, log.log_end_offset)
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
    """Whether each broker drops what is superseded when it likes."""
    return partition.topic.startswith("__")


def are_alike(partition: TopicPartition, one: Batches | None, other: Batches | None) -> bool:
    """Whether two replicas have the same, as far as both have kept it."""
    if one is None or other is None or not is_cleaned(partition):
        return one == other
    return all(other.get(at, batch) == batch for at, batch in one.items())


def _checksum(record: Record) -> int:
    return crc32(record.value or b"", crc32(record.key or b""))
