"""A cluster of whole brokers from a seed: its promises hold, and a seed always does the same."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.simulation.clusters.mutants import MUTANTS
from tests.simulation.clusters.mutants.topics import SMALL_SLICES
from tests.simulation.clusters.run import run_seed
from tests.simulation.faults import kinds_in
from tests.simulation.mutants.kept_seeds import kept_seeds
from tests.simulation.mutants.mutant import catch

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
ROOT = Path(__file__).resolve().parents[2]
SEEDS = (
    1, 2, 5, 11, 12, 16, 17, 18, 22, 25, 26, 27, 28, 29, 31, 32, 33, 37, 38, 40, 44, 45, 46, 49, 50,
    52, 53, 57, 60, 61, 62, 65, 66, 68, 71, 76, 85,
)  # fmt: skip
"""Cheap seeds that together have all kinds of plans, faults and answers of seeds 0 to 99.

A kind that two or more of seeds 0 to 99 have is in at least two of these.
"""
TOPICS_COME_AND_GO = (5, 11, 17, 24, 38, 49, 64, 75, 77, 83)
"""Cheap seeds in which clients create, extend and delete topics."""
FAULTS = {
    "crash_inside", "cut_power", "delete_controller", "depose_unheard", "die_after_promise",
    "die_in_cut", "expire", "failed_sync", "full_disk", "jump", "kill", "lead_on", "leave_alone",
    "lose_zookeeper", "part_from_joiner", "pause", "reset", "reset_zookeeper", "slow_disk", "split",
    "stall", "stop", "stop_zookeeper", "word_comes_late",
}  # fmt: skip

result_of = cache(run_seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_promises_hold(seed: int) -> None:
    result = result_of(seed)
    again = f"replay it: ./dev simulate --clusters --seed {seed} -v"
    assert not result.failure, "\n".join([*result.lines[-40:], result.failure, again])


def test_the_seeds_have_all_kinds_of_faults() -> None:
    assert kinds_in(result_of(seed).lines for seed in SEEDS) == FAULTS


@pytest.mark.parametrize("seed", TOPICS_COME_AND_GO)
def test_the_promises_hold_for_a_controller_of_small_slices(seed: int) -> None:
    with SMALL_SLICES.applied():
        result = run_seed(seed)
    assert not result.failure, "\n".join([*result.lines[-40:], result.failure])


def test_a_seed_does_the_same_in_any_process() -> None:
    """The trace is equal although the order of sets differs between processes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--clusters", "--seed", "28", "-v"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    result = result_of(28)
    assert len(result.lines) > 1_000
    assert done.stdout.startswith("\n".join([*result.lines, ""]))


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
