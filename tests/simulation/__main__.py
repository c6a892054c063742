"""``./dev simulate [--seeds N] [--seed S] [-v]``: exit code 0 if all promises were kept.

``--clusters``: clusters of brokers instead of a single one.

``--mutants [NAME ...]``: exit code 0 if each of these brokers with a bug was caught, by the seed
that is kept for it or by another one. ``--keep`` keeps the seed that caught it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from tests.simulation.clusters import run as clusters
from tests.simulation.clusters.mutants import MUTANTS as CLUSTER_MUTANTS
from tests.simulation.controllers import run as controllers
from tests.simulation.controllers.mutants import MUTANTS as CONTROLLER_MUTANTS
from tests.simulation.elections import run as elections
from tests.simulation.elections.mutants import MUTANTS as ELECTION_MUTANTS
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.kept_seeds import keep_seed, kept_seeds
from tests.simulation.mutants.mutant import Mutant, Outcome, catch
from tests.simulation.run import Result, run_seed

A = TypeVar("A")
B = TypeVar("B")

_TAIL = 60
_SEEDS = 50
_SEEDS_A_MUTANT = 2_000


class _Play(NamedTuple):
    """One kind of simulation, with the option that chooses it."""

    option: str
    run_seed: Callable[[int], Result]


class _Bugs(NamedTuple):
    """Brokers with a bug, and the simulation that catches them."""

    simulation: str
    run_seed: Callable[[int], Outcome]
    mutants: Sequence[Mutant]


_ONE_BROKER = _Play("", run_seed)
_CLUSTERS = _Play(" --clusters", clusters.run_seed)
_BUGS_OF_CLUSTERS = _Bugs("clusters", clusters.run_seed, CLUSTER_MUTANTS)
_BUGS = (
    _Bugs("one broker", run_seed, MUTANTS),
    _Bugs("elections", elections.run_seed, ELECTION_MUTANTS),
    _Bugs("controllers", controllers.run_seed, CONTROLLER_MUTANTS),
    _BUGS_OF_CLUSTERS,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds, one process for each processor."""
    parser = argparse.ArgumentParser(prog="./dev simulate")
    parser.add_argument(
        "--seeds",
        type=int,
        help=f"how many seeds to run ({_SEEDS}; {_SEEDS_A_MUTANT} for a mutant)",
    )
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument(
        "--mutants", nargs="*", metavar="NAME", help="run the named mutants, or all"
    )
    parser.add_argument(
        "--clusters", action="store_true", help="simulate clusters instead of a single broker"
    )
    parser.add_argument(
        "--keep", action="store_true", help="with --mutants: store the seeds that catch them"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="print the trace")
    given = parser.parse_args(arguments)
    for name in ("klog", "klog_broker"):  # silence klog's log lines about the injected faults
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    if given.mutants is not None:
        bugs = (_BUGS_OF_CLUSTERS,) if given.clusters else _BUGS
        seeds = _chosen(given, _SEEDS_A_MUTANT)
        return _catch(bugs, given.mutants, seeds, keep=given.keep, verbose=given.verbose)
    play = _CLUSTERS if given.clusters else _ONE_BROKER
    return _run(play, _chosen(given, _SEEDS), verbose=given.verbose)


def _chosen(given: argparse.Namespace, default: int) -> range:
    if given.seed is not None:
        return range(given.seed, given.seed + 1)
    return range(default if given.seeds is None else given.seeds)


def _run(play: _Play, seeds: range, *, verbose: bool) -> int:
    began = time.monotonic()
    failed = 0
    for result in _spread(partial(_play_one, play.run_seed, verbose=verbose), seeds):
        failed += bool(result.failure)
        _say(play, result, verbose=verbose)
    took_s = time.monotonic() - began
    print(f"{len(seeds)} seeds, {failed} failed, {took_s / len(seeds):.2f} s a seed", flush=True)
    return 1 if failed else 0


def _play_one(run_seed: Callable[[int], Result], seed: int, *, verbose: bool) -> Result:
    result = run_seed(seed)
    if not verbose:
        del result.lines[:-_TAIL]
    return result


def _spread(work: Callable[[A], B], items: Sequence[A]) -> Iterator[B]:
    """The result of ``work`` for each item, in order, computed on all available processors."""
    processes = min(len(os.sched_getaffinity(0)), len(items))
    if processes < 2:
        yield from map(work, items)
        return
    gc.collect()
    gc.freeze()  # a garbage collection would copy the imported modules into each process
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(work, items)


class _Caught(NamedTuple):
    """The outcome of a mutant; the seed is -1 and the rest empty if it was not caught."""

    seed: int = -1
    check: str = ""
    lines: Sequence[str] = ()


def _catch(
    bugs: Sequence[_Bugs], names: Sequence[str], seeds: range, *, keep: bool, verbose: bool
) -> int:
    """Print a row for each mutant: the seed and the check that catch it.

    The kept seed is tried first.
    """
    began = time.monotonic()
    places = [
        (_BUGS.index(each), number)
        for each in bugs
        for number, mutant in enumerate(each.mutants)
        if not names or mutant.name in names
    ]
    missed = 0
    for (place, number), caught in zip(
        places, _spread(partial(_catch_one, seeds), places), strict=True
    ):
        simulation, name = _BUGS[place].simulation, _BUGS[place].mutants[number].name
        if caught.seed < 0:
            missed += 1
            print(f"{name:<40} {'-':>5}  NOT CAUGHT in {len(seeds)} seeds", flush=True)
            continue
        if verbose:
            print("\n".join(caught.lines))
        print(f"{name:<40} {caught.seed:>5}  {caught.check}", flush=True)
        kept = kept_seeds(simulation, name)
        if caught.seed in kept:
            continue
        if keep:
            keep_seed(simulation, name, caught.seed)
        else:
            print(f"    the seed that is kept was {kept or 'none'}: see --keep", flush=True)
    took_s = time.monotonic() - began
    print(f"{len(places)} mutants, {missed} not caught, {took_s:.0f} s")
    return 1 if missed else 0


def _catch_one(seeds: range, place: tuple[int, int]) -> _Caught:
    """Try to catch one mutant.

    ``place`` names it by index, because a mutant cannot be sent to another process.
    """
    bugs = _BUGS[place[0]]
    mutant = bugs.mutants[place[1]]
    kept = kept_seeds(bugs.simulation, mutant.name)
    caught = catch(mutant, bugs.run_seed, (*kept, *seeds))
    if caught is None:
        return _Caught()
    return _Caught(caught.seed, caught.check, [*caught.lines[-_TAIL:], caught.failure])


def _say(play: _Play, result: Result, *, verbose: bool) -> None:
    if verbose or result.failure:
        print("\n".join(result.lines if verbose else result.lines[-_TAIL:]))
    verdict = f"FAILED {result.failure}" if result.failure else "ok"
    print(f"seed {result.seed} {result.trace_hash} {verdict} ({result.summary})", flush=True)
    if result.failure:
        print(f"replay it: ./dev simulate{play.option} --seed {result.seed} -v", flush=True)


if __name__ == "__main__":
    sys.exit(main())
