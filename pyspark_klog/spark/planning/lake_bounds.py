"""Resolves where a read of a lake table and its topic begins and ends to offsets of each partition.

The records before the border come from the table, so the table knows their offsets; brokers know
the rest of the topic.
"""

from collections.abc import Callable, Iterable, Mapping

from pyspark_klog.ids import TopicPartition
from pyspark_klog.lake_tables.pruning import OffsetSpan
from pyspark_klog.spark.errors import OffsetError, OptionError
from pyspark_klog.spark.offsets import EARLIEST, LATEST, Offsets
from pyspark_klog.spark.options.bounds import AtCommitted, option_of
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.planning.bound_resolution import resolve_end, resolve_start
from pyspark_klog.spark.planning.discovery import Discovery

FindInTable = Callable[[Mapping[int, int]], Mapping[int, int]]
"""Finds in the table, for each partition number of a mapping to times in ms since 1970, the first
offset whose record is not older; partitions without such a record are left out."""


class LakeLookup:
    """Looks up the offsets of a table and, with ``brokers``, of the topic that goes on behind it.
    Implements `OffsetLookup`."""

    def __init__(
        self, border: Offsets, find_in_table: FindInTable, brokers: Discovery | None
    ) -> None:
        self._border = border
        self._find_in_table = find_in_table
        self._brokers = brokers

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """0 for a partition that the table has, else the first offset that brokers have."""
        wanted = list(partitions)
        new = [p for p in wanted if p not in self._border]
        found = dict.fromkeys((p for p in wanted if p in self._border), 0)
        return found if self._brokers is None else found | self._brokers.earliest(new)

    def latest(
        self,
        partitions: Iterable[TopicPartition],
        known: Mapping[TopicPartition, int],  # noqa: ARG002  (the border exists in any case)
    ) -> Offsets:
        """The last stable offset of each partition; without brokers the border."""
        wanted = list(partitions)
        if self._brokers is None:
            return {p: self._border[p] for p in wanted}
        found = self._brokers.latest(wanted, self._border)
        return {p: max(offset, self._border.get(p, 0)) for p, offset in found.items()}

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Never called, because only a group's committed offsets need high watermarks."""
        raise AssertionError(f"no high watermarks of {list(partitions)}")

    def at_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> Offsets:
        """The first offset in each partition whose record is not older than the timestamp;
        partitions without such a record are left out. The table is searched before the topic."""
        in_table = self._find_in_table(
            {p.partition: t for p, t in timestamps_ms.items() if p in self._border}
        )
        found = {p: in_table[p.partition] for p in timestamps_ms if p.partition in in_table}
        if self._brokers is None:
            return found
        rest = {p: t for p, t in timestamps_ms.items() if p not in found}
        # Brokers search the whole log. A record before the border that the table does not have was
        # aborted, or was written before the copy began.
        later = self._brokers.at_times(rest)
        return found | {p: max(o, self._border.get(p, 0)) for p, o in later.items()}

    def committed(self, group_id: str, partitions: Iterable[TopicPartition]) -> Offsets:
        """Never called, because `resolve_spans` refuses startingOffsets=committed."""
        raise AssertionError(f"no offsets of group {group_id} in {list(partitions)}")


def resolve_spans(
    lookup: LakeLookup, options: Options, partitions: frozenset[TopicPartition]
) -> dict[int, OffsetSpan] | None:
    """The offsets to read of each partition; None if the options set neither a start nor an end.

    An end that is ``latest`` in all partitions stays open.

    :raises OffsetError: if the options name other partitions, find no record of a starting time, or
        end a partition before it begins
    """
    options = options.for_batch()
    if options.starting == EARLIEST and options.ending == LATEST:
        return None
    start = resolve_start(lookup, options, partitions)
    if options.ending == LATEST:
        return {p.partition: OffsetSpan(offset) for p, offset in start.items()}
    end = resolve_end(lookup, options, partitions)
    wrong = [p for p in sorted(start) if end[p] < start[p]]
    if wrong:
        assert options.starting is not None and options.ending is not None
        pairs = ", ".join(f"{p} from {start[p]} to {end[p]}" for p in wrong)
        names = (
            f"{option_of(options.starting, 'starting')} and {option_of(options.ending, 'ending')}"
        )
        raise OffsetError(f"the read would end before it begins: {pairs}; check {names}")
    return {p.partition: OffsetSpan(start[p], end[p]) for p in start}


def check_start(options: Options) -> None:
    """Refuse a start at the offsets of a consumer group.

    :raises OptionError: naming the starts that are expected
    """
    if isinstance(options.starting, AtCommitted):
        raise OptionError(
            "startingOffsets is committed; lake expects earliest, JSON with offsets, or a time"
        )
