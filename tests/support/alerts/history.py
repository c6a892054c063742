"""The scraped samples of some brokers over time, and the alerts that fire at the end.

Time is virtual: each scrape comes INTERVAL_S after the one before, however much time the test took,
and `hold` repeats the last scrape. So an alert with ``for: 30m`` fires in a test of a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.support.alerts import promql
from tests.support.alerts.promql import Labels
from tests.support.monitoring.scraping import Samples
from tools.docs.alerts import ALERTS, Alert

INTERVAL_S = 15
_LOOKBACK_S = 300
_CLOCK = "klog_clock_seconds"
JOB = "klog"


class Target(NamedTuple):
    """A scrape of one broker: its samples, and the time of the scrape by the test's clock, in
    seconds since 1970. Without samples the broker did not answer."""

    samples: Samples | None
    now_s: float = 0


class History:
    """Samples by series. A value of None marks a series as stale: its target lacks it now."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, Labels], list[float | None]] = {}
        self.scrapes = 0
        self._targets: Mapping[str, Target] = {}

    @property
    def now_s(self) -> float:
        """The virtual time of the last scrape, in seconds since the first one."""
        return (self.scrapes - 1) * INTERVAL_S

    def record(self, **targets: Target) -> None:
        """Add a scrape of all targets, by the name of their instance."""
        self._targets = targets
        time_s = self.scrapes * INTERVAL_S
        found: dict[tuple[str, Labels], float] = {}
        for instance, target in targets.items():
            of_target = {("instance", instance), ("job", JOB)}
            found["up", frozenset(of_target)] = float(target.samples is not None)
            for (name, labels), value in (target.samples or {}).items():
                if name == _CLOCK:
                    # The broker's clock in virtual time: its difference to the test's clock stays.
                    value += time_s - target.now_s
                found[name, frozenset(labels | of_target)] = value
        for key in self.series.keys() | found.keys():
            values = self.series.setdefault(key, [None] * self.scrapes)
            values.append(found.get(key))
        self.scrapes += 1

    def hold(self, minutes: float) -> None:
        """Repeat the last scrape for some minutes: the state of the brokers stays."""
        for _ in range(round(minutes * 60 / INTERVAL_S)):
            time_s = INTERVAL_S
            targets = {
                name: target._replace(now_s=target.now_s + time_s, samples=_later(target, time_s))
                for name, target in self._targets.items()
            }
            self.record(**targets)

    # --- what promql.evaluate asks ----------------------------------------------------------------
    def instant(self, name: str, at_s: float) -> Mapping[Labels, tuple[float, float]]:
        place = int(at_s // INTERVAL_S)
        return {
            labels: (place * INTERVAL_S, value)
            for labels, values in self._named(name)
            if (value := values[place]) is not None
        }

    def range(self, name: str, since_s: float, at_s: float) -> Mapping[Labels, promql.Points]:
        first, last = int(max(since_s, 0) // INTERVAL_S), int(at_s // INTERVAL_S)
        places = [each for each in range(first, last + 1) if each * INTERVAL_S >= since_s]
        return {
            labels: [
                (float(place * INTERVAL_S), value)
                for place in places
                if (value := values[place]) is not None
            ]
            for labels, values in self._named(name)
        }

    def _named(self, name: str) -> Iterator[tuple[Labels, list[float | None]]]:
        for (of, labels), values in self.series.items():
            if of == name:
                yield labels, values

    # --- alerts -----------------------------------------------------------------------------------
    def firing(self) -> dict[str, list[Labels]]:
        """Return the alerts that fire at the end, by name, each with the labels of its result."""
        found = {alert.name: self._firing(alert) for alert in ALERTS}
        return {name: results for name, results in found.items() if results}

    def _firing(self, alert: Alert) -> list[Labels]:
        """Return the results that the rule had at each evaluation of its last `for`."""
        node = promql.parse(alert.expression)
        steps = alert.for_s // INTERVAL_S
        if steps >= self.scrapes:
            return []
        lasting: set[Labels] | None = None
        for step in range(steps + 1):
            value = promql.evaluate(node, self, self.now_s - step * INTERVAL_S)
            assert isinstance(value, dict), "a rule must have a vector as its result"
            lasting = set(value) if lasting is None else lasting & set(value)
        return sorted(lasting or (), key=sorted)


def _later(target: Target, by_s: float) -> Samples | None:
    if target.samples is None:
        return None
    clock = (_CLOCK, frozenset[tuple[str, str]]())
    samples = dict(target.samples)
    if clock in samples:
        samples[clock] += by_s
    return samples
