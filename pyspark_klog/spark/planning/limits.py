"""Limits the offsets of a micro-batch: divides a maximum among partitions, and delays a micro-batch
until it has a minimum of offsets. Pure: functions get the time, in ms of a monotonic clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.offsets import Offsets


def prorate(
    limit: int | None, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> Offsets:
    """The end offsets of a micro-batch of about ``limit`` offsets, which are divided among the
    partitions by their backlogs.

    A partition with anything to read gets at least one offset, shares are rounded down, and
    partitions without backlog (or with ``end`` before ``start``) go to their end, as in Spark's
    connector. ``start`` has every partition of ``end``. With ``limit`` None there is no limit.
    """
    backlog = {p: offset - start[p] for p, offset in end.items() if offset > start[p]}
    total = sum(backlog.values())
    if limit is None or total <= limit:
        return dict(end)
    return {
        p: start[p] + min(backlog[p], max(1, limit * backlog[p] // total))
        if p in backlog
        else offset
        for p, offset in end.items()
    }


def prorate_by_topic(
    limits: Mapping[str, int],
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> Offsets:
    """The end offsets of a micro-batch that reads about the topic's limit in ``limits`` from each
    topic; `prorate` divides the limit among the topic's partitions. Topics without a limit are read
    to their end."""
    ends = dict(end)
    for topic, limit in limits.items():
        of_topic = {p: offset for p, offset in end.items() if p.topic == topic}
        ends |= prorate(limit, start, of_topic)
    return ends


@dataclass(slots=True)
class MinimumWait:
    """minOffsetsPerTrigger with maxTriggerDelay: a micro-batch waits until it can read
    ``min_offsets`` offsets, or until ``max_delay_ms`` have passed since the last micro-batch.

    The first micro-batch does not wait, as in Spark's connector.
    """

    min_offsets: int
    max_delay_ms: int
    _fired_ms: int | None = None

    def fires(self, waiting: int, now_ms: int) -> bool:
        """Whether a micro-batch may begin, because at least ``min_offsets`` offsets are ``waiting``
        to be read, or because ``max_delay_ms`` have passed since the last one. If it may, the next
        delay counts from now."""
        late = self._fired_ms is None or now_ms - self._fired_ms >= self.max_delay_ms
        if late or waiting >= self.min_offsets:
            self._fired_ms = now_ms
            return True
        return False
