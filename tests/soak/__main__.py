"""``python -m tests.soak connector --minutes 20``: exit code 0 if nothing went wrong."""

import argparse
import random
import sys
import time
from collections.abc import Sequence

from tests.soak.connector import RATE_A_S, soak
from tests.soak.plan import long_plan
from tests.soak.records import VALUE_BYTES


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the arguments, run the plan, give the verdict."""
    parser = argparse.ArgumentParser(prog="./dev soak")
    parser.add_argument("what", choices=["connector"])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--rate", type=int, default=RATE_A_S, help="records a second")
    parser.add_argument(
        "--micro-batches", type=int, default=0, help="go on at the end until so many are done"
    )
    given = parser.parse_args(arguments)
    _say(
        f"soak connector: seed {given.seed}, {given.minutes:g} minutes, {given.rate} records/s, "
        f"up to {given.rate * given.minutes * 60 * 3 * VALUE_BYTES / 1e6:.0f} MB of disk space"
    )
    steps = long_plan(given.minutes, given.seed, time.monotonic)
    problems = soak(steps, _say, rate_a_s=given.rate, micro_batches=given.micro_batches)
    if problems:
        _say(f"FAILED   seed {given.seed}: {len(problems)} problems: {'; '.join(problems)}")
        return 1
    _say(f"PASSED   seed {given.seed}: every record at least once, and exactly once by batch id")
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
