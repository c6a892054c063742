"""A cluster of whole brokers from a seed: its promises hold, and a seed always does the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.clusters.mutants import MUTANTS
from tests.simulation.clusters.mutants.topics import SMALL_SLICES
from tests.simulation.clusters.run import run_seed
from tests.simulation.mutants.kept_seeds import kept_seeds
from tests.simulation.mutants.mutant import catch

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("seed", range(100))
def test_the_promises_hold(seed: int) -> None:
    result = run_seed(seed)
    again = f"replay it: ./dev simulate --clusters --seed {seed} -v"
    assert not result.failure, "\n".join([*result.lines[-40:], result.failure, again])


@pytest.mark.parametrize("seed", range(10))
def test_the_promises_hold_for_a_controller_of_small_slices(seed: int) -> None:
    with SMALL_SLICES.applied():
        result = run_seed(seed)
    assert not result.failure, "\n".join([*result.lines[-40:], result.failure])


def test_a_seed_does_the_same_in_any_process() -> None:
    """The trace is equal although the order of sets differs between processes."""

    def replay(hash_seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--clusters", "--seed", "8", "-v"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.rpartition("\n1 seeds")[0]

    first, second = replay("1"), replay("2")
    assert first.count("\n") > 1_000
    assert first == second


@pytest.mark.parametrize(
    "name",
    [
        "watermark falls",
        "watermark at the log's end",
        "acks=all at append",
        "producers kept over truncation",
        "broker makes an epoch",
        "unclean though off",
        "topic shown in slices",
    ],
)
def test_a_bug_is_caught(name: str) -> None:
    """./dev simulate --clusters --mutants tries all mutants."""
    seeds = (*kept_seeds("clusters", name), *range(100))
    assert catch(BY_NAME[name], run_seed, seeds) is not None


def test_mutants_have_names_of_their_own_and_what_they_replace_is_there() -> None:
    assert len(BY_NAME) == len(MUTANTS)
    missing = [each.name for each in MUTANTS if each.attribute not in vars(each.owner)]
    assert missing == []
