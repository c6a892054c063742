"""A task notices that Spark reuses an earlier query's plan, and what has changed since then."""

from pathlib import Path

import pytest

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.planning.plan_reuse import (
    LONGEST_BEFORE_QUERY_MS,
    OLDEST_IN_A_STREAM_MS,
    PlanIdentity,
    PlannedOffsets,
    Query,
    describe_changes,
    find_query,
    is_reused,
)
from pyspark_klog.spark.source.reused_plan import may_be_outdated
from pyspark_klog.spark.workers.plan_memory import note_plan_use

_PLAN = PlanIdentity(b"12345678", 1_795_745_529_790, False)
_P0, _P1 = TopicPartition("t", 0), TopicPartition("t", 1)


# --- the query of a task --------------------------------------------------------------------------
def test_a_query_knows_when_it_was_made() -> None:
    properties = {
        "spark.sql.execution.id": "5",
        "spark.sql.execution.query.id": "01a21ac7-6153-7db6-8b48-79b5c678cff9",
    }
    query = find_query(properties.get)
    assert query == Query("01a21ac7-6153-7db6-8b48-79b5c678cff9", 0x01A21AC76153, False)
    assert find_query({"spark.sql.execution.id": "5"}.get) == Query("5", None, False)
    assert find_query({}.get) is None


def test_each_micro_batch_is_a_query() -> None:
    properties = {
        "spark.sql.execution.id": "7",
        "spark.sql.execution.query.id": "c6551f4f-8c73-4841-a702-fa1f7bc9c597",
        "spark.jobGroup.id": "run-1",
        "sql.streaming.queryId": "c6551f4f-8c73-4841-a702-fa1f7bc9c597",
        "streaming.sql.batchId": "2",
    }
    stream = "c6551f4f-8c73-4841-a702-fa1f7bc9c597"
    assert find_query(properties.get) == Query(f"{stream}/run-1/2", None, True)
    # Spark 4.3 in foreachBatch, and in all sinks but those of files.
    properties |= {"spark.sql.execution.query.id": "01a21ac7-6153-7db6-8b48-79b5c678cff9"}
    assert find_query(properties.get) == Query(f"{stream}/run-1/2", 0x01A21AC76153, True)
    # A later run repeats the micro-batch.
    repeated = find_query((properties | {"spark.jobGroup.id": "run-2"}).get)
    assert repeated == Query(f"{stream}/run-2/2", 0x01A21AC76153, True)


def test_a_plan_is_reused_by_a_query_that_was_made_after_it() -> None:
    now_ms = _PLAN.planned_ms + 3_600_000
    same = Query("q", _PLAN.planned_ms - 1, False)
    later = Query("r", _PLAN.planned_ms + 1, False)
    assert not is_reused(_PLAN, same, None, now_ms)
    assert is_reused(_PLAN, later, None, now_ms)
    # A frame that was derived before the plan was made, and is executed after it.
    assert is_reused(_PLAN, same, False, now_ms)
    assert not is_reused(_PLAN, same, True, now_ms)


@pytest.mark.parametrize("by_filters", [False, True])
def test_an_old_plan_of_a_static_side_is_reused(by_filters: bool) -> None:
    plan = _PLAN._replace(by_filters=by_filters)
    query = Query("s/1", None, True)
    recent_ms = plan.planned_ms + OLDEST_IN_A_STREAM_MS
    assert not is_reused(plan, query, None, recent_ms)
    assert is_reused(plan, query, None, recent_ms + 1) is not by_filters
    assert not is_reused(plan, query, True, recent_ms + 1)
    assert is_reused(plan, query, False, recent_ms)


@pytest.mark.parametrize("by_filters", [False, True])
def test_a_micro_batch_that_says_its_time_refuses_older_plans_sooner(by_filters: bool) -> None:
    plan = _PLAN._replace(by_filters=by_filters)
    now_ms = plan.planned_ms + 3_600_000
    recent = Query("s/r/1", plan.planned_ms + LONGEST_BEFORE_QUERY_MS, True)
    later = recent._replace(created_ms=plan.planned_ms + LONGEST_BEFORE_QUERY_MS + 1)
    assert not is_reused(plan, recent, None, now_ms)
    assert is_reused(plan, later, None, now_ms) is not by_filters
    # A host that has seen the plan knows the micro-batch.
    assert not is_reused(plan, later, True, now_ms)
    assert is_reused(plan, recent, False, now_ms)


