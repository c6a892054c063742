"""Warnings while an operation is tried again: soon after the first failure, then seldom, and a last
one when it works again.

`Trouble` is pure: time comes as an argument, sentences are given back. `Retries` logs them.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark_klog.client.errors import ConnectionFailed, NoBrokerAvailable, RequestTimedOut

_log = logging.getLogger(__name__)

FIRST_PAUSE_MS = 5_000
"""Between the first two warnings; each pause is twice the one before, up to the longest."""
LONGEST_PAUSE_MS = 60_000
PATIENCE_MS = 5_000
"""Leaders change within seconds: there is no warning of brokers' answers before that time."""


class Trouble:
    """One operation's failures in a row.

    ``what`` names the operation as the beginning of a sentence, as in "reading t-0". ``bound`` is
    the setting that says for how long the operation is tried; None if there is none.
    """

    def __init__(self, what: str, bound: str | None = None) -> None:
        self._what = what
        self._bound = bound
        self._since_ms: int | None = None
        self._failures = 0
        self._due_ms: int | None = None
        self._pause_ms = FIRST_PAUSE_MS

    @property
    def is_open(self) -> bool:
        """Whether the last attempt failed."""
        return self._since_ms is not None

    def failed(self, error: BaseException, now_ms: int, until_ms: int) -> str | None:
        """An attempt failed, and there will be others until ``until_ms``; returns the warning, if
        one is due."""
        if self._since_ms is None:
            self._since_ms = now_ms
        self._failures += 1
        age_ms = now_ms - self._since_ms
        if self._due_ms is None:
            if not self._is_worth_a_word(error, age_ms):
                return None
        elif now_ms < self._due_ms:
            return None
        self._due_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)
        so_far = f" for {_seconds(age_ms)}" if age_ms >= 1_000 else ""
        bound = f" ({self._bound})" if self._bound else ""
        return (
            f"{self._what} has failed{so_far} and is tried again for up to "
            f"{_seconds(max(until_ms - now_ms, 0))}{bound}: {error}"
        )

    def passed(self, now_ms: int) -> str | None:
        """An attempt succeeded; returns the sentence that says so, if there was a warning."""
        since_ms, was_said = self._since_ms, self._due_ms is not None
        self._since_ms = self._due_ms = None
        self._failures = 0
        self._pause_ms = FIRST_PAUSE_MS
        if since_ms is None or not was_said:
            return None
        return f"{self._what} works again after {_seconds(now_ms - since_ms)}"

    def _is_worth_a_word(self, error: BaseException, age_ms: int) -> bool:
        if isinstance(error, NoBrokerAvailable | RequestTimedOut):
            return True
        # The attempt after a lost connection often makes a new one, so the first loss is no news.
        return age_ms >= PATIENCE_MS or (isinstance(error, ConnectionFailed) and self._failures > 1)


class Retries:
    """Logs the trouble of one client. Of operations within each other only the outermost is named:
    the user knows it, and its time is the one that ends them all."""

    def __init__(self, now_ms: Callable[[], int], prefix: str = "") -> None:
        """``prefix`` is put before the names of settings."""
        self._now_ms = now_ms
        self._prefix = prefix
        self._outermost: tuple[Trouble, Callable[[], int]] | None = None
        self._is_muted = False

    def mute(self) -> None:
        """Log nothing from now on; the client's user reports failures itself."""
        self._is_muted = True

    def trouble(self, what: str, bound: str | None = None) -> Trouble:
        """The trouble of an operation, named ``what``, whose time the setting ``bound`` limits."""
        return Trouble(what, None if bound is None else self._prefix + bound)

    @contextmanager
    def of(self, trouble: Trouble, until_ms: Callable[[], int]) -> Iterator[None]:
        """Failures within the block are those of this operation, which will be given up at
        ``until_ms``, or of the operation around it, if there is one."""
        if self._outermost is not None:
            yield
            return
        self._outermost = (trouble, until_ms)
        try:
            yield
        finally:
            self._outermost = None

    def failed(self, trouble: Trouble, error: BaseException, until_ms: int) -> None:
        """An attempt of this operation failed, or of one within it that has its own retries."""
        if self._outermost is not None:
            trouble, outermost_until_ms = self._outermost
            until_ms = outermost_until_ms()
        self._say(trouble.failed(error, self._now_ms(), until_ms))

    def passed(self, trouble: Trouble) -> None:
        """The operation goes on, or is done."""
        if trouble.is_open:
            self._say(trouble.passed(self._now_ms()))

    def _say(self, text: str | None) -> None:
        if text is not None and not self._is_muted:
            _log.warning("%s", text)


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.0f} s" if ms >= 1_000 else f"{ms} ms"
