"""`./dev bench [NAME...]`: runs the benchmarks of this folder and prints klog, peer and ratio.

A benchmark is a module of this folder with a docstring and ``run(args) -> list[Row]`` (rows.py).
``--json`` prints one JSON document on stdout for a program; progress and remarks go to stderr.
"""

import argparse
import importlib
import json
import pkgutil
import platform
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict

import benchmarks
from benchmarks.rows import Row, table


def names() -> list[str]:
    """The benchmarks: modules of this folder that are neither private nor shared code."""
    found = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name for name in found if not name.startswith("_") and name != "rows")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exit with code 2 and a message for an unknown benchmark."""
    parser = argparse.ArgumentParser(
        prog="./dev bench", description="Measure klog beside its peers, in turns, in one run."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run (all)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and stop")
    parser.add_argument(
        "--rows",
        default="",
        metavar="ROW,...",
        help="only these rows of a benchmark that has names for them (its docstring)",
    )
    parser.add_argument(
        "--plot",
        nargs="?",
        const="",
        metavar="FILE",
        help="draw the chart of latency or of paper into FILE (that of docs/images)",
    )
    args = parser.parse_args(arguments)
    unknown = sorted(set(args.names) - set(names()))
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(names())}")
    return args


def main(arguments: Sequence[str]) -> int:
    """Run the named benchmarks in order; return 0 when each has finished."""
    args = parse(arguments)
    chosen = args.names or names()
    if args.list:
        for name in names():
            print(f"{name:24} {_summary(name)}")
        return 0
    python = f"Python {platform.python_version()} of {sys.base_prefix}"
    print(f"bench: {python}, in which klog runs", file=sys.stderr, flush=True)
    results: dict[str, list[Row]] = {}
    for name in chosen:
        print(f"bench: {name}", file=sys.stderr, flush=True)
        results[name] = importlib.import_module(f"benchmarks.{name}").run(args)
        if not args.json:
            print(table(name, results[name]), flush=True)
    if args.json:
        document = {name: [_document(row) for row in rows] for name, rows in results.items()}
        print(json.dumps(document, indent=2))
    return 0


def _document(row: Row) -> dict[str, object]:
    return {**asdict(row), "ratio": row.ratio, "reached": row.reached}


def _summary(name: str) -> str:
    lines = (importlib.import_module(f"benchmarks.{name}").__doc__ or "").strip().splitlines()
    return lines[0] if lines else ""


def _end(number: int, _: object) -> None:
    """Raise SystemExit, so that the brokers are stopped: they would run on otherwise."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main(sys.argv[1:]))
