"""What readers of a shard may see: its state as of the high watermark.

A coordinator decides on the newest state, and answers readers from what would survive the loss of
this broker. Kafka keeps snapshots of its tables for that (SnapshotRegistry, TimelineHashMap); here
each change that the watermark has not passed yet remembers what it replaced.
"""

from collections import deque
from typing import Generic, NamedTuple, TypeVar

from pyspark_klog.ids import Offset

P = TypeVar("P")
V = TypeVar("V")


class _Change(NamedTuple, Generic[P]):
    end_offset: Offset  # of the batch that made it
    owner: str
    place: P


class Timeline(Generic[P, V]):
    """The changes of one shard that readers may not see yet, oldest first.

    A change is that of an ``owner`` (a group) at a ``place`` (a partition that it reads).
    """

    def __init__(self) -> None:
        self._changes: deque[_Change[P]] = deque()
        # What each change replaced, oldest first; there is no empty one.
        self._before: dict[str, dict[P, deque[V | None]]] = {}
        self._applying: Offset | None = None

    def begin(self, end_offset: Offset, high_watermark: Offset) -> None:
        """What is applied from now on is of a batch that ends before ``end_offset``."""
        if self._changes:
            self.passed(high_watermark)
        self._applying = end_offset if end_offset > high_watermark else None

    @property
    def is_ahead(self) -> bool:
        """Whether readers may not see yet what is applied now: then note what it replaces."""
        return self._applying is not None

    def replaced(self, owner: str, place: P, before: V | None) -> None:
        """The change that is applied now takes the place of ``before`` (None: of nothing)."""
        if self._applying is None:
            return
        self._changes.append(_Change(self._applying, owner, place))
        self._before.setdefault(owner, {}).setdefault(place, deque()).append(before)

    def passed(self, high_watermark: Offset) -> None:
        """Batches that end at or before it can be seen now."""
        changes = self._changes
        while changes and changes[0].end_offset <= high_watermark:
            _, owner, place = changes.popleft()
            places = self._before[owner]
            places[place].popleft()
            if not places[place]:
                del places[place]
                if not places:
                    del self._before[owner]

    def seen_instead(self, owner: str) -> dict[P, V | None]:
        """What readers see of the owner where that is not the newest; None: nothing."""
        return {place: before[0] for place, before in self._before.get(owner, {}).items()}
