"""The objects that requests of all APIs share: error counts, bug reports, and the Slices that
spread the work for long responses over several event-loop turns."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from klog_broker.dispatch.bug_reports import BugReports
from klog_broker.runtime.event_loop.slices import Slices


@dataclass(slots=True, eq=False)
class RequestRuntime:
    """The objects that all requests of one broker share. Loop thread only."""

    slices: Slices
    """Runs the steps that make long responses, in several event-loop turns, with other clients'
    requests in between."""
    bugs: BugReports = field(default_factory=BugReports)
    errors: Counter[tuple[int, int]] = field(default_factory=Counter)
    """The number of error codes in responses, by (API key, code); a response may have many."""
    counters: dict[str, int] = field(default_factory=dict)
    """Counts of events other than error codes (such as malformed requests), by the event's name,
    for metrics and tests."""

    def count_error(self, api_key: int, code: int) -> None:
        """Count an error code of a response; NONE counts as no error."""
        if code:
            self.errors[api_key, int(code)] += 1

    def count(self, name: str) -> None:
        """Add one to the counter ``name``."""
        self.counters[name] = self.counters.get(name, 0) + 1
