"""Progress on a terminal (one line that changes) or in a file (a line each second)."""

import shutil
import sys
import time
from collections.abc import Mapping

SAME_AGAIN_S = 5.0
"""Shortest time between two equal lines in a file."""


class Progress:
    """Shows rows, the rate, and what is left in each partition."""

    def __init__(self, what: str, total: int, rows: int = 0) -> None:
        """``rows`` were there before."""
        self._what = what
        self._total = total
        self._in_place = sys.stdout.isatty()
        self._first_rows = self._last_rows = rows
        self._started_s: float | None = None
        self._shown_s = 0.0
        self._width = 0

    def show(self, rows: int, lag: Mapping[int, int] | None = None) -> None:
        """One look. ``lag`` is the number of records left, by partition."""
        now_s = time.monotonic()
        changed = rows != self._last_rows
        if changed and self._started_s is None:
            self._started_s = self._shown_s
        if not self._in_place and not changed and now_s - self._shown_s < SAME_AGAIN_S:
            return
        self._last_rows, self._shown_s = rows, now_s
        text = f"  {self._what} {rows:>7,} of {self._total:,}"
        if self._started_s is None:
            text += "  Spark is starting ..."
        else:
            rate = (rows - self._first_rows) / max(now_s - self._started_s, 1e-3)
            text += f"  {rate:>6,.0f} rows/s"
        self._put(text, "" if lag is None else self._lag_text(lag, len(text)))

    def end(self) -> None:
        """Leave the line as it is."""
        if self._in_place:
            print(flush=True)

    def _lag_text(self, lag: Mapping[int, int], used: int) -> str:
        """The lag of each partition; in thousands, in their order, where there is little room."""
        full = "  lag " + " ".join(f"p{n}:{left:,}" for n, left in sorted(lag.items()))
        if not self._in_place or used + len(full) < shutil.get_terminal_size().columns:
            return full
        return "  lag " + " ".join(f"{-(-left // 1_000)}k" for _, left in sorted(lag.items()))

    def _put(self, text: str, lag: str) -> None:
        text += lag
        if self._in_place:
            # A line that wraps could not be written over.
            text = text[: shutil.get_terminal_size().columns - 1]
            print("\r" + text.ljust(self._width), end="", flush=True)
            self._width = len(text)
        else:
            print(text, flush=True)
