"""``./dev fuzz [TARGET ...] [--inputs N] [--seed S] [--input N]``: exit code 0 without findings."""

import argparse
import sys
import time
from collections.abc import Sequence

from tests.fuzz.runner import Finding, again, run_beside
from tests.fuzz.targets import TARGETS, load_target

_INPUTS = 50_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Feed the targets, one after the other."""
    parser = argparse.ArgumentParser(prog="./dev fuzz")
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"some of {', '.join(TARGETS)}"
    )
    parser.add_argument(
        "--inputs", type=int, default=_INPUTS, help=f"inputs of all targets in sum ({_INPUTS})"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the inputs (0)")
    parser.add_argument("--input", type=int, help="feed only this input of one target")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.targets if name not in TARGETS]
    if unknown:
        parser.error(f"there is no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    if given.input is not None:
        if len(given.targets) != 1:
            parser.error("--input is the number of an input of one target: name that")
        return _say(again(load_target(given.targets[0]), given.seed, given.input))
    chosen = given.targets or list(TARGETS)
    parts = sum(TARGETS[name] for name in chosen)
    failed = 0
    for name in chosen:
        count = max(1, given.inputs * TARGETS[name] // parts)
        began = time.monotonic()
        found = run_beside(name, given.seed, range(count))
        took_s = time.monotonic() - began
        failed += _say(found)
        print(
            f"{name:<9} {count:>9,} inputs, {len(found)} findings, seed {given.seed}, "
            f"{count / took_s:,.0f} inputs/s",
            flush=True,
        )
    return 1 if failed else 0


def _say(found: Sequence[Finding]) -> int:
    for each in found:
        print("\n".join(each.lines()), flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
