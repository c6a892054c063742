"""Checks after every turn of any broker what membership in the ISR promises.

A record may be lost long after the wrong step. So this check looks for the step itself: each member
of the ISR in ZooKeeper must have all records below any high watermark that readers have seen, also
when it comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klog_broker.replication.leader import Leader
from klog_broker.replication.partition import Follower
from pyspark_klog.ids import TopicPartition
from tests.simulation.clusters.losses import Losses
from tests.simulation.clusters.machines import ClusterMachine
from tests.simulation.clusters.states import States
from tests.simulation.controllers.checks import Key
from tests.simulation.machine import Death, Machine, Watcher
from tests.simulation.world import Violation

LACKS = "an in-sync replica has all records below the watermark"
NOT_SHOWN = "acks=all waits for the watermark"
TOO_FEW = "acks=all needs min.insync.replicas replicas"
AHEAD = "no record is newer than its follower's epoch"
PRODUCERS = "a log's producers are those of its records"


class InSync:
    """The replicas of a cluster. ``min_in_sync`` returns a topic's min.insync.replicas."""

    def __init__(self, states: States, losses: Losses, min_in_sync: Callable[[str], int]) -> None:
        self._states = states
        self._losses = losses
        self._min_in_sync = min_in_sync
        self._shown: dict[Key, int] = {}
        self._ever_shown: dict[Key, int] = {}
        """The highest high watermark of each partition, lost records included."""
        self._ends: dict[Key, dict[int, int]] = {}
        """The log end offsets of the running brokers' replicas."""
        self._reached: dict[Key, dict[int, int]] = {}
        """The highest log end offset that each broker's replica has reached."""

    def note(self, number: int, partition: Any) -> int:
        """Note the broker's log end offset and high watermark; return the log end offset."""
        key, end = _key(partition), int(partition.log.log_end_offset)
        reached = self._reached.setdefault(key, {})
        reached[number] = max(end, reached.get(number, 0))
        watermark = int(partition.log.high_watermark)
        self._shown[key] = max(self._shown.get(key, 0), self._losses.watermark(partition.log))
        self._ever_shown[key] = max(self._ever_shown.get(key, 0), watermark)
        return end

    def leads(self, key: Key, number: int, role: Leader) -> None:
        """The broker leads from now on; records that it lacks may be lost by power cuts."""
        self._shown[key] = self._losses.leads(key, number, role, self._shown.get(key, 0))

    def look(self, number: int, partition: Any) -> None:
        """Note a replica; check that no ISR member lacks records that readers have seen."""
        key = _key(partition)
        ends = self._ends.setdefault(key, {})
        ends[number] = self.note(number, partition)
        shown = self._shown[key]
        state = self._states.known(key)
        for each in () if state is None else state.isr:
            if ends.get(each, shown) < shown and self._losses.is_trusted(key, each, partition.log):
                raise Violation(
                    LACKS,
                    f"{partition.topic_partition} of broker {each} ends at {ends[each]}, broker"
                    f" {number} has seen {shown} shown, {state}",
                )

    def gone(self, number: int) -> None:
        """The broker has died: its logs cannot be seen for a while."""
        for ends in self._ends.values():
            ends.pop(number, None)

    def acknowledged(self, partition: TopicPartition, end: int) -> None:
        """Check records before ``end`` that were acknowledged with acks=all."""
        self._states.follow()
        assignment = self._states.assignment(partition.topic)
        if assignment is None or assignment.topic_id is None:
            return
        key = (assignment.topic_id, partition.partition)
        shown, reached = self._ever_shown.get(key, 0), self._reached.get(key, {})
        if shown < end:
            raise Violation(NOT_SHOWN, f"{partition} up to {end}, seen up to {shown}")
        having = [number for number, each in reached.items() if each >= end]
        if len(having) < self._min_in_sync(partition.topic):
            raise Violation(TOO_FEW, f"{partition} up to {end} is on {having}, of {reached}")


def _key(partition: Any) -> Key:
    return (partition.topic_id, partition.topic_partition.partition)


class InSyncReplicas(Watcher):
    """Watches the replicas of one machine."""

    def __init__(self, number: int, in_sync: InSync, states: States) -> None:
        self._number = number
        self._in_sync = in_sync
        self._states = states
        self._cut: set[TopicPartition] = set()
        self._seen: dict[Any, tuple[Any, ...]] = {}

    def on_turn(self, machine: Machine) -> None:
        self._states.follow()
        for partition in _with_logs(machine):
            log = partition.log
            marks = (
                log.log_end_offset,
                log.high_watermark,
                log.is_being_cut,
                partition.role,
                self._states.writes,
            )
            if self._seen.get(partition) == marks:
                continue
            self._seen[partition] = marks
            self._in_sync.look(self._number, partition)
            if isinstance(partition.role, Follower):
                self._check_epochs(partition)
            if log.is_being_cut:
                assert isinstance(machine, ClusterMachine)
                machine.is_cutting()
                self._cut.add(partition.topic_partition)
            elif partition.topic_partition in self._cut:
                self._cut.remove(partition.topic_partition)
                self._check_producers(log)

    def _check_epochs(self, partition: Any) -> None:
        epoch, newest = partition.role.leader_epoch, partition.log.latest_epoch
        if newest > epoch:
            raise Violation(AHEAD, f"{partition.topic_partition} has {newest}, follows in {epoch}")

    def _check_producers(self, log: Any) -> None:
        for entry in log.producers:
            if entry.batches and entry.batches[-1].last_offset >= log.log_end_offset:
                text = f"{log.topic_partition} ends at {log.log_end_offset}, producer"
                last = entry.batches[-1].last_offset
                raise Violation(PRODUCERS, f"{text} {entry.producer_id} at {last}")

    def on_death(self, machine: Machine, _death: Death) -> None:
        # The broker may have died in a turn in which it had already sent responses.
        for partition in _with_logs(machine):
            self._in_sync.note(self._number, partition)
        self._cut.clear()
        self._seen.clear()
        self._in_sync.gone(self._number)


def _with_logs(machine: Machine) -> list[Any]:
    assert machine.broker is not None
    return [
        each
        for each in machine.broker.services.replicas.partitions()
        if each.log is not None and not each.log.is_offline
    ]
