"""Findings as they come, in bounded number, and what was looked at."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from klog_broker.inspection.lines import Finding, Level

MOST_OF_A_FILE = 20
"""More findings of one file are counted, not said: one damaged byte may put many rows off."""


class Report:
    """``say`` is called with each finding."""

    def __init__(self, say: Callable[[Finding], object]) -> None:
        self._say = say
        self._said: Counter[Path] = Counter()
        self.findings: Counter[Level] = Counter()
        self.partitions = self.segments = self.batches = self.records = self.bytes = 0

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged."""
        return not self.findings[Level.ERROR]

    def add(self, level: Level, path: Path, text: str, position: int | None = None) -> None:
        """A finding, said unless its file has had its share."""
        self.findings[level] += 1
        self._said[path] += 1
        if self._said[path] <= MOST_OF_A_FILE:
            self._say(Finding(level, path, text, position))

    def error(self, path: Path, text: str, position: int | None = None) -> None:
        """See `Level`."""
        self.add(Level.ERROR, path, text, position)

    def recoverable(self, path: Path, text: str, position: int | None = None) -> None:
        """See `Level`."""
        self.add(Level.RECOVERABLE, path, text, position)

    def note(self, path: Path, text: str, position: int | None = None) -> None:
        """See `Level`."""
        self.add(Level.NOTE, path, text, position)

    def end(self) -> None:
        """Say of each file how many findings were not said."""
        for path, count in self._said.items():
            if count > MOST_OF_A_FILE:
                self._say(Finding(Level.NOTE, path, f"{count - MOST_OF_A_FILE} more findings"))
