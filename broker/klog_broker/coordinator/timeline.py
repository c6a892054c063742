"""Shows readers the committed offsets of a shard's groups as of the high watermark.

A group coordinator decides on its newest state, but answers OffsetFetch with the offsets that would
survive the loss of this broker. Kafka keeps snapshots of its tables for this purpose
(SnapshotRegistry, TimelineHashMap). klog instead keeps the replaced value of each committed offset
whose change the high watermark has not passed yet.
"""

from collections import deque
from typing import Generic, NamedTuple, TypeVar

from pyspark_klog.ids import Offset

P = TypeVar("P")
V = TypeVar("V")


class _Change(NamedTuple, Generic[P]):
    end_offset: Offset  # the end offset of the batch that made the change
    owner: str
    place: P


class Timeline(Generic[P, V]):
    """The changes of one shard that readers may not see yet, oldest first.

    A change belongs to an ``owner`` (a group id) and a ``place`` (a partition for which the group
    has committed an offset).
    """

    def __init__(self) -> None:
        self._changes: deque[_Change[P]] = deque()
        # The values that the changes replaced, oldest first, by owner (group id) and place
        # (partition); a deque that becomes empty is removed.
        self._before: dict[str, dict[P, deque[V | None]]] = {}
        self.is_ahead = False
        """Whether the batch that is being applied is above the high watermark. Each change that the
        batch makes must then be noted with ``note_replaced_value``."""
        self._applying = Offset(0)

    def begin_batch(self, end_offset: Offset, high_watermark: Offset) -> None:
        """Start a batch: changes until the next call belong to the batch that ends before
        ``end_offset``."""
        if self._changes:
            self.drop_passed_changes(high_watermark)
        self.is_ahead = end_offset > high_watermark
        self._applying = end_offset

    def note_replaced_value(self, owner: str, place: P, before: V | None) -> None:
        """Record that the current batch changes the offset of the group ``owner`` in the partition
        ``place``; ``before`` is the old value, or None."""
        if not self.is_ahead:
            return
        self._changes.append(_Change(self._applying, owner, place))
        self._before.setdefault(owner, {}).setdefault(place, deque()).append(before)

    def drop_passed_changes(self, high_watermark: Offset) -> None:
        """Drop the replaced values of all batches that end at or before ``high_watermark``."""
        changes = self._changes
        while changes and changes[0].end_offset <= high_watermark:
            _, owner, place = changes.popleft()
            places = self._before[owner]
            places[place].popleft()
            if not places[place]:
                del places[place]
                if not places:
                    del self._before[owner]

    def is_changing(self, owner: str, place: P) -> bool:
        """Whether the offset of the group ``owner`` in the partition ``place`` has a change that
        readers cannot see yet."""
        return place in self._before.get(owner, ())

    def visible_value(self, owner: str, place: P, newest: V | None) -> V | None:
        """Return the offset that readers see for the group ``owner`` in the partition ``place``;
        ``newest`` is the current value."""
        before = self._before.get(owner, {}).get(place)
        return newest if before is None else before[0]

    def replaced_values(self, owner: str) -> dict[P, V | None]:
        """The offsets of the group ``owner`` that readers see instead of the newest ones, by
        partition; None means no offset."""
        return {place: before[0] for place, before in self._before.get(owner, {}).items()}
