"""Excludes long-lived objects from garbage collections, because a collection blocks the loop.

A full collection visits every object that can be part of a reference cycle: 120,000 objects of
numba and its compiled functions, and about 45 for each replica. With 1,000 replicas a collection
takes 150 ms. Python starts a full collection when the new objects are a quarter of the old ones,
which happens when the leaders of many partitions change at once. The collector skips frozen objects
(`gc.freeze`). Reference counting still frees a frozen object, unless the object is part of a
reference cycle.
"""

import gc
from collections.abc import Callable
from typing import Protocol

from klog_broker.runtime.event_loop.loop import Loop

LOOK_MS = 10_000
LEAST_CHANGE = 100


class Collector(Protocol):
    """The functions of the module `gc` that `LongLived` calls."""

    def collect(self) -> int: ...
    def freeze(self) -> None: ...
    def unfreeze(self) -> None: ...


class LongLived:
    """Collects garbage and then freezes all objects, after the number of replicas has changed much.

    Every `LOOK_MS`, compares the number of replicas with the number at the last freeze. A
    collection runs if the difference is more than `LEAST_CHANGE` and more than a tenth of the
    number at the last freeze. The number must also be the same as in the previous comparison, so
    that no collection runs in the middle of many changes.
    """

    def __init__(self, loop: Loop, replicas: Callable[[], int], collector: Collector = gc) -> None:
        """`replicas` returns the number of replicas. The caller has frozen the existing objects."""
        self._loop = loop
        self._replicas = replicas
        self._collector = collector
        self._set_aside = self._seen = replicas()

    def start_checks(self) -> None:
        """Start to compare the number of replicas, every `LOOK_MS`, with the number at the last
        freeze. Call once."""
        self._loop.call_later(LOOK_MS, self._look)

    def _look(self) -> None:
        count, seen = self._replicas(), self._seen
        self._seen = count
        if count == seen and abs(count - self._set_aside) > max(
            LEAST_CHANGE, self._set_aside // 10
        ):
            if count < self._set_aside:
                # Replicas were removed: reference cycles among their frozen objects would never be
                # collected, so unfreeze first.
                self._collector.unfreeze()
            self._collector.collect()
            self._collector.freeze()
            self._set_aside = count
        self._loop.call_later(LOOK_MS, self._look)
