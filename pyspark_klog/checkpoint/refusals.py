"""Reasons not to move the offsets of a checkpoint. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark_klog.checkpoint.contents import Checkpoint
from pyspark_klog.checkpoint.errors import MoveRefused
from pyspark_klog.checkpoint.log_files import BatchEnds
from pyspark_klog.checkpoint.moves import LogRange, Move, Place, place_of
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.options.time_zones import time_text

IGNORE_STATE = "--ignore-state"
EMPTY_PLANNED_BATCH = "--empty-planned-batch"


@dataclass(slots=True)
class Effect:
    """How a move changes the records that the query's operators get."""

    again_count: int = 0
    """The number of offsets that are read a second time; not every offset has a record."""
    skipped_count: int = 0
    """The number of offsets that are never read."""
    recreated: set[str] = field(default_factory=set)
    """Topics whose old offset is beyond their end: the old and the new records are not the same."""


def effect_of(moves: Sequence[Move], logs: Mapping[TopicPartition, LogRange]) -> Effect:
    """How the moves change the records that the query reads."""
    effect = Effect()
    for move in moves:
        log = logs.get(move.partition)
        if move.new is None or log is None:
            continue
        # The query reads a partition that the checkpoint lacks from the partition's beginning.
        old = log.first if move.old is None else move.old
        if place_of(old, log) is Place.BEYOND_END:
            effect.recreated.add(move.partition.topic)
        elif move.new < old:
            effect.again_count += old - move.new
        else:
            effect.skipped_count += move.new - old
    return effect


def position_to_move(checkpoint: Checkpoint) -> BatchEnds:
    """The ends of the last committed batch, which a move changes.

    :raises MoveRefused: if there is no such batch, or Spark could not continue from the checkpoint
    """
    faults = checkpoint.faults()
    if faults:
        raise MoveRefused("; ".join(faults))
    if checkpoint.position is None:
        raise MoveRefused(
            "the query has not committed a batch, so there is no position to move and no state to "
            "keep: delete the checkpoint, and give the query the start as startingOffsets or "
            "startingTimestamp"
        )
    return checkpoint.position


def planned_batch_refusal(checkpoint: Checkpoint, *, may_empty: bool) -> str | None:
    """Why the batch that is logged and not committed prevents a move; None if it does not."""
    if checkpoint.planned is None or may_empty:
        return None
    return (
        f"batch {checkpoint.planned_batch} is logged and not committed: the query would run it "
        "again at its old offsets. Start the query once, so that it finishes the batch, or add "
        f"{EMPTY_PLANNED_BATCH}: the batch then has no records of the moved partitions (its sink "
        "may have some of the old ones, if the batch failed late)"
    )


def state_refusals(checkpoint: Checkpoint, effect: Effect) -> list[str]:
    """For each stateful operator that the move would make wrong: a sentence with the reason."""
    reasons = []
    if effect.again_count:
        late = ""
        if checkpoint.watermark_ms > 0:
            watermark = time_text(checkpoint.watermark_ms * 1000)
            late = f" (rows older than the watermark, {watermark}, are dropped as late)"
        reasons.append(f"up to {effect.again_count} records would reach it a second time{late}")
    if effect.skipped_count:
        reasons.append(f"up to {effect.skipped_count} records would never reach it")
    if effect.recreated:
        reasons.append(
            f"its state has records of an earlier {', '.join(sorted(effect.recreated))}: those "
            "that were written again to the new topic would reach it a second time"
        )
    if not reasons:
        return []
    return [
        f"the state of {operator} would become wrong: {', and '.join(reasons)}. Use a new "
        f"checkpointLocation, or add {IGNORE_STATE} if the results may be wrong"
        for operator in checkpoint.operators
        if not operator.is_right_after_any_move
    ]
