"""What the requests of one broker share, whatever their API: the counts of errors, the reports of
bugs, and the slices that long responses are made in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from klog_broker.dispatch.bug_reports import BugReports
from klog_broker.runtime.event_loop.slices import Slices


@dataclass(slots=True, eq=False)
class RequestRuntime:
    """One for each broker. Loop thread only."""

    slices: Slices
    """Runs the steps of long responses, with other work in between."""
    bugs: BugReports = field(default_factory=BugReports)
    errors: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How often an error code was answered: (API key, code). A response may have many."""
    counters: dict[str, int] = field(default_factory=dict)
    """Plain counts by name, for metrics and tests."""

    def count_error(self, api_key: int, code: int) -> None:
        """Count an error code of a response; NONE counts as no error."""
        if code:
            self.errors[api_key, int(code)] += 1

    def count(self, name: str) -> None:
        """Add one to a counter."""
        self.counters[name] = self.counters.get(name, 0) + 1
