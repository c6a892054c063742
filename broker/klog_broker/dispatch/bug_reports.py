"""Reports of bugs in the broker's own code: counters, and in the log the traceback of each
different bug once."""

import logging
from collections import Counter

_log = logging.getLogger("klog.bug")


class BugReports:
    """Counts and logs exceptions that no request should be able to cause.

    The caller then answers the request that has caused the exception, or a part of it, with an
    error, closes its connection, or serves the request in another way. Other clients do not notice.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._seen: set[tuple[str, str, str, int]] = set()

    @property
    def total(self) -> int:
        return self.counts.total()

    def report(self, what: str, error: BaseException) -> None:
        """Count a bug in `what` (the name of an API, for example). Log the traceback once for each
        combination of `what`, type of exception and line of code."""
        self.counts[what] += 1
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        file = frame.tb_frame.f_code.co_filename if frame else ""
        place = (what, type(error).__name__, file, frame.tb_lineno if frame else 0)
        if place not in self._seen:
            self._seen.add(place)
            _log.error("%s failed because of a bug in klog; please report it", what, exc_info=error)
