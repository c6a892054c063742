"""The report of a soak: its lines, its counts and its problems."""

import time
from collections import Counter
from collections.abc import Callable

Say = Callable[[str], None]


class Report:
    """Prints each line with the seconds since the soak began."""

    def __init__(self, tell: Say) -> None:
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self._tell = tell
        self._began_s = time.monotonic()

    def say(self, text: str) -> None:
        self._tell(f"{time.monotonic() - self._began_s:6.1f} s  {text}")

    def problem(self, text: str) -> None:
        self.problems.append(text)
        self.say(f"PROBLEM  {text}")
