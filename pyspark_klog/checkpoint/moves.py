"""Plans a move: the partitions that are moved, and their old and new offsets. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from pyspark_klog.checkpoint.errors import MoveRefused
from pyspark_klog.checkpoint.log_files import BatchEnds
from pyspark_klog.ids import TopicPartition

Selection = Mapping[str, frozenset[int] | None]
"""The partitions to move, by topic; None stands for all partitions that the query has read. An
empty selection stands for all topics."""


class LogRange(NamedTuple):
    """The first offset of a partition's log, and its end (the high watermark)."""

    first: int
    end: int


class Place(Enum):
    """Where an offset of a checkpoint is now."""

    IN_LOG = "in the log"
    DELETED = "deleted"
    """Before the first offset: retention or DeleteRecords has deleted the records."""
    BEYOND_END = "beyond the end"
    """The topic was deleted and created again, or has lost records."""
    MISSING = "missing"
    """The partition does not exist."""


class Move(NamedTuple):
    """The change of one partition's offset in one source."""

    source_id: str
    partition: TopicPartition
    old: int | None
    """The offset in the checkpoint; None if the checkpoint does not have the partition."""
    new: int | None
    """The new offset; None to remove a partition that does not exist any more."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The partitions that a selection stands for."""

    moved: frozenset[TopicPartition]
    removed: frozenset[TopicPartition]
    """Partitions of the checkpoint that do not exist any more."""
    unread: frozenset[TopicPartition]
    """Partitions of chosen topics that the checkpoint lacks; they are not changed."""


def place_of(offset: int, log: LogRange | None) -> Place:
    """Where an offset is, in a partition with this log (None: the partition does not exist)."""
    if log is None:
        return Place.MISSING
    if offset < log.first:
        return Place.DELETED
    return Place.BEYOND_END if offset > log.end else Place.IN_LOG


def read_partitions(ends: BatchEnds) -> frozenset[TopicPartition]:
    """The partitions of all Kafka sources."""
    return frozenset(p for source in ends.sources for p in source.offsets or ())


def choose_partitions(
    ends: BatchEnds, selection: Selection, logs: Mapping[TopicPartition, LogRange]
) -> Chosen:
    """Find the partitions to move. ``logs`` has all partitions of these topics that exist.

    :raises MoveRefused: if the checkpoint lacks a topic, or brokers lack a topic or partition
    """
    read = read_partitions(ends)
    topics = {partition.topic for partition in read}
    if not topics:
        raise MoveRefused(
            "the checkpoint has no offsets of topics: no source of the query is klog or Spark's "
            "Kafka connector, or no topic has matched so far; there is nothing to move"
        )
    unknown = sorted(selection.keys() - topics)
    if unknown:
        raise MoveRefused(
            f"the checkpoint has no offsets of {', '.join(unknown)}; expected topics of the "
            f"query: {', '.join(sorted(topics))}"
        )
    moved: set[TopicPartition] = set()
    removed: set[TopicPartition] = set()
    unread: set[TopicPartition] = set()
    for topic, numbers in (selection or dict.fromkeys(topics, None)).items():
        there = {partition for partition in logs if partition.topic == topic}
        if not there:
            raise MoveRefused(
                f"topic {topic} does not exist on these brokers: create it again, check "
                "--bootstrap-servers, or name the query's other topics with --topic"
            )
        mine = {partition for partition in read if partition.topic == topic}
        if numbers is None:
            moved |= mine & there
            removed |= mine - there
            unread |= there - mine
            continue
        named = {TopicPartition(topic, number) for number in numbers}
        if named - there:
            raise MoveRefused(
                f"{', '.join(map(str, sorted(named - there)))} does not exist; expected partitions "
                f"from 0 to {len(there) - 1} (--topic {topic} alone removes old partitions from "
                "the checkpoint)"
            )
        moved |= named
    return Chosen(frozenset(moved), frozenset(removed), frozenset(unread))


def check_in_log(
    targets: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, LogRange]
) -> None:
    """Check that offsets that the user gave exist.

    :raises MoveRefused: naming the first offset that is outside of its partition's log
    """
    for partition, offset in sorted(targets.items()):
        log = logs[partition]
        if place_of(offset, log) is not Place.IN_LOG:
            raise MoveRefused(
                f"offset {offset} of {partition} is outside of its log; expected "
                f"{log.first} (its first offset) to {log.end} (its end)"
            )


def plan_moves(
    ends: BatchEnds, chosen: Chosen, targets: Mapping[TopicPartition, int]
) -> list[Move]:
    """The offsets that change, by source and partition. ``targets`` has the new offset of each
    partition that is moved; it applies to each source that reads the partition's topic."""
    moves: list[Move] = []
    for source in ends.sources:
        old = source.offsets or {}
        topics = {partition.topic for partition in old}
        for partition in sorted(chosen.moved | (chosen.removed & old.keys())):
            move = Move(source.source_id, partition, old.get(partition), targets.get(partition))
            if partition.topic in topics and move.old != move.new:
                moves.append(move)
    return moves


def with_moves(ends: BatchEnds, moves: Iterable[Move]) -> BatchEnds:
    """Return a batch's end offsets with those of ``moves`` in them. A source without a move keeps
    the text of its end offsets unchanged."""
    by_source: dict[str, list[Move]] = {}
    for move in moves:
        by_source.setdefault(move.source_id, []).append(move)
    sources = list(ends.sources)
    for index, source in enumerate(sources):
        mine = by_source.get(source.source_id)
        if mine is None or source.offsets is None:
            continue
        offsets = dict(source.offsets)
        for move in mine:
            if move.new is None:
                offsets.pop(move.partition, None)
            else:
                offsets[move.partition] = move.new
        sources[index] = source.with_offsets(offsets)
    return replace(ends, sources=tuple(sources))
