"""``./dev simulate [--seeds N] [--seed S] [-v]``: exit code 0 if all promises were kept.

``--clusters``: clusters of brokers instead of a single one.

``--mutants [NAME ...]``: exit code 0 if each of these brokers with a bug was caught.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.simulation.clusters import run as clusters
from tests.simulation.clusters.mutants import MUTANTS as CLUSTER_MUTANTS
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.run import Result, run_seed

_TAIL = 60
_SEEDS = 50
_SEEDS_A_MUTANT = 500


class _Play(NamedTuple):
    """What is simulated."""

    option: str
    run_seed: Callable[[int], Result]
    mutants: Sequence[Mutant]


_ONE_BROKER = _Play("", run_seed, MUTANTS)
_CLUSTERS = _Play(" --clusters", clusters.run_seed, CLUSTER_MUTANTS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the seeds, one after the other."""
    parser = argparse.ArgumentParser(prog="./dev simulate")
    parser.add_argument(
        "--seeds", type=int, help=f"how many, from 0 on: {_SEEDS}, {_SEEDS_A_MUTANT} a mutant"
    )
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument(
        "--mutants", nargs="*", metavar="NAME", help="brokers with a bug, all or those named"
    )
    parser.add_argument(
        "--clusters", action="store_true", help="clusters of brokers instead of a single one"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="print the trace")
    given = parser.parse_args(arguments)
    for name in ("klog", "klog_broker"):  # what its log says of faults that are meant
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    play = _CLUSTERS if given.clusters else _ONE_BROKER
    if given.mutants is not None:
        chosen = [each for each in play.mutants if not given.mutants or each.name in given.mutants]
        return _catch(play, chosen, _chosen(given, _SEEDS_A_MUTANT), verbose=given.verbose)
    return _run(play, _chosen(given, _SEEDS), verbose=given.verbose)


def _chosen(given: argparse.Namespace, default: int) -> range:
    if given.seed is not None:
        return range(given.seed, given.seed + 1)
    return range(default if given.seeds is None else given.seeds)


def _run(play: _Play, seeds: range, *, verbose: bool) -> int:
    began = time.monotonic()
    failed = 0
    for seed in seeds:
        result = play.run_seed(seed)
        failed += bool(result.failure)
        _say(play, result, verbose=verbose)
    took_s = time.monotonic() - began
    print(f"{len(seeds)} seeds, {failed} failed, {took_s / len(seeds):.2f} s a seed", flush=True)
    return 1 if failed else 0


def _catch(play: _Play, mutants: Sequence[Mutant], seeds: range, *, verbose: bool) -> int:
    """A row for each: the first seed that catches it, and the check that does."""
    missed = 0
    for mutant in mutants:
        with mutant.applied():
            caught = next((r for r in map(play.run_seed, seeds) if r.failure), None)
        if caught is not None and verbose:
            _say(play, caught, verbose=False)
        missed += caught is None
        seed, check = ("-", "NOT CAUGHT") if caught is None else (caught.seed, caught.check)
        print(f"{mutant.name:<32} {seed:>5}  {check}", flush=True)
    print(f"{len(mutants)} mutants, {missed} not caught in {len(seeds)} seeds")
    return 1 if missed else 0


def _say(play: _Play, result: Result, *, verbose: bool) -> None:
    if verbose or result.failure:
        print("\n".join(result.lines if verbose else result.lines[-_TAIL:]))
    verdict = f"FAILED {result.failure}" if result.failure else "ok"
    print(f"seed {result.seed} {result.trace_hash} {verdict} ({result.summary})", flush=True)
    if result.failure:
        print(f"replay it: ./dev simulate{play.option} --seed {result.seed} -v", flush=True)


if __name__ == "__main__":
    sys.exit(main())
