"""docs/roles.md is current, and a partition does what each cell of its tables says."""

from types import SimpleNamespace
from typing import Any

import pytest

from klog_broker.replication.leader import Leader
from klog_broker.replication.partition import Follower, Offline, Role, Unassigned
from klog_broker.resources.led_partitions import led_partition
from pyspark_klog.errors import BrokerError, ErrorCode
from tests.support.cluster.replicas import OTHER, ReplicaWorld, role_assignment, role_removal
from tests.support.log.harness import PARTITION, batch
from tools.docs.role_steps import STEPS, TOLD, Event, Kind

ROLES = (Unassigned, Leader, Follower, Offline)


def name(kind: Kind) -> str:
    return "" if kind is None else kind.__name__


def go_offline(world: ReplicaWorld) -> None:
    log = world.replicas.partition(*PARTITION).log
    log.append_as_leader(batch(), leader_epoch=log.leader_epoch, now_ms=1)
    world.files.fail_sync_at = world.files.syncs + 1
    log.start_flush()
    world.work()


def world_in(kind: Kind) -> ReplicaWorld:
    world = ReplicaWorld()
    if kind is None:
        return world
    world.lead(1)
    if kind is Unassigned:
        world.apply(role_removal(1, deletes=False))
    elif kind is Follower:
        world.apply(role_assignment(2, leader=OTHER))
    elif kind is Offline:
        go_offline(world)
    assert world.role() == name(kind)
    return world


def happen(world: ReplicaWorld, event: Event) -> None:
    match event:
        case Event.LEAD:
            world.apply(role_assignment(3))
        case Event.FOLLOW:
            world.apply(role_assignment(3, leader=OTHER))
        case Event.STOP | Event.DELETE:
            world.apply(role_removal(3, deletes=event is Event.DELETE))
        case Event.OFFLINE:
            if world.role() != "Offline":
                go_offline(world)


def test_every_role_is_in_the_tables() -> None:
    assert set(STEPS) == {None, *ROLES}
    assert set(TOLD) == set(ROLES)
    assert all(set(STEPS[role]) == set(Event) for role in ROLES)


@pytest.mark.parametrize(
    ("before", "event"),
    [(before, event) for before, steps in STEPS.items() for event in steps],
    ids=lambda each: each.name if isinstance(each, Event) else name(each) or "not hosted",
)
def test_a_step(before: Kind, event: Event) -> None:
    world = world_in(before)
    happen(world, event)
    assert world.role() == name(STEPS[before][event])


@pytest.mark.parametrize("role", ROLES)
def test_each_role_has_its_error_for_clients(role: type[Role]) -> None:
    image = SimpleNamespace(partition=lambda *_: "known to clients")
    broker: Any = SimpleNamespace(
        replicas=world_in(role).replicas, metadata=SimpleNamespace(image=image)
    )
    told = ErrorCode.NONE
    try:
        led_partition(broker, *PARTITION)
    except BrokerError as error:
        told = error.code
    assert told is TOLD[role]
