"""Registration and election from a seed: the promises hold, and a bug in them is caught."""

import pytest

from tests.simulation.elections.mutants import MUTANTS
from tests.simulation.elections.run import run_seed
from tests.simulation.mutants.kept_seeds import kept_seeds
from tests.simulation.mutants.mutant import Mutant, catch

_SEEDS_A_MUTANT = 200


@pytest.mark.parametrize("seed", range(50))
def test_the_promises_hold(seed: int) -> None:
    result = run_seed(seed)
    assert not result.failure, "\n".join([*result.lines[-60:], result.failure])


def test_a_seed_does_the_same_each_time() -> None:
    first, second = run_seed(11), run_seed(11)
    assert first == second
    assert first.elections > 2
    assert first.writes > 20


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_is_caught(mutant: Mutant) -> None:
    seeds = (*kept_seeds("elections", mutant.name), *range(_SEEDS_A_MUTANT))
    assert catch(mutant, run_seed, seeds) is not None
