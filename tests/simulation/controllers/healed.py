"""The required state at the end of a run, when all brokers live and no fault is left."""

from typing import Any

from klog_broker.runtime.zookeeper.requests import Get
from pyspark_klog.ids import TopicPartition
from pyspark_klog.znodes.paths import CONTROLLER, DELETE_TOPICS
from tests.simulation.controllers.brokers import BrokerLife, Disk
from tests.simulation.controllers.checks import Checks


def unhealed(checks: Checks, lives: list[BrokerLife], brokers: int) -> str:
    """A difference from the required final state; empty if there is none."""
    checks.follow()
    alive = {int(each.number): each for each in lives}
    if len(alive) != brokers or isinstance(checks.tree.read(Get(CONTROLLER)), Exception):
        return "somebody is missing"
    registered = checks.registered()
    if registered != {number: each.epoch for number, each in alive.items()}:
        return f"registered are {registered}"
    if checks.children(DELETE_TOPICS):
        return f"to be deleted are {checks.children(DELETE_TOPICS)}"
    wanted: dict[TopicPartition, tuple[Any, ...]] = {}
    disks: dict[int, Disk] = {number: {} for number in alive}
    for name, topic in checks.topics().items():
        for number, assignment in topic.partitions.items():
            partition = TopicPartition(name, number)
            found = checks.state(partition)
            if found is None or found[0].leader not in alive:
                return f"{partition} is not led: {found}"
            state, version = found
            assert topic.topic_id is not None
            wanted[partition] = (
                topic.topic_id, state.leader, state.leader_epoch, list(state.isr), version,
            )  # fmt: skip
            for replica in assignment.replicas:
                disks[replica][partition] = topic.topic_id
    return _unlike(alive, wanted, disks)


def _unlike(
    alive: dict[int, BrokerLife],
    wanted: dict[TopicPartition, tuple[Any, ...]],
    disks: dict[int, Disk],
) -> str:
    for number, broker in alive.items():
        seen = {
            partition: (
                each.topic_id, each.leader, each.leader_epoch, each.isr, each.partition_epoch,
            )
            for partition, each in broker.pictures.items()
        }  # fmt: skip
        if seen != wanted or broker.live_brokers != set(alive):
            return f"{broker.name} sees {seen}, {broker.live_brokers}, and there is {wanted}"
        if broker.disk != disks[number]:
            return f"{broker.name} has {broker.disk}, and should have {disks[number]}"
        for partition in disks[number]:
            role = broker.roles.get(partition)
            if role is None or (role.leader, role.leader_epoch) != wanted[partition][1:3]:
                return f"{broker.name} is {role} of {partition}, {wanted[partition]}"
    return ""
