"""Counts of the events that this broker has carried out as the controller, and of elections."""

from collections import Counter

from klog_broker.metrics.histogram import Durations

_NS_IN_MS = 1_000_000


class ControllerCounts:
    """Totals since the broker started, over all its terms as the controller."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        """The number of carried out events, by name. An interrupted event counts once it is carried
        out again to its end."""
        self.event_ms: Counter[str] = Counter()
        """The sum of the durations of these events, including their writes to ZooKeeper, in ms."""
        self.event_waits = Durations()
        """How long these events waited before the controller began them."""
        self.elections = Durations()
        """The durations of the events that elected leaders."""
        self.elected: Counter[str] = Counter()
        """The number of elected leaders, by the reason of the election."""
        self.unclean_elections = 0
        """The number of these leaders that were not in the ISR: records may be lost."""

    def add_event(self, name: str, waited_ms: int, took_ms: int) -> None:
        """Count an event that the controller has carried out."""
        self.events[name] += 1
        self.event_ms[name] += took_ms
        self.event_waits.add(waited_ms * _NS_IN_MS)

    def add_elections(self, elected: Counter[str], unclean: Counter[str], took_ms: int) -> None:
        """Count the leaders that one event has elected, by reason. ``unclean`` has those that were
        not in the ISR, which ``elected`` has not."""
        self.elections.add(took_ms * _NS_IN_MS)
        self.elected += elected + unclean
        self.unclean_elections += unclean.total()
