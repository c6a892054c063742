"""Commits that readers may not see yet: those whose records the high watermark has not passed."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from klog_broker.coordinator.group.offsets import CommittedOffset
from pyspark_klog.ids import Offset, TopicPartition


class _Change(NamedTuple):
    end_offset: Offset  # of the records that made it
    group_id: str
    partition: TopicPartition


class UnseenCommits:
    """One shard's. What was committed before stands in for each until it is visible, as Kafka's
    coordinator answers from the last committed snapshot of its state."""

    def __init__(self) -> None:
        self._changes: deque[_Change] = deque()
        # What each change replaced, oldest first; there is no empty one.
        self._before: dict[str, dict[TopicPartition, deque[CommittedOffset | None]]] = {}

    def add(
        self,
        group_id: str,
        replaced: Iterable[tuple[TopicPartition, CommittedOffset | None]],
        end_offset: Offset,
    ) -> None:
        """These were replaced by records that end before ``end_offset``."""
        group = self._before.setdefault(group_id, {})
        for partition, before in replaced:
            self._changes.append(_Change(end_offset, group_id, partition))
            group.setdefault(partition, deque()).append(before)

    def passed(self, high_watermark: Offset) -> None:
        """What ends at or before it can be seen now."""
        changes = self._changes
        while changes and changes[0].end_offset <= high_watermark:
            _, group_id, partition = changes.popleft()
            group = self._before[group_id]
            group[partition].popleft()
            if not group[partition]:
                del group[partition]
                if not group:
                    del self._before[group_id]

    def visible(
        self, group_id: str, latest: dict[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, CommittedOffset]:
        """A group's offsets as readers may see them, ``latest`` being as they are."""
        hidden = self._before.get(group_id)
        if not hidden:
            return latest
        firsts = {partition: before[0] for partition, before in hidden.items()}
        both: dict[TopicPartition, CommittedOffset | None] = {**latest, **firsts}
        return {partition: found for partition, found in both.items() if found is not None}
