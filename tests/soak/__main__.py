"""``python -m tests.soak connector --minutes 20``: exit code 0 if nothing went wrong."""

import argparse
import random
import signal
import sys
import time
from collections.abc import Sequence

from tests.soak import connector, exactly_once, lake, plan, process_faults
from tests.soak.cluster import soak as cluster
from tests.soak.records import VALUE_BYTES
from tests.soak.transactions import copying


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the arguments, run the plan, print the verdict."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["transactions"]:
        return copying.main(words[1:], _say)
    # `finally` blocks end the processes that the soak has started or stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if words[:1] == ["lake"]:
        return lake.main(words[1:], _say)
    if words[:1] == ["cluster"]:
        return cluster.main(words[1:], _say)
    parser = argparse.ArgumentParser(
        prog="./dev soak",
        epilog="also: ./dev soak transactions --help, cluster --help and lake --help",
    )
    parser.add_argument("what", choices=["connector", "exactly-once"])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--rate", type=int, help="records written each second")
    parser.add_argument(
        "--micro-batches",
        type=int,
        default=0,
        help="connector: at the end, run until this many micro-batches are done",
    )
    given = parser.parse_args(words)
    soak = _connector if given.what == "connector" else _exactly_once
    problems, proved = soak(given)
    if problems:
        _say(f"FAILED   seed {given.seed}: {len(problems)} problems: {'; '.join(problems)}")
        return 1
    _say(f"PASSED   seed {given.seed}: {proved}")
    return 0


def _connector(given: argparse.Namespace) -> tuple[list[str], str]:
    rate_a_s = given.rate or connector.RATE_A_S
    _say_begin(given, rate_a_s, copies=3)
    steps = plan.long_plan(given.minutes, given.seed, time.monotonic)
    problems = connector.soak(steps, _say, rate_a_s=rate_a_s, micro_batches=given.micro_batches)
    return problems, "every record at least once, and exactly once by batch id"


def _exactly_once(given: argparse.Namespace) -> tuple[list[str], str]:
    rate_a_s = given.rate or exactly_once.RATE_A_S
    _say_begin(given, rate_a_s, copies=8)
    faults = process_faults.long_plan(given.minutes, given.seed, time.monotonic)
    problems = exactly_once.soak(faults, _say, rate_a_s=rate_a_s)
    return problems, "every record exactly once in each copy, in order per key"


def _say_begin(given: argparse.Namespace, rate_a_s: int, copies: int) -> None:
    mb = rate_a_s * given.minutes * 60 * copies * VALUE_BYTES / 1e6
    _say(
        f"soak {given.what}: seed {given.seed}, {given.minutes:g} minutes, {rate_a_s} records/s, "
        f"up to {mb:.0f} MB of disk space"
    )


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
