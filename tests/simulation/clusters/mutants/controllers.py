"""Bugs of controllers, of elections and registrations, and of what brokers take for an order.

Most have a simulation of their own (elections/, controllers/), and are caught in both.
"""

from dataclasses import replace
from typing import Any

from klog_broker.handlers.order_queue import OrderQueue
from klog_broker.replication.leader import Leader
from klog_broker.replication.partition import Partition
from tests.simulation.controllers.mutants import MUTANTS as OF_CONTROLLERS
from tests.simulation.elections.mutants import MUTANTS as OF_ELECTIONS
from tests.simulation.mutants.mutant import Mutant


def _orders_of_anybody(original: Any) -> Any:
    def begin(queue: Any, request: Any) -> None:
        """Also of a controller that has been deposed."""
        queue.controller_epoch = min(queue.controller_epoch, request.controller_epoch)
        original(queue, request)

    return begin


def _makes_an_epoch(original: Any) -> Any:
    def lead(partition: Any, order: Any, *arguments: Any) -> Any:
        """Who is to lead after an election begins one more."""
        if order.leader_epoch > 0 and not isinstance(partition.role, Leader):
            order = replace(order, leader_epoch=order.leader_epoch + 1)
        return original(partition, order, *arguments)

    return lead


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
"""These are caught here, too."""


def _here(mutants: tuple[Mutant, ...], names: tuple[str, ...]) -> list[Mutant]:
    return [each for each in mutants if each.name in names]


MUTANTS = (
    Mutant("broker makes an epoch", Partition, "lead", _makes_an_epoch),
    Mutant(
        "order of an old controller taken",
        OrderQueue,
        "_begin",
        _orders_of_anybody,
    ),
    *_here(OF_ELECTIONS, _OF_ELECTIONS),
    *_here(OF_CONTROLLERS, _OF_CONTROLLERS),
)
