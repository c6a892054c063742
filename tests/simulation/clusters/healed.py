"""The required state at the end of a cluster's run: all led, in sync, and equal everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from klog_broker.log.errors import LogStorageError
from pyspark_klog.ids import TopicPartition
from tests.simulation.clusters.checks import are_alike, batches_of, leads
from tests.simulation.clusters.losses import Losses
from tests.simulation.clusters.machines import ClusterMachine
from tests.simulation.clusters.states import States
from tests.simulation.world import Violation

ALIKE = "replicas are alike"


def partitions_of(states: States) -> dict[TopicPartition, tuple[int, ...]]:
    """The partitions of all topics with their replicas, as ZooKeeper has them."""
    states.follow()
    return {
        TopicPartition(name, number): tuple(assigned.replicas)
        for name, topic in states.topics().items()
        for number, assigned in topic.partitions.items()
    }


def unled(states: States, machines: Sequence[ClusterMachine]) -> str:
    """Why a partition is not led, not in sync or not known to all; empty if every one is fine."""
    for partition, replicas in partitions_of(states).items():
        found = states.state(partition)
        if found is None:
            return f"{partition} has no state"
        state, _version = found
        if state.leader not in replicas or set(state.isr) != set(replicas):
            return f"{partition} {state}"
        if not leads(machines[state.leader], partition):
            return f"{partition} is not led by {state.leader}"
        ends = set()
        for number in replicas:
            for log in machines[number].logs():
                if log.topic_partition == partition:
                    ends.add((int(log.log_end_offset), int(log.high_watermark)))
        if len(ends) != 1 or len(set(*ends)) != 1:
            return f"{partition} ends, and is seen, at {sorted(ends)}"
    return ""


def strays(states: States, machines: Sequence[ClusterMachine]) -> str:
    """A log of a deleted topic or of a partition placed elsewhere; empty if there is none."""
    topics = states.topics()
    for machine in machines:
        for log in machine.logs():
            name, number = log.topic_partition
            topic = topics.get(name)
            if topic is None or topic.topic_id != log.topic_id:
                return f"{machine.name} has {log.topic_partition} of {log.topic_id}, not {topic}"
            if machine.number not in topic.partitions[number].replicas:
                return f"{machine.name} has {log.topic_partition}, {topic}"
    return ""


def check_alike(states: States, machines: Sequence[ClusterMachine]) -> None:
    """Check that all replicas of a partition have equal batches of equal leader epochs."""
    for partition, replicas in partitions_of(states).items():
        first, *others = replicas
        expected = batches_of(machines[first], partition)
        for each in others:
            found = batches_of(machines[each], partition)
            if not are_alike(partition, expected, found):
                raise Violation(ALIKE, f"{partition}: {expected} on {first}, {found} on {each}")


def check_matching(states: States, losses: Losses, machines: Sequence[ClusterMachine]) -> None:
    """Check that all running replicas have equal batches below their lowest high watermark."""
    up = [each for each in machines if each.broker is not None]
    for partition, replicas in partitions_of(states).items():
        found = []
        for machine in up:
            if machine.number not in replicas:
                continue
            logs = {log.topic_partition: log for log in machine.logs()}
            if (log := logs.get(partition)) is not None and not log.is_offline:
                found.append((losses.watermark(log), machine))
        if len(found) < 2:
            continue
        below = min(watermark for watermark, _ in found)
        kept = []
        for _, machine in found:
            try:
                batches = batches_of(machine, partition) or {}
            except LogStorageError:
                continue  # The log is being truncated.
            kept.append({at: batch for at, batch in batches.items() if at < below})
        if any(not are_alike(partition, kept[0], each) for each in kept[1:]):
            names = ", ".join(machine.name for _, machine in found)
            raise Violation(ALIKE, f"{partition} below {below} on {names}: {kept}")
