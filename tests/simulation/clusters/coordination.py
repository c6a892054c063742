"""Adds a group or transactions to the plans of some cluster runs, and knows their coordinators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from klog_broker.coordinator.hashing import partition_for_key
from pyspark_klog.ids import TopicPartition
from tests.simulation.clients.coordinated import Elected
from tests.simulation.clusters.checks import leads
from tests.simulation.clusters.plan import ClusterPlan
from tests.simulation.clusters.states import States
from tests.simulation.machine import Machine
from tests.simulation.plan import LONGEST_SWEEP_MS

_OFFSETS = "__consumer_offsets"
_TRANSACTIONS = "__transaction_state"


def with_coordination(plan: ClusterPlan, seed: int) -> ClusterPlan:
    """In some runs replace most clients by a group or by transactions.

    The choice has a random generator of its own: the other runs stay as they are.
    """
    random = Random(f"coordination of {seed}")
    what = random.random()
    if what < 0.35:
        return plan
    settings = {
        **plan.settings,
        "offsets.topic.num.partitions": str(random.choice((1, 1, 2))),
        "offsets.topic.replication.factor": str(random.choice((1, 3, 3, 3))),
        "offsets.topic.segment.bytes": str(random.randint(2_000, 20_000)),
        "group.initial.rebalance.delay.ms": str(random.randint(0, 300)),
        "group.min.session.timeout.ms": "500",
    }
    if plan.flushes_all:
        settings["log.flush.interval.messages"] = "1"
    if what < 0.6:
        return _with_transactions(plan, settings, random)
    return replace(
        plan,
        idempotent_producers=1,
        plain_producers=0,
        consumers=random.choice((0, 0, 1)),
        members=random.choice((1, 2, 2, 3)),
        settings=settings,
    )


def _with_transactions(plan: ClusterPlan, settings: dict[str, str], random: Random) -> ClusterPlan:
    replicas = random.choice((1, 3, 3, 3))
    of_log = {
        "transaction.state.log.num.partitions": str(random.choice((1, 1, 2))),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(random.randint(1, min(replicas, 2))),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(
            random.randint(200, LONGEST_SWEEP_MS)
        ),
    }
    return replace(
        plan,
        idempotent_producers=0,
        plain_producers=0,
        consumers=1,
        transactional=random.choice(((1,), (2,), (1, 1))),
        settings={**settings, **of_log},
    )


class Coordinators:
    """The elected coordinators, from ZooKeeper's committed state."""

    def __init__(self, states: States, machines: Sequence[Machine]) -> None:
        self._states = states
        self._machines = machines

    def of_group(self, group_id: str) -> Elected:
        return self._of(_OFFSETS, group_id)

    def are_doubtful(self, transactional_id: str, group_id: str) -> bool:
        """Whether an unelected broker acts as coordinator of either id, or none is elected."""
        return self._is_doubtful(_TRANSACTIONS, transactional_id) or self._is_doubtful(
            _OFFSETS, group_id
        )

    def _is_doubtful(self, topic: str, key: str) -> bool:
        elected = self._of(topic, key)
        assignment = self._states.assignment(topic)
        if assignment is None or elected is None:
            return True
        partition = TopicPartition(topic, partition_for_key(key, len(assignment.partitions)))
        return any(
            leads(machine, partition)
            for number, machine in enumerate(self._machines)
            if number != elected[0]
        )

    def _of(self, topic: str, key: str) -> Elected:
        self._states.follow()
        assignment = self._states.assignment(topic)
        if assignment is None:
            return None
        number = partition_for_key(key, len(assignment.partitions))
        found = self._states.state(TopicPartition(topic, number))
        return None if found is None else (found[0].leader, found[0].leader_epoch)
