"""Brokers with a bug are caught; ./dev simulate --mutants has all of them."""

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.run import run_seed

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize(
    ("name", "check", "seed"),
    [
        ("watermark falls", "offsets never go back", 0),
        ("flush acknowledged before sync", "nothing acknowledged is lost", 5),
        ("keys lost from the map", "a log that was cleaned has no superseded records", 0),
        ("wake-up lost", "whoever waits is woken", 0),
        ("generation not raised", "generations rise", 0),
        ("stable at the watermark", "nothing is committed that nobody has committed", 3),
        (
            "pending offsets shown",
            "positions of a group are those of its committed transactions",
            1,
        ),
    ],
)
def test_a_bug_is_caught_by_its_check(name: str, check: str, seed: int) -> None:
    """By a seed that has caught it; when other code makes other plays of them, by another one."""
    with BY_NAME[name].applied():
        assert check in (result.check for result in map(run_seed, (seed, *range(20))))


def test_a_bug_is_gone_with_its_mutant() -> None:
    with BY_NAME["watermark falls"].applied():
        assert run_seed(0).failure
    assert not run_seed(0).failure


def test_mutants_have_names_of_their_own_and_what_they_replace_is_there() -> None:
    assert len(BY_NAME) == len(MUTANTS) >= 10
    missing = [each.name for each in MUTANTS if each.attribute not in vars(each.owner)]
    assert missing == []
