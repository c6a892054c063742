"""Keeps the collector of garbage off what lives long: the loop stands still while it looks.

A full collection looks at every object that can be part of a cycle: 120,000 of numba and the
kernels, some 45 for each replica. With 1,000 replicas that takes 150 ms, and it is due once a
quarter as many objects are new: as when the leaders of many partitions change at once. Objects that
are set aside (`gc.freeze`) it passes over; they are freed as ever once nothing refers to them, but
for those that refer to each other.
"""

import gc
from collections.abc import Callable
from typing import Protocol

from klog_broker.runtime.event_loop.loop import Loop

LOOK_MS = 10_000
LEAST_CHANGE = 100


class Collector(Protocol):
    """What this takes of the module `gc`."""

    def collect(self) -> int: ...
    def freeze(self) -> None: ...
    def unfreeze(self) -> None: ...


class LongLived:
    """Sets aside what there is, and looks for garbage first, when there are many more replicas than
    the last time, or many fewer, and their number rests: so not in the midst of changes."""

    def __init__(self, loop: Loop, replicas: Callable[[], int], collector: Collector = gc) -> None:
        """`replicas` counts them. What there is now is set aside already."""
        self._loop = loop
        self._replicas = replicas
        self._collector = collector
        self._set_aside = self._seen = replicas()

    def begin(self) -> None:
        """Called once."""
        self._loop.call_later(LOOK_MS, self._look)

    def _look(self) -> None:
        count, seen = self._replicas(), self._seen
        self._seen = count
        if count == seen and abs(count - self._set_aside) > max(
            LEAST_CHANGE, self._set_aside // 10
        ):
            if count < self._set_aside:
                # What refers to itself of those that went is garbage that was set aside.
                self._collector.unfreeze()
            self._collector.collect()
            self._collector.freeze()
            self._set_aside = count
        self._loop.call_later(LOOK_MS, self._look)
