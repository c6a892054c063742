"""maxBytesPerTrigger: ends micro-batches by bytes per offset, estimated from samples (a few batches
that are fetched from each partition). Pure.

Bytes are counted as in the log and on the wire, where batches may be compressed.
"""

from collections.abc import Iterable, Mapping

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.offsets import Offsets

_NEW_SHARE = 0.5
"""The weight of a new sample (a few fetched batches of a partition) in the partition's moving
average of bytes per offset."""
SAMPLES_AT_ONCE = 32


class ByteRates:
    """Estimates bytes per offset by partition, by which maxBytesPerTrigger limits a micro-batch.

    A sample is the size of a few batches that were fetched from a partition, by the number of their
    offsets. The estimate is the moving average of a partition's samples, or the last sample if that
    is larger: if records get larger, the next micro-batch gets shorter at once; if records get
    smaller, micro-batches grow gradually.
    """

    def __init__(self) -> None:
        self._average: dict[TopicPartition, float] = {}
        self._last: dict[TopicPartition, float] = {}
        self._turn = 0

    def learn(self, partition: TopicPartition, size_bytes: int, offsets: int) -> None:
        """Add a sample: ``size_bytes`` of batches hold ``offsets`` offsets (1 or more)."""
        rate = size_bytes / max(offsets, 1)
        before = self._average.get(partition, rate)
        self._average[partition] = before + _NEW_SHARE * (rate - before)
        self._last[partition] = rate

    def rate(self, partition: TopicPartition) -> float | None:
        """Bytes per offset. A partition of which no batches were fetched as a sample gets the
        average of the sampled partitions; the result is None if no partition was sampled."""
        if partition in self._average:
            return max(self._average[partition], self._last[partition])
        if not self._average:
            return None
        return sum(self._average.values()) / len(self._average)

    def to_sample(
        self,
        limit_bytes: int,
        start: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
    ) -> list[TopicPartition]:
        """The partitions of which a few batches are fetched as a sample before a micro-batch with
        this limit in bytes is planned.

        The list is empty if all partitions with a backlog have samples and their backlogs amount to
        at most half of the limit. In all other cases the list has up to SAMPLES_AT_ONCE partitions
        with a backlog: first those without samples, then the others, which take turns.
        """
        backlog = {p: offset - start[p] for p, offset in sorted(end.items()) if offset > start[p]}
        unknown = [p for p in backlog if p not in self._average]
        if not unknown and self._size(backlog) <= limit_bytes / 2:
            return []
        known = [p for p in backlog if p in self._average]
        at = self._turn % len(known) if known else 0
        chosen = (unknown + known[at:] + known[:at])[:SAMPLES_AT_ONCE]
        self._turn += max(len(chosen) - len(unknown), 0)
        return chosen

    def cut(
        self,
        limit_bytes: int,
        start: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
    ) -> Offsets:
        """The end offsets of a micro-batch of about ``limit_bytes``, which are divided among the
        partitions by their backlogs in bytes.

        A partition with anything to read gets at least one offset, and exactly one if no partition
        was sampled. Partitions without backlog (or with ``end`` before ``start``) go to their end.
        """
        backlog = {p: offset - start[p] for p, offset in end.items() if offset > start[p]}
        total = self._size(backlog)
        if total <= limit_bytes:
            return dict(end)
        share = limit_bytes / total
        return {
            p: start[p] + min(backlog[p], max(1, int(backlog[p] * share)))
            if p in backlog
            else offset
            for p, offset in end.items()
        }

    def keep(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the rates of all partitions that are not in ``partitions``: such partitions were
        deleted."""
        for gone in self._average.keys() - set(partitions):
            del self._average[gone], self._last[gone]

    def _size(self, backlog: Mapping[TopicPartition, int]) -> float:
        """The estimated bytes of a backlog (the number of unread offsets by partition); infinite
        while no partition has been sampled."""
        return sum((count * (self.rate(p) or float("inf")) for p, count in backlog.items()), 0.0)
