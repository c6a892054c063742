"""Chooses the partition of records without a key (KIP-480, KIP-794). Pure: random numbers come from
an argument."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import accumulate


class StickyPartition:
    """The partition of one topic to which records without a key go at present.

    The partition changes after ``batch_bytes`` bytes, so that each batch is filled before the next
    one begins, and all partitions get as many bytes. ``random`` returns [0, 1).
    """

    def __init__(self, batch_bytes: int, random: Callable[[], float]) -> None:
        self._batch_bytes = batch_bytes
        self._random = random
        self._partition: int | None = None
        self._produced_bytes = 0

    def choose(self, waiting: Mapping[int, int], partition_count: int) -> int:
        """Return the partition of the next record.

        ``waiting`` has, for each partition with a leader, how many batches wait to be sent to it: a
        partition with fewer is chosen more often. Without any leader every partition is possible.
        """
        if self._partition is None or self._partition >= partition_count:
            self._partition = self._next(waiting, partition_count)
        return self._partition

    def add(self, size_bytes: int, *, is_batch_complete: bool) -> None:
        """Count the bytes of a record that went to the chosen partition. The partition stays while
        its batch is incomplete, but not for more than twice ``batch_bytes``."""
        self._produced_bytes += size_bytes
        has_enough = self._produced_bytes >= self._batch_bytes
        if (has_enough and is_batch_complete) or self._produced_bytes >= 2 * self._batch_bytes:
            self._partition = None
            self._produced_bytes = 0

    def _next(self, waiting: Mapping[int, int], partition_count: int) -> int:
        partitions = [each for each in sorted(waiting) if each < partition_count]
        if not partitions:
            return int(self._random() * partition_count)
        most = max(waiting[each] for each in partitions)
        sums = list(accumulate(most + 1 - waiting[each] for each in partitions))
        return partitions[bisect_right(sums, self._random() * sums[-1])]
