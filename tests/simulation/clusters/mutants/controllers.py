"""Bugs of controllers, elections and registrations, and of brokers that take old requests.

Most of them belong to simulations of their own (elections/, controllers/), and are caught in both.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from klog_broker.api import leader_and_isr
from klog_broker.cluster.role_change_queue import ControllerRequestQueue
from klog_broker.replication import replica_manager
from klog_broker.replication.errors import StaleRoleChange
from klog_broker.replication.leader import Leader
from klog_broker.replication.partition import Partition
from pyspark_klog.errors import ErrorCode
from tests.simulation.controllers.mutants import MUTANTS as OF_CONTROLLERS
from tests.simulation.elections.mutants import MUTANTS as OF_ELECTIONS
from tests.simulation.mutants.mutant import Mutant


def _orders_of_anybody(original: Any) -> Any:
    def begin_request(queue: Any, request: Any) -> None:
        """Requests of a deposed controller are taken, too."""
        queue.controller_epoch = min(queue.controller_epoch, request.controller_epoch)
        original(queue, request)

    return begin_request


def _makes_an_epoch(original: Any) -> Any:
    def lead(partition: Any, order: Any, *arguments: Any) -> Any:
        """A broker that becomes leader after an election raises the leader epoch once more."""
        if order.leader_epoch > 0 and not isinstance(partition.role, Leader):
            order = replace(order, leader_epoch=order.leader_epoch + 1)
        return original(partition, order, *arguments)

    return lead


def _any_leader_epoch(original: Any) -> Any:
    def fault(roles: Any, topic: Any, state: Any, partition: Any) -> Any:
        """A LeaderAndIsr state of an old leader epoch is taken, as if there were no role yet."""
        found = original(roles, topic, state, partition)
        return ErrorCode.NONE if found is ErrorCode.STALE_CONTROLLER_EPOCH else found

    return fault


def _any_order(original: Any) -> Any:
    def check(partition: Any, order: Any) -> None:
        """A replica takes a role that is older than its present one."""
        with suppress(StaleRoleChange):
            original(partition, order)

    return check


_OF_ELECTIONS = (
    "node and epoch in two steps",
    "epoch not raised",
    "watch missed after a break",
    "registered once",
    "last life not waited for",
    "change while reading lost",
)
_OF_CONTROLLERS = (
    "controller write unchecked",
    "bounces ignored",
    "epoch kept over a bounce",
    "unclean though off",
)
"""The controllers' mutants that clusters catch, too."""


def _here(mutants: tuple[Mutant, ...], names: tuple[str, ...]) -> list[Mutant]:
    return [each for each in mutants if each.name in names]


MUTANTS = (
    Mutant("broker makes an epoch", Partition, "lead", _makes_an_epoch),
    Mutant(
        "order of an old controller taken",
        ControllerRequestQueue,
        "_begin_request",
        _orders_of_anybody,
    ),
    Mutant(
        "old LeaderAndIsr taken",
        ControllerRequestQueue,
        "_begin_request",
        _orders_of_anybody,
        also=Mutant(
            "",
            leader_and_isr._RoleAssignments,
            "_fault",
            _any_leader_epoch,
            also=Mutant("", replica_manager, "_check_epochs", _any_order),
        ),
    ),
    *_here(OF_ELECTIONS, _OF_ELECTIONS),
    *_here(OF_CONTROLLERS, _OF_CONTROLLERS),
)