# --- the memory of an executor --------------------------------------------------------------------
def test_an_executor_remembers_the_query_of_a_plan(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert note_plan_use(b"plan-001", "s/0", folder) is None
    assert note_plan_use(b"plan-002", "s/0", folder) is None
    assert note_plan_use(b"plan-001", "s/0", folder) is True
    assert note_plan_use(b"plan-001", "s/1", folder) is False
    assert note_plan_use(b"plan-001", "s/0", folder) is True


def test_a_memory_that_cannot_be_written_fails_no_task(tmp_path: Path) -> None:
    assert note_plan_use(b"plan-001", "s/0", str(tmp_path / "absent")) is None


# --- what has changed -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        ({_P0: 0, _P1: 5}, {_P0: 10, _P1: 5}, ""),
        ({_P0: 0, _P1: 7}, {_P0: 10, _P1: 7}, ""),
        ({_P0: 0}, {_P0: 10}, ""),
        ({_P0: 0, _P1: 5}, {_P0: 12, _P1: 5}, "t-0 ended at offset 10 then and ends at 12 now"),
        ({_P0: 0, _P1: 5}, {_P0: 10, _P1: 6}, "t-1 ended at offset 5 then and ends at 6 now"),
        ({_P0: 3, _P1: 5}, {_P0: 10, _P1: 5}, "t-0 began at offset 0 then and begins at 3 now"),
        ({_P1: 5}, {_P1: 5}, "t-0 is gone"),
        (
            {_P0: 0, _P1: 5, TopicPartition("t", 2): 0},
            {_P0: 10, _P1: 5, TopicPartition("t", 2): 1},
            "t-2 is new",
        ),
    ],
)
def test_changes_are_named(
    start: dict[TopicPartition, int], end: dict[TopicPartition, int], text: str
) -> None:
    planned = PlannedOffsets(_PLAN, {_P0: 0, _P1: 5}, {_P0: 10, _P1: 5})
    assert describe_changes(planned, start, end, fail_on_data_loss=True) == text


def test_a_start_that_retention_has_passed_goes_by_fail_on_data_loss() -> None:
    planned = PlannedOffsets(_PLAN, {_P0: 0}, {_P0: 10})
    assert not describe_changes(planned, {_P0: 3}, {_P0: 10}, fail_on_data_loss=False)
    assert describe_changes(planned, {_P0: 3}, {_P0: 11}, fail_on_data_loss=False)


def test_many_changes_are_counted() -> None:
    start = {TopicPartition("t", n): 0 for n in range(5)}
    planned = PlannedOffsets(_PLAN, start, dict.fromkeys(start, 1))
    text = describe_changes(planned, start, dict.fromkeys(start, 2), fail_on_data_loss=True)
    assert text.count("ends at 2 now") == 3
    assert text.endswith(" (and 2 more partitions)")


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({}, True),
        ({"endingOffsets": '{"t":{"0":5}}'}, True),
        ({"startingOffsets": '{"t":{"0":0}}'}, True),
        ({"startingOffsets": '{"t":{"0":0}}', "endingOffsets": '{"t":{"0":5}}'}, False),
        ({"startingOffsets": '{"t":{"0":0}}', "endingOffsets": '{"t":{"0":-1}}'}, True),
        ({"startingOffsets": '{"t":{"0":0}}', "endingTimestamp": "5"}, True),
    ],
)
def test_a_range_of_offsets_never_changes(options: dict[str, str], changes: bool) -> None:
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"} | options
    assert may_be_outdated(read_options(given).for_batch()) is changes


def test_a_spark_that_plans_in_each_query_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}
    monkeypatch.delattr("pyspark.sql.datasource.DataSourceReader.pushFilters")
    assert not may_be_outdated(read_options(given).for_batch())
