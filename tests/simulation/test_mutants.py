"""Brokers with a bug are caught; ./dev simulate --mutants tries all of them."""

from collections.abc import Sequence

import pytest

from tests.simulation.clusters.mutants import MUTANTS as OF_CLUSTERS
from tests.simulation.controllers.mutants import MUTANTS as OF_CONTROLLERS
from tests.simulation.elections.mutants import MUTANTS as OF_ELECTIONS
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.kept_seeds import kept_names, kept_seeds
from tests.simulation.mutants.mutant import Mutant, catch
from tests.simulation.run import run_seed

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("watermark falls", "offsets never go back"),
        ("flush acknowledged before sync", "nothing acknowledged is lost"),
        ("keys lost from the map", "a log that was cleaned has no superseded records"),
        ("wake-up lost", "whoever waits is woken"),
        ("generation not raised", "generations rise"),
        ("stable at the watermark", "nothing is committed that nobody has committed"),
        ("pending offsets shown", "positions of a group are those of its committed transactions"),
    ],
)
def test_a_bug_is_caught_by_its_check(name: str, check: str) -> None:
    caught = catch(BY_NAME[name], run_seed, (*kept_seeds("one broker", name), *range(20)))
    assert caught is not None
    assert caught.check == check
    assert not run_seed(caught.seed).failure


def test_mutants_have_names_of_their_own_and_what_they_replace_is_there() -> None:
    assert len(BY_NAME) == len(MUTANTS) >= 10
    missing = [each.name for each in MUTANTS if each.attribute not in vars(each.owner)]
    assert missing == []


@pytest.mark.parametrize(
    ("simulation", "mutants"),
    [
        ("one broker", MUTANTS),
        ("elections", OF_ELECTIONS),
        ("controllers", OF_CONTROLLERS),
        ("clusters", OF_CLUSTERS),
    ],
)
def test_each_has_a_seed_that_has_caught_it(simulation: str, mutants: Sequence[Mutant]) -> None:
    assert kept_names(simulation) == {each.name for each in mutants}
