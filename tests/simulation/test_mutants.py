"""Brokers with a bug are caught; ./dev simulate --mutants has all of them."""

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.mutant import catch
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
    caught = catch(BY_NAME[name], run_seed, range(20))
    assert caught is not None
    assert caught.check == check
    assert not run_seed(caught.seed).failure


def test_mutants_have_names_of_their_own_and_what_they_replace_is_there() -> None:
    assert len(BY_NAME) == len(MUTANTS) >= 10
    missing = [each.name for each in MUTANTS if each.attribute not in vars(each.owner)]
    assert missing == []
