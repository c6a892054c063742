"""A whole run of the tests: `./dev test` and `./dev peers` are this module.

Spark keeps one session, one JVM and its registry of data sources for the life of a process, so
every file of tests/spark and tests/peers gets a process of its own; everything else shares one.
`./dev peers parity` is one process for each release of Apache Kafka: its files share a server.
`./dev test --spark 4.0` is one process, too; a whole `./dev test` ends with it, and counts it.
The last line, alone, is the count of the whole run: ``N passed, N failed``.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, PARITY_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
_ALONE = ("spark", "spark_oldest", "peers")
_OLDEST = ("test", "--spark", "4.0")
_OLDEST_MARK = "mark.oldest"
_PARITY = "test_parity_"
_NO_TESTS_COLLECTED = 5
# Options of pytest whose next word is their value, also when it looks like a path.
_WITH_VALUE = frozenset({"-k", "-m", "-p", "-c", "-o", "-W", "--deselect", "--ignore", "--rootdir"})


@dataclass(frozen=True)
class Run:
    """One pytest process: what the user sees as its name, its arguments, and what is set in it."""

    name: str
    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


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


def plan_oldest(arguments: Sequence[str], root: Path = ROOT) -> list[Run]:
    """The same for the oldest Spark: what carries the mark `oldest`, and tests/spark_oldest.

    Only files that have the mark are read: others may import what that release has not.
    """
    options, words = _split(arguments)
    if words:
        return [Run("the tests named", (*words, *options))]
    marked = [
        str(file.relative_to(root))
        for folder in ("spark", "spark_oldest")
        for file in sorted((root / "tests" / folder).glob("test_*.py"))
        if folder == "spark_oldest" or _OLDEST_MARK in file.read_text(encoding="utf-8")
    ]
    name = f"the oldest Spark: {metadata.version('pyspark')}"
    return [Run(name, (*marked, "-m", "oldest", *options))]


def plan(arguments: Sequence[str], root: Path = ROOT, *, peers: bool = False) -> list[Run]:
    """The processes of a run, in order.

    Options go to each of them. Where a path is named (with ``peers``: a name ``x`` of a file
    ``tests/peers/test_x.py``, or `parity`), only that is run. Raises ValueError for a name without
    a file.
    """
    options, words = _split(arguments)
    tests = root / "tests"
    if peers:
        files = _peer_files(words, root)
        alone = [file for file in files if not file.name.startswith(_PARITY)]
        shared = [str(file.relative_to(root)) for file in files if file not in alone]
        runs = [Run(file.stem, (str(file.relative_to(root)), *options)) for file in alone]
        for release in (NEWEST_KAFKA, OLDEST_KAFKA) if shared else ():
            environment = ((PARITY_VARIABLE, release),)
            runs.append(Run(f"parity on Kafka {release}", (*shared, *options), environment))
        return runs
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
    """Files of tests/peers, and those of tests/spark whose scenarios run on the peer, too.

    A name is that of a file without `test_`; `parity` stands for all that begin so.
    """
    there = {
        file.stem.removeprefix("test_"): file
        for file in (
            *sorted((root / "tests" / "peers").glob("test_*.py")),
            *sorted((root / "tests" / "spark").glob(f"{_PARITY}*.py")),
        )
    }
    if not names:
        return list(there.values())
    parity = [name for name, file in there.items() if file.name.startswith(_PARITY)]
    wanted = [each for name in names for each in (parity if name == "parity" else [name])]
    missing = [name for name in wanted if name not in there]
    if missing:
        known = ", ".join(["parity", *there])
        raise ValueError(f"no such tests of peers: {', '.join(missing)}; there are: {known}")
    return [there[name] for name in dict.fromkeys(wanted)]


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


def run_oldest(options: Sequence[str], root: Path = ROOT) -> Counts:
    """Runs `./dev test --spark 4.0`, whose Python is another, and counts its last line."""
    print(f"\n./dev {' '.join(_OLDEST)}", flush=True)
    command = [str(root / "dev"), *_OLDEST, *options]
    last = ""
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    found = re.fullmatch(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", last)
    if found is None:
        return Counts(failed=1)  # its set-up failed
    passed, failed, skipped = (int(number or 0) for number in found.groups())
    if process.returncode != 0 and not failed:
        failed = 1
    return Counts(passed, failed, skipped)


def run_all(runs: Sequence[Run], reports: Path, *, stop_at_failure: bool = False) -> Counts:
    """Runs the processes one after another (two Sparks at once would starve two cores)."""
    reports.mkdir(parents=True, exist_ok=True)
    total = Counts()
    for number, run in enumerate(runs, 1):
        report = reports / f"{number}.xml"
        report.unlink(missing_ok=True)
        print(f"\n[{number}/{len(runs)}] {run.name}", flush=True)
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *run.arguments]
        environment = {**os.environ, **dict(run.environment)}
        exit_code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        counts = counts_of(report)
        if exit_code not in (0, _NO_TESTS_COLLECTED) and counts.failed == 0:
            counts += Counts(failed=1)  # a run that pytest itself calls failed is one
        total += counts
        if stop_at_failure and total.failed:
            break
    return total


def main(arguments: Sequence[str]) -> int:
    """Plans, runs, prints the count; 0 if something ran and nothing failed."""
    peers, oldest = "--peers" in arguments, "--oldest" in arguments
    rest = [argument for argument in arguments if argument not in ("--peers", "--oldest")]
    try:
        runs = plan_oldest(rest) if oldest else plan(rest, peers=peers)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    began = time.monotonic()
    stop_at_failure = not {"-x", "--exitfirst"}.isdisjoint(rest)
    reports = ROOT / ".dev" / ("test-reports-oldest" if oldest else "test-reports")
    total = run_all(runs, reports, stop_at_failure=stop_at_failure)
    is_whole = not (peers or oldest or _split(rest)[1])
    if is_whole and not (stop_at_failure and total.failed):
        total += run_oldest(rest)
    print(f"\n{len(runs)} pytest processes in {time.monotonic() - began:.0f} s")
    print(total.line(), flush=True)
    return 0 if total.failed == 0 and total.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
