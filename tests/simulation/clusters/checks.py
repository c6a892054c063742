"""What a cluster's brokers promise together, by what each of them is after every turn."""

from __future__ import annotations

from klog_broker.controller.member import Member
from tests.simulation.clusters.machines import ClusterMachine
from tests.simulation.elections.checks import Checks as ElectionChecks
from tests.simulation.machine import Machine, Watcher


def member_of(machine: Machine) -> Member | None:
    """The running broker's part in the cluster."""
    broker = machine.broker
    membership = None if broker is None else broker._membership
    return None if membership is None else membership._member


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
