"""Results in the JUnit reports of a run: counts, times, and folders that exceed their budget."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

_BUDGET_ROW = re.compile(r"^\| `(tests/\w+)` \|.*\| (\d+) \|$", re.MULTILINE)


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


class Timed(NamedTuple):
    """A test with the seconds that it took, its fixtures included."""

    seconds: float
    name: str
    folder: str


def counts_of(report: Path) -> Counts:
    """Return a JUnit report's counts; without a report the run has died, which is one failure."""
    root = _parsed(report)
    if root is None:
        return Counts(failed=1)
    total = Counts()
    for suite in root.iter("testsuite"):
        tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        total += Counts(passed=max(tests - failed - skipped, 0), failed=failed, skipped=skipped)
    return total


def times_of(report: Path, folder: str | None = None) -> list[Timed]:
    """The tests of a JUnit report; their folder is that of their file unless one is given."""
    root = _parsed(report)
    return [
        _timed(case.get("classname", ""), case.get("name", ""), case.get("time", "0"), folder)
        for case in (root.iter("testcase") if root is not None else ())
    ]


def _parsed(report: Path) -> "ElementTree.Element | None":
    try:
        return ElementTree.parse(report).getroot()
    except (OSError, ElementTree.ParseError):
        return None


def _timed(place: str, name: str, seconds: str, folder: str | None) -> Timed:
    """A test of ``tests.unit.log.test_x``, or of a class in there: its folder is tests/unit."""
    parts = place.split(".")
    module = next((n for n, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1)
    file = "/".join(parts[: module + 1]) + ".py"
    inner = "".join(f"::{part}" for part in parts[module + 1 :])
    return Timed(float(seconds), f"{file}{inner}::{name}", folder or "/".join(parts[:module][:2]))


def slowest(times: Iterable[Timed], count: int = 20) -> list[str]:
    """A line for each of the slowest tests, the slowest one first."""
    first = sorted(times, key=lambda timed: -timed.seconds)[:count]
    return [f"{timed.seconds:7.1f} s  {timed.name}" for timed in first]


def budgets(page: str) -> dict[str, int]:
    """Seconds of test time for each folder: the last column of the table in docs/testing.md."""
    return {folder: int(seconds) for folder, seconds in _BUDGET_ROW.findall(page)}


def over_budget(times: Sequence[Timed], allowed: Mapping[str, int]) -> list[str]:
    """A warning for each folder whose tests took longer than they may, or that has no budget."""
    spent: dict[str, float] = {}
    for timed in times:
        spent[timed.folder] = spent.get(timed.folder, 0.0) + timed.seconds
    return [
        f"warning: {folder} took {seconds:.0f} s of its {allowed.get(folder, 0)} s "
        "(docs/testing.md): make its slowest tests cheaper, or give it more of another folder's"
        for folder, seconds in sorted(spent.items())
        if seconds > allowed.get(folder, 0)
    ]
