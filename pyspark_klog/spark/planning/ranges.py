"""The offsets that a micro-batch or a batch reads. Pure: asks no broker."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.planning.losses import Loss, end_lost, new_partition_deleted


class OffsetRange(NamedTuple):
    """The offsets of one partition from ``start`` up to ``end`` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True)
class RangePlan:
    """The ranges to read. ``lost`` has the loss of each partition with records that were deleted
    before they could be read.

    ``absent`` are the partitions that were read before and do not exist any more: they have a start
    and no end.
    """

    ranges: list[OffsetRange] = field(default_factory=list)
    absent: list[TopicPartition] = field(default_factory=list)
    lost: list[Loss] = field(default_factory=list)


def plan(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    first_of_new: Mapping[TopicPartition, int],
) -> RangePlan:
    """The non-empty range of each partition from its offset in ``start`` to that in ``end``.

    ``first_of_new`` has the earliest offset of each partition that ``end`` has and ``start`` lacks:
    such a partition is new and is read from that offset on.
    """
    result = RangePlan(absent=sorted(start.keys() - end.keys()))
    for partition in sorted(end):
        begin = start.get(partition)
        if begin is None:
            begin = first_of_new[partition]
            if begin > 0:
                result.lost.append(new_partition_deleted(partition, begin))
        if end[partition] < begin:
            result.lost.append(end_lost(partition, begin, end[partition]))
        elif end[partition] > begin:
            result.ranges.append(OffsetRange(*partition, begin, end[partition]))
    return result
