"""Counts and prints the findings of `klog verify` (faults in files, and remarks about them), and
counts the partitions, segments, batches, records and bytes that were checked."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from klog_broker.inspection.lines import Finding, Level

MOST_OF_A_FILE = 20
"""The most findings of one file that are printed; further findings are at most counted, because one
damaged byte may make many rows wrong."""


class Report:
    """Counts the findings of `klog verify`, and passes them to ``say``, which prints a finding."""

    def __init__(self, say: Callable[[Finding], object]) -> None:
        self._say = say
        self._said: Counter[Path] = Counter()
        self.findings: Counter[Level] = Counter()
        self.partitions = self.segments = self.batches = self.records = self.bytes = 0

    @property
    def is_sound(self) -> bool:
        """Whether no finding reports damage."""
        return not self.findings[Level.ERROR]

    def add(self, level: Level, path: Path, text: str, position: int | None = None) -> None:
        """Add a finding, and print it unless its file has reached the limit."""
        self.findings[level] += 1
        self._said[path] += 1
        if self._said[path] <= MOST_OF_A_FILE:
            self._say(Finding(level, path, text, position))

    def error(self, path: Path, text: str, position: int | None = None) -> None:
        """Add a finding of `Level.ERROR`."""
        self.add(Level.ERROR, path, text, position)

    def recoverable(self, path: Path, text: str, position: int | None = None) -> None:
        """Add a finding of `Level.RECOVERABLE`."""
        self.add(Level.RECOVERABLE, path, text, position)

    def note(self, path: Path, text: str, position: int | None = None) -> None:
        """Add a finding of `Level.NOTE`."""
        self.add(Level.NOTE, path, text, position)

    def print_omitted_counts(self) -> None:
        """For each file with more than MOST_OF_A_FILE findings, print how many of them were not
        printed."""
        for path, count in self._said.items():
            if count > MOST_OF_A_FILE:
                self._say(Finding(Level.NOTE, path, f"{count - MOST_OF_A_FILE} more findings"))
