"""Resolves the bounds of a read to offsets: what earliest, latest or a time mean at this moment."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import OffsetError
from pyspark_klog.spark.offsets import EARLIEST, LATEST, Offsets
from pyspark_klog.spark.options.bounds import (
    AtCommitted,
    AtTimestamp,
    AtTimestamps,
    Bound,
    ByTopic,
    check_partitions,
    option_of,
)
from pyspark_klog.spark.options.options import Options


class OffsetLookup(Protocol):
    """Looks up partitions' offsets: `Discovery` asks a cluster, `SegmentDiscovery` reads files."""

    def earliest(self, partitions: Iterable[TopicPartition], /) -> Offsets:
        """The first offset of each partition."""

    def latest(
        self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int], /
    ) -> Offsets:
        """The end of each partition.

        ``known`` has offsets that existed earlier in some of the partitions. If an end is below
        them, it may come from an outdated leader, so `Discovery`, which asks the brokers of a
        cluster, looks up the end again.
        """

    def high_watermarks(self, partitions: Iterable[TopicPartition], /) -> Offsets:
        """The high watermark of each partition, whether or not transactions are open below it."""

    def at_times(self, timestamps_ms: Mapping[TopicPartition, int], /) -> Offsets:
        """The first offset in each partition whose record is not older than the timestamp that
        ``timestamps_ms`` has for the partition; partitions without such a record are left out."""

    def committed(self, group_id: str, partitions: Iterable[TopicPartition], /) -> Offsets:
        """The offsets that consumer group ``group_id`` has committed; partitions without such an
        offset are left out. `SegmentDiscovery`, which reads files without a broker, returns no
        offsets and raises OptionError."""


def resolve_start(
    lookup: OffsetLookup,
    options: Options,
    partitions: frozenset[TopicPartition],
    read: frozenset[TopicPartition] | None = None,
) -> Offsets:
    """The offset at which reading begins in each partition of ``read`` (None: all ``partitions``).

    :raises OffsetError: for an option that names other partitions than ``partitions``, and, unless
        startingOffsetsByTimestampStrategy is latest, if a partition has no record at or after its
        starting timestamp
    :raises OffsetError, DataLost: under startingOffsets=committed, as `committed_start` does
    """
    read = partitions if read is None else read
    starting = options.starting
    assert starting is not None
    if isinstance(starting, AtTimestamp | AtTimestamps):
        name = option_of(starting, "starting")
        times = _times(starting, partitions, read, name)
        found = lookup.at_times(times)
        unmatched = sorted(times.keys() - found.keys())
        if unmatched and not options.latest_without_match:
            pairs = ", ".join(f"{p} at {times[p]}" for p in unmatched)
            raise OffsetError(
                f"{name} finds no record at or after the timestamp in {pairs}; give an earlier "
                "timestamp, or set startingOffsetsByTimestampStrategy=latest to begin such "
                "partitions at their end"
            )
        return found | lookup.latest(unmatched, {})
    if isinstance(starting, AtCommitted):
        from pyspark_klog.spark.planning.group_start import committed_start

        assert options.commit_group_id is not None
        committed = lookup.committed(options.commit_group_id, read)
        earliest = lookup.earliest(read)
        latest = lookup.latest(read, {})
        # Under read_committed ``latest`` ends at the first open transaction, and a group's offset
        # may be after that: the offset exists, so compare it with the high watermark.
        present = lookup.high_watermarks(read) if options.read_committed else latest
        return committed_start(options, committed, earliest, latest, present)
    return _resolve(lookup, starting, partitions, read, "startingOffsets")


def resolve_end(
    lookup: OffsetLookup,
    options: Options,
    partitions: frozenset[TopicPartition],
    read: frozenset[TopicPartition] | None = None,
) -> Offsets:
    """The offset (exclusive) at which a batch ends in each partition of ``read`` (None: all).

    :raises OffsetError: for an option that names other partitions than ``partitions``
    """
    read = partitions if read is None else read
    ending = options.ending
    assert ending is not None
    if isinstance(ending, AtTimestamp | AtTimestamps):
        times = _times(ending, partitions, read, option_of(ending, "ending"))
        found = lookup.at_times(times)
        return found | lookup.latest(times.keys() - found.keys(), {})
    return _resolve(lookup, ending, partitions, read, "endingOffsets")


def _times(
    bound: AtTimestamp | AtTimestamps,
    partitions: frozenset[TopicPartition],
    read: frozenset[TopicPartition],
    name: str,
) -> dict[TopicPartition, int]:
    if isinstance(bound, AtTimestamp):
        return dict.fromkeys(read, bound.timestamp_ms)
    check_partitions(bound.timestamps_ms, partitions, name)
    return {p: bound.timestamps_ms[p] for p in read}


def _resolve(
    lookup: OffsetLookup,
    bound: Bound,
    partitions: frozenset[TopicPartition],
    read: frozenset[TopicPartition],
    name: str,
) -> Offsets:
    if bound == EARLIEST:
        return lookup.earliest(read)
    if bound == LATEST:
        return lookup.latest(read, {})
    if isinstance(bound, ByTopic):
        unknown = sorted(bound.topics.keys() - {p.topic for p in partitions})
        if unknown:
            raise OffsetError(
                f"{name} is given with {', '.join(unknown)}, which is not read; expected the "
                f"topics that are read, {sorted({p.topic for p in partitions})}"
            )
        bound = bound.for_partitions(partitions)
    assert isinstance(bound, dict)
    check_partitions(bound, partitions, name)
    resolved = {p: bound[p] for p in read}
    words = dict(resolved)
    resolved |= lookup.earliest(p for p, offset in words.items() if offset == EARLIEST)
    resolved |= lookup.latest([p for p, offset in words.items() if offset == LATEST], {})
    return resolved
