"""A whole run of the tests: `./dev test` and `./dev peers` are this module.

Spark keeps one session, one JVM and its registry of data sources for the life of a process, so
every file of tests/spark and tests/peers gets a process of its own; everything else shares one.
The last line, alone, is the count of the whole run: ``N passed, N failed``.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
_ALONE = ("spark", "peers")
_NO_TESTS_COLLECTED = 5
# Options of pytest whose next word is their value, also when it looks like a path.
_WITH_VALUE = frozenset({"-k", "-m", "-p", "-c", "-o", "-W", "--deselect", "--ignore", "--rootdir"})


@dataclass(frozen=True)
class Run:
    """One pytest process: what the user sees as its name, and its arguments."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Counts:
    """How the tests of a run, or of several, ended."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def line(self) -> str:
        """The closing line that people and CI read."""
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def plan(arguments: Sequence[str], root: Path = ROOT, *, peers: bool = False) -> list[Run]:
    """The processes of a run, in order.

    Options go to each of them. Where a path is named (with ``peers``: a name ``x`` of a file
    ``tests/peers/test_x.py``), only that is run. Raises ValueError for a name without a file.
    """
    options, words = _split(arguments)
    tests = root / "tests"
    if peers:
        files = _peer_files(words, root)
        return [Run(file.stem, (str(file.relative_to(root)), *options)) for file in files]
    if words:
        return [Run("the tests named", (*words, *options))]
    shared = sorted(
        str(folder.relative_to(root))
        for folder in tests.iterdir()
        if folder.name not in _ALONE and any(folder.glob("test_*.py"))
    )
    runs = [Run("everything but Spark", (*shared, *options))] if shared else []
    runs += [
        Run(f"spark: {file.stem}", (str(file.relative_to(root)), *options))
        for file in sorted((tests / "spark").glob("test_*.py"))
    ]
    return runs


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options (with their values) and other words, each in the order given."""
    options: list[str] = []
    words: list[str] = []
    takes_value = False
    for argument in arguments:
        if takes_value or argument.startswith("-"):
            options.append(argument)
        else:
            words.append(argument)
        takes_value = not takes_value and argument in _WITH_VALUE
    return options, words


def _peer_files(names: Sequence[str], root: Path) -> list[Path]:
    folder = root / "tests" / "peers"
    if not names:
        return sorted(folder.glob("test_*.py"))
    files = [folder / f"test_{name}.py" for name in names]
    missing = [name for name, file in zip(names, files, strict=True) if not file.exists()]
    if missing:
        there = ", ".join(file.stem.removeprefix("test_") for file in _peer_files([], root))
        raise ValueError(f"no such tests of peers: {', '.join(missing)}; there are: {there}")
    return files


def counts_of(report: Path) -> Counts:
    """What a JUnit report counts; a report that is not there is a run that died: one failure."""
    try:
        suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        return Counts(failed=1)
    total = Counts()
    for suite in suites:
        tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        total += Counts(passed=max(tests - failed - skipped, 0), failed=failed, skipped=skipped)
    return total


def run_all(runs: Sequence[Run], reports: Path, *, stop_at_failure: bool = False) -> Counts:
    """Runs the processes one after another (two Sparks at once would starve two cores)."""
    reports.mkdir(parents=True, exist_ok=True)
    total = Counts()
    for number, run in enumerate(runs, 1):
        report = reports / f"{number}.xml"
        report.unlink(missing_ok=True)
        print(f"\n[{number}/{len(runs)}] {run.name}", flush=True)
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *run.arguments]
        exit_code = subprocess.run(command, cwd=ROOT, check=False).returncode
        counts = counts_of(report)
        if exit_code not in (0, _NO_TESTS_COLLECTED) and counts.failed == 0:
            counts += Counts(failed=1)  # a run that pytest itself calls failed is one
        total += counts
        if stop_at_failure and total.failed:
            break
    return total


def main(arguments: Sequence[str]) -> int:
    """Plans, runs, prints the count; 0 if something ran and nothing failed."""
    peers = "--peers" in arguments
    rest = [argument for argument in arguments if argument != "--peers"]
    try:
        runs = plan(rest, peers=peers)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    began = time.monotonic()
    stop_at_failure = not {"-x", "--exitfirst"}.isdisjoint(rest)
    total = run_all(runs, ROOT / ".dev" / "test-reports", stop_at_failure=stop_at_failure)
    print(f"\n{len(runs)} pytest processes in {time.monotonic() - began:.0f} s")
    print(total.line(), flush=True)
    return 0 if total.failed == 0 and total.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
