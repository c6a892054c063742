"""The controller's tables, elections and the placement of replicas beside Kafka's own classes."""

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, permutations, product
from random import Random

import pytest

from klog_broker.controller.decisions import partition_states, replica_states
from klog_broker.controller.decisions.leader_election import (
    LeaderAndIsr,
    elect_for_shutdown,
    elect_leader,
    elect_preferred,
)
from klog_broker.controller.decisions.partition_states import PartitionState
from klog_broker.controller.decisions.placement import place_replicas
from klog_broker.controller.decisions.replica_states import ReplicaState
from klog_broker.metadata.image import NO_BROKER
from pyspark_klog.ids import BrokerId, LeaderEpoch
from tests.support.golden.controller_batches import (
    by_broker,
    decoded,
    kafkas_requests,
    klogs_requests,
    scenario,
)
from tests.support.golden.placement import kafkas_placements, placement_cases
from tests.support.peers import OLDEST_KAFKA
from tests.support.protocol.kafka_definitions import run_java

pytestmark = pytest.mark.peers

BROKERS = tuple(map(BrokerId, (1, 2, 3)))
KINDS = ("offline", "unclean", "preferred", "shutdown")


def kafka_answers(questions: Sequence[str]) -> list[str]:
    return run_java(OLDEST_KAFKA, "ControllerAnswers.java", "\n".join(questions))


def test_the_steps_of_partitions_and_replicas_are_kafkas() -> None:
    partitions = {f"{state.value}Partition": state for state in PartitionState}
    replicas = {
        state.value + "Replica" * (not state.value.startswith("Replica")): state
        for state in ReplicaState
    }
    ours = {
        name: {
            other
            for other, before in states.items()
            if after in steps[before]  # type: ignore[index, operator]
        }
        for states, steps in (
            (partitions, partition_states.STEPS),
            (replicas, replica_states.STEPS),
        )
        for name, after in states.items()  # type: ignore[attr-defined]
    }
    found = kafka_answers([f"state {name}" for name in ours])
    theirs = {
        name: set(filter(None, line.split(","))) for name, line in zip(ours, found, strict=True)
    }
    assert ours == theirs


def subsets(items: Sequence[BrokerId], at_least: int) -> Iterator[tuple[BrokerId, ...]]:
    sizes = range(at_least, len(items) + 1)
    return chain.from_iterable(combinations(items, size) for size in sizes)


def cases() -> Iterator[
    tuple[str, tuple[BrokerId, ...], LeaderAndIsr, tuple[BrokerId, ...], tuple[BrokerId, ...]]
]:
    """All elections of a partition with two replicas and with three."""
    for kind, count in product(KINDS, (2, 3)):
        for in_sync in chain.from_iterable(
            permutations(members) for members in subsets(BROKERS[:count], 1)
        ):
            for leader, live in product((*in_sync, NO_BROKER), subsets(BROKERS[:count], 0)):
                for leaving in subsets(live, 0):
                    for assignment in (BROKERS[:count], BROKERS[:count][::-1]):
                        state = LeaderAndIsr(leader, LeaderEpoch(7), in_sync, count == 3)
                        yield kind, assignment, state, live, leaving


def listed(items: Sequence[int]) -> str:
    return ",".join(map(str, items)) or "-"


def shown(state: LeaderAndIsr | None) -> str:
    if state is None:
        return "none"
    return f"{state.leader} {state.leader_epoch} {listed(state.in_sync)} {state.is_recovering:d}"


def test_every_election_ends_as_kafkas() -> None:
    questions, ours = [], []
    for kind, assignment, state, live, leaving in cases():
        words = (listed(assignment), listed(state.in_sync), state.leader, state.leader_epoch)
        more = (int(state.is_recovering), listed(live), listed(leaving))
        questions.append(" ".join(map(str, (kind, *words, *more))))
        online = [broker for broker in live if broker not in leaving]
        if kind == "preferred":
            elected = elect_preferred(assignment, state, online)
        elif kind == "shutdown":
            elected = elect_for_shutdown(assignment, state, live, leaving)
        else:
            elected = elect_leader(assignment, state, online, unclean=kind == "unclean")
        ours.append(shown(elected))
    theirs = kafka_answers(questions)
    wrong = [row for row in zip(questions, theirs, ours, strict=True) if row[1] != row[2]]
    assert not wrong, (len(wrong), wrong[:5])
    assert len(questions) > 5_000


def test_replicas_are_placed_as_kafkas_admin_places_them() -> None:
    cases = placement_cases(1_000, Random(5))
    for case, theirs in zip(cases, kafkas_placements(cases), strict=True):
        ours = place_replicas(
            {BrokerId(broker): rack for broker, rack in case["racks"].items()},
            case["partitions"],
            case["replication_factor"],
            start=case["start"],
            shift=case["start"],
            first_partition=case["first_partition"],
        )
        assert [list(row) for row in ours] == theirs, case


def test_brokers_get_the_requests_of_kafkas_controller() -> None:
    chance = Random(8)
    scenarios = [scenario(chance) for _ in range(500)]
    for lines, theirs in zip(scenarios, kafkas_requests(scenarios), strict=True):
        ours = [(order.broker_id, order.request) for order in klogs_requests(lines)]
        assert by_broker(ours) == by_broker([decoded(line) for line in theirs]), lines
