"""The moves that are refused."""

from dataclasses import replace

import pytest

from pyspark_klog.checkpoint.contents import Checkpoint
from pyspark_klog.checkpoint.errors import MoveRefused
from pyspark_klog.checkpoint.log_files import parse_batch_ends
from pyspark_klog.checkpoint.moves import LogRange, Move
from pyspark_klog.checkpoint.operators import Operator
from pyspark_klog.checkpoint.refusals import (
    effect_of,
    planned_batch_refusal,
    position_to_move,
    state_refusals,
)
from pyspark_klog.ids import TopicPartition

A0 = TopicPartition("a", 0)
ENDS = parse_batch_ends('v1\n{}\n{"a":{"0":5}}', "offsets/3")
CHECKPOINT = Checkpoint("id", (2, 3), (2, 3), ENDS, None, 0, (Operator(0, "stateStoreSave"),))
PLANNED = replace(CHECKPOINT, logged=(2, 3, 4), planned=ENDS)


def _refusals(old: int | None, new: int, log: LogRange, operator: str) -> list[str]:
    checkpoint = replace(CHECKPOINT, operators=(Operator(0, operator),), watermark_ms=60_000)
    return state_refusals(checkpoint, effect_of([Move("0", A0, old, new)], {A0: log}))


@pytest.mark.parametrize("operator", ["stateStoreSave", "symmetricHashJoin", "newInSpark5", ""])
@pytest.mark.parametrize(
    ("old", "new", "log", "reason"),
    [
        (5, 2, LogRange(0, 9), "up to 3 records would reach it a second time"),
        (5, 9, LogRange(0, 9), "up to 4 records would never reach it"),
        (None, 9, LogRange(2, 9), "up to 7 records would never reach it"),
        (5, 7, LogRange(7, 9), "up to 2 records would never reach it"),
        (15, 0, LogRange(0, 9), "its state has records of an earlier a"),
    ],
)
def test_a_move_that_makes_a_state_wrong_is_refused(
    operator: str, old: int | None, new: int, log: LogRange, reason: str
) -> None:
    (refusal,) = _refusals(old, new, log, operator)
    assert reason in refusal
    assert "new checkpointLocation, or add --ignore-state" in refusal


def test_a_move_back_behind_the_watermark_says_that_old_rows_are_dropped() -> None:
    (refusal,) = _refusals(5, 2, LogRange(0, 9), "stateStoreSave")
    assert "rows older than the watermark, 1970-01-01 00:01:00+00:00, are dropped" in refusal


def test_deduplication_can_be_moved() -> None:
    assert _refusals(5, 2, LogRange(0, 9), "dedupe") == []


def test_a_new_partition_that_is_read_from_its_beginning_harms_no_state() -> None:
    assert _refusals(None, 2, LogRange(2, 9), "stateStoreSave") == []


def test_a_query_without_state_can_be_moved() -> None:
    stateless = replace(CHECKPOINT, operators=())
    effect = effect_of([Move("0", A0, 5, 0)], {A0: LogRange(0, 9)})
    assert state_refusals(stateless, effect) == []


def test_a_planned_batch_is_refused_unless_it_may_be_emptied() -> None:
    refusal = planned_batch_refusal(PLANNED, may_empty=False)
    assert refusal is not None
    assert refusal.startswith("batch 4 is logged and not committed")
    assert planned_batch_refusal(PLANNED, may_empty=True) is None
    assert planned_batch_refusal(CHECKPOINT, may_empty=False) is None


@pytest.mark.parametrize(
    ("checkpoint", "fault"),
    [
        (replace(CHECKPOINT, committed=(2, 3, 4)), "batch 4 is committed, but offsets/4 does not"),
        (replace(PLANNED, committed=(2,)), "the batches 3 to 4 are logged and not committed"),
        (replace(CHECKPOINT, logged=(1, 3)), "offsets/2 does not exist, and Spark needs it"),
        (
            Checkpoint("id", (0,), (), None, ENDS, 0, ()),
            "the query has not committed a batch, so there is no position to move",
        ),
    ],
)
def test_a_checkpoint_without_a_position_is_refused(checkpoint: Checkpoint, fault: str) -> None:
    with pytest.raises(MoveRefused) as error:
        position_to_move(checkpoint)
    assert fault in str(error.value)
