"""Collects a producer's records into batches. Pure: time is an argument.

`BatchOrder` is below: it sends the batches that leave the accumulator, in their order.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pyspark_klog.ids import TopicPartition

T = TypeVar("T")


@dataclass(slots=True)
class RecordList(Generic[T]):
    """The records of one batch-to-be, in order."""

    partition: TopicPartition
    created_ms: int
    """When the first record was added."""
    records: list[T] = field(default_factory=list)
    size_bytes: int = 0
    """The sum of the sizes that the caller has given for the records."""


class Accumulator(Generic[T]):
    """The records that wait to be sent, by partition.

    A list of records is complete when the next record would make it larger than ``batch_bytes``. An
    incomplete list is ready ``linger_ms`` after its first record. A record that is larger than
    ``batch_bytes`` is a list of its own.
    """

    def __init__(self, *, batch_bytes: int, linger_ms: int) -> None:
        self.record_count = 0
        self.size_bytes = 0
        self._batch_bytes = batch_bytes
        self._linger_ms = linger_ms
        self._lists: dict[TopicPartition, deque[RecordList[T]]] = {}

    def append(self, partition: TopicPartition, record: T, size_bytes: int, now_ms: int) -> bool:
        """Add a record behind the others of its partition. Return whether a list is complete now,
        so that it is ready without linger."""
        lists = self._lists.get(partition)
        if lists is None:
            lists = self._lists[partition] = deque()
        last = lists[-1] if lists else None
        if last is None or last.size_bytes + size_bytes > self._batch_bytes:
            last = RecordList(partition, now_ms)
            lists.append(last)
        last.records.append(record)
        last.size_bytes += size_bytes
        self.record_count += 1
        self.size_bytes += size_bytes
        return len(lists) > 1 or last.size_bytes >= self._batch_bytes

    def take_ready(
        self,
        now_ms: int,
        *,
        may_take: Callable[[TopicPartition], bool] = lambda _partition: True,
        all_at_once: bool = False,
    ) -> list[RecordList[T]]:
        """Take the lists that are ready, those of a partition in their order.

        ``may_take`` says of a partition whether an incomplete list would be sent soon; if not, the
        list goes on collecting records. ``all_at_once``: incomplete lists do not linger.
        """
        taken: list[RecordList[T]] = []
        for partition in list(self._lists):
            lists = self._lists[partition]
            while lists and self._is_ready(lists, now_ms, may_take, all_at_once):
                taken.append(lists.popleft())
            if not lists:
                del self._lists[partition]
        self._count_out(taken)
        return taken

    def next_ms(self) -> int | None:
        """When the next list is ready by linger_ms; None without records."""
        created = [lists[0].created_ms for lists in self._lists.values()]
        return min(created) + self._linger_ms if created else None

    def oldest_ms(self) -> int | None:
        """When the oldest record was added; None without records."""
        return min((lists[0].created_ms for lists in self._lists.values()), default=None)

    def waiting(self) -> list[TopicPartition]:
        """The partitions that have records."""
        return list(self._lists)

    def drop(
        self, is_due: Callable[[RecordList[T]], bool] = lambda _list: True
    ) -> list[RecordList[T]]:
        """Remove and return the lists for which ``is_due`` is true: of a partition the first ones,
        up to the first list that stays."""
        dropped: list[RecordList[T]] = []
        for partition in list(self._lists):
            lists = self._lists[partition]
            while lists and is_due(lists[0]):
                dropped.append(lists.popleft())
            if not lists:
                del self._lists[partition]
        self._count_out(dropped)
        return dropped

    def _is_ready(
        self,
        lists: deque[RecordList[T]],
        now_ms: int,
        may_take: Callable[[TopicPartition], bool],
        all_at_once: bool,
    ) -> bool:
        first = lists[0]
        if len(lists) > 1 or first.size_bytes >= self._batch_bytes:
            return True
        is_due = all_at_once or now_ms >= first.created_ms + self._linger_ms
        return is_due and may_take(first.partition)

    def _count_out(self, taken: list[RecordList[T]]) -> None:
        self.record_count -= sum(len(each.records) for each in taken)
        self.size_bytes -= sum(each.size_bytes for each in taken)
