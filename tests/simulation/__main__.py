"""``./dev simulate --seeds N [--seed S] [-v]``: exit code 0 if all promises were kept."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence

from tests.simulation.run import Result, run_seed

_TAIL = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the seeds, one after the other."""
    parser = argparse.ArgumentParser(prog="./dev simulate")
    parser.add_argument("--seeds", type=int, default=50, help="how many, from --seed on")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the trace")
    given = parser.parse_args(arguments)
    logging.getLogger("klog").setLevel(logging.CRITICAL + 1)
    logging.getLogger("klog_broker").setLevel(logging.CRITICAL + 1)
    seeds = range(given.seeds) if given.seed is None else [given.seed]
    began = time.monotonic()
    failed = 0
    for seed in seeds:
        result = run_seed(seed)
        failed += bool(result.failure)
        _say(result, verbose=given.verbose)
    took_s = time.monotonic() - began
    print(f"{len(seeds)} seeds, {failed} failed, {took_s / len(seeds):.2f} s a seed", flush=True)
    return 1 if failed else 0


def _say(result: Result, *, verbose: bool) -> None:
    if verbose or result.failure:
        print("\n".join(result.lines if verbose else result.lines[-_TAIL:]))
    verdict = f"FAILED {result.failure}" if result.failure else "ok"
    print(f"seed {result.seed} {result.trace_hash} {verdict} ({result.summary})", flush=True)
    if result.failure:
        print(f"replay it: ./dev simulate --seed {result.seed} -v", flush=True)


if __name__ == "__main__":
    sys.exit(main())
