"""What the bounds of a read mean on a cluster, at the moment they are asked for."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.bounds import (
    AtCommitted,
    AtTimestamp,
    AtTimestamps,
    Bound,
    ByTopic,
    check_partitions,
    option_of,
)
from pyspark_klog.spark.errors import OffsetError
from pyspark_klog.spark.offsets import EARLIEST, LATEST, Offsets
from pyspark_klog.spark.options import Options


class OffsetSource(Protocol):
    """Whoever knows the partitions' offsets: a cluster, or a directory of segment files."""

    def earliest(self, partitions: Iterable[TopicPartition], /) -> Offsets:
        """The first offset of each partition."""

    def latest(
        self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int], /
    ) -> Offsets:
        """The end of each partition; ``known`` are offsets that it had before."""

    def at_times(self, timestamps_ms: Mapping[TopicPartition, int], /) -> Offsets:
        """The first offset whose record is not older, for the partitions that have such a one."""

    def committed(self, group_id: str, partitions: Iterable[TopicPartition], /) -> Offsets:
        """The group's offsets, for the partitions in which it has one."""


def resolve_start(
    discovery: OffsetSource, options: Options, partitions: frozenset[TopicPartition]
) -> Offsets:
    """Where reading begins in each of the partitions.

    :raises OffsetError: for an option that names other partitions, and, with the strategy error,
        where no record is as young as a starting timestamp
    """
    starting = options.starting
    assert starting is not None
    if isinstance(starting, AtTimestamp | AtTimestamps):
        name = option_of(starting, "starting")
        times = _times(starting, partitions, name)
        found = discovery.at_times(times)
        unmatched = sorted(times.keys() - found.keys())
        if unmatched and not options.latest_without_match:
            pairs = ", ".join(f"{p} at {times[p]}" for p in unmatched)
            raise OffsetError(
                f"{name} finds no record that is as young as that in {pairs}; give an earlier "
                "timestamp, or set startingOffsetsByTimestampStrategy=latest to begin at the end "
                "there"
            )
        return found | discovery.latest(unmatched, {})
    if isinstance(starting, AtCommitted):
        from pyspark_klog.spark.committed import resolve_committed

        return resolve_committed(discovery, options, partitions)
    return _resolve(discovery, starting, partitions, "startingOffsets")


def resolve_end(
    discovery: OffsetSource, options: Options, partitions: frozenset[TopicPartition]
) -> Offsets:
    """Where a batch ends in each of the partitions (exclusive).

    :raises OffsetError: for an option that names other partitions
    """
    ending = options.ending
    assert ending is not None
    if isinstance(ending, AtTimestamp | AtTimestamps):
        times = _times(ending, partitions, option_of(ending, "ending"))
        found = discovery.at_times(times)
        return found | discovery.latest(times.keys() - found.keys(), {})
    return _resolve(discovery, ending, partitions, "endingOffsets")


def _times(
    bound: AtTimestamp | AtTimestamps, partitions: frozenset[TopicPartition], name: str
) -> dict[TopicPartition, int]:
    if isinstance(bound, AtTimestamp):
        return dict.fromkeys(partitions, bound.timestamp_ms)
    check_partitions(bound.timestamps_ms, partitions, name)
    return dict(bound.timestamps_ms)


def _resolve(
    discovery: OffsetSource, bound: Bound, partitions: frozenset[TopicPartition], name: str
) -> Offsets:
    if bound == EARLIEST:
        return discovery.earliest(partitions)
    if bound == LATEST:
        return discovery.latest(partitions, {})
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
    resolved = dict(bound)
    resolved |= discovery.earliest(p for p, offset in bound.items() if offset == EARLIEST)
    resolved |= discovery.latest([p for p, offset in bound.items() if offset == LATEST], {})
    return resolved
