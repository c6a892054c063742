"""Replication's promises in a model of three brokers under faults, which also catches bugs.

A broker's state machines and the controller's elections are klog's own; logs, network and time are
models.
"""

import pytest

from tests.simulation.mutants.mutant import Mutant
from tests.support.replication.mutants import MUTANTS, SEEDS
from tests.support.replication.replicated_world import Broken, ReplicatedWorld

SEEDS_OF_THE_SUITE = 40


def broken_promise(seed: int) -> str:
    """The first promise that is broken; "" if none is."""
    try:
        ReplicatedWorld(seed).run()
    except Broken as broken:
        return str(broken)
    return ""


@pytest.mark.parametrize("first", range(0, SEEDS_OF_THE_SUITE, 10))
def test_nothing_that_was_promised_is_broken(first: int) -> None:
    assert {seed: broken_promise(seed) for seed in range(first, first + 10)} == dict.fromkeys(
        range(first, first + 10), ""
    )


def test_a_seed_runs_alike_each_time() -> None:
    worlds = [ReplicatedWorld(3) for _ in range(2)]
    for world in worlds:
        world.run()
    one, other = (
        [(broker.log.records, broker.log.epochs.entries) for broker in world.brokers.values()]
        for world in worlds
    )
    assert one == other
    assert worlds[0].acknowledged_count > 20


@pytest.mark.parametrize(
    "mutant", [each for each in MUTANTS if each.name in SEEDS], ids=lambda mutant: mutant.name
)
def test_a_bug_breaks_a_promise(mutant: Mutant) -> None:
    """The mutant fails in its kept seed. A changed model needs new seeds: the first that fails."""
    with mutant.applied():
        assert broken_promise(SEEDS[mutant.name])
    assert not broken_promise(SEEDS[mutant.name])
