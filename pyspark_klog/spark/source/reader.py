"""The batch source: resolves its offsets when the query is planned."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import NO_TOPIC_ID, UUID, TopicPartition
from pyspark_klog.spark.errors import OffsetError
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.planning.key_partitions import partitions_of_keys
from pyspark_klog.spark.planning.open_transactions import describe_early_ends, ends_before_start
from pyspark_klog.spark.planning.plan_reuse import PlannedOffsets
from pyspark_klog.spark.planning.ranges import OffsetRange
from pyspark_klog.spark.planning.splitting import split
from pyspark_klog.spark.source.reused_plan import (
    EmptyPartition,
    PlanMark,
    check_plan,
    may_be_outdated,
    new_plan,
)
from pyspark_klog.spark.source.rows import RangeReader
from pyspark_klog.spark.workers.error_display import one_line, one_line_in_rows
from pyspark_klog.spark.workers.tcp_acknowledgement import Prompt

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class RangePartition(InputPartition):
    """The range of offsets that one task reads.

    ``topic_id`` is the id that the range's topic must have; all zero accepts any topic of its name.
    ``mark`` identifies the plan, all the ranges that were returned to Spark together: Spark may
    reuse a plan in a later query, although the topics have changed since.
    """

    def __init__(
        self, offsets: OffsetRange, topic_id: UUID = NO_TOPIC_ID, mark: PlanMark | None = None
    ) -> None:
        super().__init__(tuple(offsets))
        self.topic_id = topic_id
        self.mark = mark

    @property
    def offsets(self) -> OffsetRange:
        """The range as an `OffsetRange`."""
        return OffsetRange(*self.value)


def tasks(
    ranges: Sequence[OffsetRange], options: Options, topic_ids: Mapping[str, UUID]
) -> list[RangePartition]:
    """Spark's partitions: the ranges, split by minPartitions and maxRecordsPerPartition.

    ``topic_ids`` has the known ids of the topics for which the ranges were planned.
    """
    pieces = split(ranges, options.min_partitions, options.max_records_per_partition)
    return [RangePartition(piece, topic_ids.get(piece.topic, NO_TOPIC_ID)) for piece in pieces]


class BatchReader(Prompt, DataSourceReader):
    """Reads a batch from the starting to the ending offsets."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._topic_ids: Mapping[str, UUID] = {}

    @one_line
    def partitions(self) -> Sequence[InputPartition]:
        """The ranges of all partitions that have anything to read, as `tasks` splits them; without
        any, an `EmptyPartition` if Spark may reuse the plan.

        :raises OffsetError: if a partition's end is before its start; the text names start, end
            and, if it is known, an open transaction that causes it
        """
        start, end = self._find_offsets()
        if any(end[p] < start[p] for p in start):
            held_back = self._ends_before_start(start, end)
            raise OffsetError(describe_early_ends(self._options, start, end, held_back))
        ranges = [OffsetRange(*p, start[p], end[p]) for p in sorted(start) if end[p] > start[p]]
        planned = tasks(ranges, self._options, self._topic_ids)
        if not may_be_outdated(self._options):
            return planned
        plan = new_plan()
        for partition in planned:
            partition.mark = PlanMark(plan, None)
        first = PlanMark(plan, PlannedOffsets(plan, start, end))
        if not planned:
            return [EmptyPartition(first)]
        planned[0].mark = first
        return planned

    def _find_offsets(self) -> tuple[Offsets, Offsets]:
        """The offsets at which the read of each partition begins and ends."""
        from pyspark_klog.client.cluster.blocking_client import BlockingClient
        from pyspark_klog.spark.planning.bound_resolution import resolve_end, resolve_start
        from pyspark_klog.spark.planning.discovery import Discovery

        options = self._options
        with BlockingClient(options.client) as client:
            discovery = Discovery(client, options)
            partitions = discovery.partitions()
            self._topic_ids = discovery.topic_ids({p.topic for p in partitions})
            read = partitions_of_keys(partitions, options.keys, discovery.partition_counts())
            start = resolve_start(discovery, options, partitions, read)
            return start, resolve_end(discovery, options, partitions, read)

    def _ends_before_start(self, start: Offsets, end: Offsets) -> Mapping[TopicPartition, str]:
        """By partition, a sentence on the open transaction because of which the partition's end,
        the last stable offset, is before its start; empty if brokers cannot be asked now."""
        from pyspark_klog.client.cluster.blocking_client import BlockingClient
        from pyspark_klog.spark.planning.discovery import Discovery

        with suppress(KlogError), BlockingClient(self._options.client) as client:
            return ends_before_start(Discovery(client, self._options), start, end)
        return {}

    @one_line_in_rows
    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """The records of one range. A plan without ranges has one partition without records: an
        `EmptyPartition`, or one that Spark adds."""
        if isinstance(partition, RangePartition | EmptyPartition) and partition.mark is not None:
            check_plan(partition.mark, self._options, self._find_offsets)
        if not isinstance(partition, RangePartition):
            return iter(())
        return self._read_range(partition)

    def _read_range(self, partition: RangePartition) -> "Iterator[RecordBatch]":
        return RangeReader(self._options, partition.topic_id).read(partition.offsets)
