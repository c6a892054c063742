"""Warnings while an operation is retried: soon after the first failure, then at growing intervals,
and once when the operation works again.

`OperationFailures` is pure: it gets the time as an argument and returns the texts. `Retries` logs
them.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark_klog.client.errors import ConnectionFailed, NoBrokerAvailable, RequestTimedOut

_log = logging.getLogger(__name__)

FIRST_PAUSE_MS = 5_000
"""The pause between the first two warnings about an operation that keeps failing. The pause doubles
with each further warning, up to `LONGEST_PAUSE_MS`."""
LONGEST_PAUSE_MS = 60_000
PATIENCE_MS = 5_000
"""Error codes from brokers cause no warning for this time after the first failure: a partition
without a leader usually gets one within seconds."""


class OperationFailures:
    """The failures of one operation since it last succeeded.

    ``what`` names the operation as the beginning of a sentence, as in "reading t-0". ``bound`` is
    the setting that limits how long the operation is retried; None if there is none.
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
        """Whether the operation's last attempt failed."""
        return self._since_ms is not None

    def add_failure(self, error: BaseException, now_ms: int, until_ms: int) -> str | None:
        """Count a failed attempt of the operation, which is retried until ``until_ms``; return the
        text of a warning if it is time to log one."""
        if self._since_ms is None:
            self._since_ms = now_ms
        self._failures += 1
        age_ms = now_ms - self._since_ms
        if self._due_ms is None:
            if not self._is_reportable(error, age_ms):
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

    def reset(self, now_ms: int) -> str | None:
        """Forget the operation's failures after a success; return the text to log if a warning
        about these failures was logged."""
        since_ms, was_said = self._since_ms, self._due_ms is not None
        self._since_ms = self._due_ms = None
        self._failures = 0
        self._pause_ms = FIRST_PAUSE_MS
        if since_ms is None or not was_said:
            return None
        return f"{self._what} works again after {_seconds(now_ms - since_ms)}"

    def _is_reportable(self, error: BaseException, age_ms: int) -> bool:
        if isinstance(error, NoBrokerAvailable | RequestTimedOut):
            return True
        # One lost connection needs no warning, because the next attempt often makes a new one.
        return age_ms >= PATIENCE_MS or (isinstance(error, ConnectionFailed) and self._failures > 1)


class Retries:
    """Logs warnings about operations of one client that fail and are retried. If one operation is
    part of another, the warnings name only the outermost operation: the user knows it, and its
    deadline ends the inner ones, too."""

    def __init__(self, now_ms: Callable[[], int], prefix: str = "") -> None:
        """``prefix`` is put before the names of settings in the warnings about failures: ``kafka.``
        for Spark's options, else nothing."""
        self._now_ms = now_ms
        self._prefix = prefix
        self._outermost: tuple[OperationFailures, Callable[[], int]] | None = None
        self._is_muted = False

    def mute(self) -> None:
        """Log no warnings from now on: the code that uses the client reports failures itself."""
        self._is_muted = True

    def failures_of(self, what: str, bound: str | None = None) -> OperationFailures:
        """A new record for the failures of operation ``what``. The setting ``bound`` limits how
        long the operation is retried."""
        return OperationFailures(what, None if bound is None else self._prefix + bound)

    @contextmanager
    def attribute_to(
        self, trouble: OperationFailures, until_ms: Callable[[], int]
    ) -> Iterator[None]:
        """While the ``with`` block runs, count all failures for the operation ``trouble``, which is
        given up at ``until_ms``. Within another ``with`` block of this method the failures are
        counted for the outer block's operation."""
        if self._outermost is not None:
            yield
            return
        self._outermost = (trouble, until_ms)
        try:
            yield
        finally:
            self._outermost = None

    def on_failure(self, trouble: OperationFailures, error: BaseException, until_ms: int) -> None:
        """Note a failed attempt of the operation whose failures ``trouble`` records. Within a
        ``with`` block of `attribute_to` the attempt counts for that block's operation."""
        if self._outermost is not None:
            trouble, outermost_until_ms = self._outermost
            until_ms = outermost_until_ms()
        self._say(trouble.add_failure(error, self._now_ms(), until_ms))

    def on_success(self, trouble: OperationFailures) -> None:
        """Note that the operation whose failures ``trouble`` records made progress or is done."""
        if trouble.is_open:
            self._say(trouble.reset(self._now_ms()))

    def _say(self, text: str | None) -> None:
        if text is not None and not self._is_muted:
            _log.warning("%s", text)


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.0f} s" if ms >= 1_000 else f"{ms} ms"
