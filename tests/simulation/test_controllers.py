"""A cluster's controllers from a seed: the promises hold, and a bug in them is caught."""

from functools import cache

import pytest

from klog_broker.controller.zookeeper import cluster_state
from klog_broker.controller.zookeeper.request_queues import RequestQueues
from pyspark_klog.ids import BrokerId
from tests.simulation.controllers.mutants import MUTANTS
from tests.simulation.controllers.run import run_seed
from tests.simulation.mutants.kept_seeds import kept_seeds
from tests.simulation.mutants.mutant import Mutant, catch

_SEEDS_A_MUTANT = 200

result_of = cache(run_seed)


@pytest.mark.parametrize("seed", [*range(40), 59, 62, 74, 77, 86, 94])
def test_the_promises_hold(seed: int) -> None:
    result = result_of(seed)
    assert not result.failure, "\n".join([*result.lines[-60:], result.failure])


def test_the_promises_hold_for_brokers_that_fall_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queues are so short that a lost response makes a broker fall behind.

    The controller then sends that broker its whole state.
    """
    caught_up = []
    original = RequestQueues.resume

    def catch_up(queues: RequestQueues, broker_id: BrokerId) -> None:
        caught_up.append(broker_id)
        original(queues, broker_id)

    monkeypatch.setattr(RequestQueues, "resume", catch_up)
    monkeypatch.setattr(cluster_state, "MIN_QUEUE_SIZE", 10)
    for seed in (1, 2, 4, 5, 6, 7, 8, 9, 12, 14, 15, 16, 20, 26, 27, 30):
        result = run_seed(seed)
        assert not result.failure, f"{seed}: {result.failure}"
    assert len(caught_up) > 50


def test_a_seed_does_the_same_each_time() -> None:
    first, second = result_of(5), run_seed(5)
    assert first == second
    assert first.writes > 5


def test_seeds_do_something() -> None:
    results = [result_of(seed) for seed in range(10)]
    for what in ("writes", "elections", "deletions", "alterations"):
        assert sum(getattr(result, what) for result in results) > 20, what


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_is_caught(mutant: Mutant) -> None:
    seeds = (*kept_seeds("controllers", mutant.name), *range(_SEEDS_A_MUTANT))
    assert catch(mutant, run_seed, seeds) is not None
