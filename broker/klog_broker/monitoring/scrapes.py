"""Renders the metrics once for all scrapes within a second.

A hundred scrapes a second thus cost hardly more than one, however many metrics there are. Rendering
takes a small share of each event-loop turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klog_broker.monitoring.collection import collect
from klog_broker.monitoring.sources import Sources
from klog_broker.runtime.event_loop.slices import Slices, Steps

CACHED_MS = 1000
"""How long a rendered text of the metrics is reused, in milliseconds."""

SLICE_ELEMENTS = 40
"""How much of the text is rendered in one event-loop turn, in elements: units of about 5 us
of work (runtime/event_loop/slices.py). 40 elements take about 0.2 ms."""

Parts = Sequence[bytes]


class Scrapes:
    """Renders and caches the metrics' text. Loop thread only."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._loop = sources.services.loop
        self._slices = Slices(self._loop, SLICE_ELEMENTS)
        self._parts: Parts | None = None
        self._made_ms = 0
        self._waiting: list[Callable[[Parts | None], None]] = []
        self.is_closed = False

    def get_text(self, done: Callable[[Parts | None], None]) -> None:
        """Call ``done`` with the text of the metrics, at once or when it is rendered; with None if
        the rendering has raised an exception."""
        if self._parts is not None and self._loop.now_ms() - self._made_ms < CACHED_MS:
            done(self._parts)
            return
        self._waiting.append(done)
        if len(self._waiting) == 1:
            self._parts = None
            self._slices.run(self._make(), lambda: not self.is_closed)

    def _make(self) -> Steps:
        parts: Parts | None = None
        try:
            parts = yield from collect(self._sources)
        except Exception as error:
            self._sources.services.requests.bugs.report("metrics", error)
        self._parts = parts
        self._made_ms = self._loop.now_ms()
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(parts)
