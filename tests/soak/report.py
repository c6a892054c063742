"""What a soak says while it runs, what it counts, and what went wrong."""

import time
from collections import Counter
from collections.abc import Callable

Say = Callable[[str], None]


class Report:
    """Told line by line, with the seconds since the soak began."""

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
