"""Plans that Spark reuses for a later query: detects them in a task, and says what changed. Pure.

Spark 4.1 to 4.3 ask a Python source for its partitions once for each ``load()``, and give the same
partitions to the tasks of every later query that uses the DataFrame of that ``load()``
(docs/decisions/0058-a-frame-that-is-executed-again.md). Spark does not ask the source again. A task
can detect the reuse, look up the current offsets, and refuse to return old rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.bounds import Bound

OLDEST_IN_A_STREAM_MS = 300_000
"""If a micro-batch's task is the first on its host to use a plan (the partitions that the source
once returned to Spark), and Spark does not say when it created the micro-batch's query, then a plan
older than this counts as an earlier micro-batch's, so that the plan's offsets are compared with the
current ones. Only the age can decide, because a task does not know when its micro-batch began."""
LONGEST_BEFORE_QUERY_MS = 60_000
"""If Spark says when it created a micro-batch's query, this limit decides in place of the plan's
age: a plan made more than this long before the query counts as an earlier micro-batch's, and is
checked for outdated offsets.

Only a query in a foreachBatch function is created after the plan (the partitions that the source
returned to Spark): the function may work this long before it starts its first query.
"""

_UUID_WITH_TIME = 7
_NAMED = 3
"""An error message names at most this many of the partitions whose offsets have changed."""


class PlanIdentity(NamedTuple):
    """Identifies a plan: the partitions that the source has returned to Spark once."""

    plan_id: bytes
    """8 random bytes."""
    planned_ms: int
    """The time at which the plan was complete, by the clock of the driver's host, in ms since
    1970."""
    by_filters: bool
    """Whether Spark asked for the plan while it pushed a query's filters down. Then it asks for a
    new plan in each query with filters."""


class Query(NamedTuple):
    """The query of a task, from the local properties of its job."""

    key: str
    """Identifies the query, or the micro-batch of a streaming query."""
    created_ms: int | None
    """The time at which Spark created the query, by the clock of the driver's host, in ms since
    1970; None if Spark does not give the time."""
    is_in_stream: bool
    """Whether the task belongs to a micro-batch: to the plan of the streaming query, or to a query
    that a foreachBatch function runs. Spark gives a task nothing to distinguish these two."""


@dataclass(frozen=True)
class PlannedOffsets:
    """The identity of a batch read's plan, and the range of offsets that the plan reads from each
    partition."""

    plan: PlanIdentity
    start: Offsets
    end: Offsets


def find_query(get_property: Callable[[str], str | None]) -> Query | None:
    """The query of a task; None if the job is no part of a Spark SQL query and so has no query id.

    ``get_property`` returns a local property of the task's job.
    """
    execution_id = get_property("spark.sql.execution.id")
    if execution_id is None:
        return None
    query_id = get_property("spark.sql.execution.query.id")
    created_ms = None if query_id is None else _time_of(query_id)
    batch_id = get_property("streaming.sql.batchId")
    if batch_id is not None:
        stream_id = get_property("sql.streaming.queryId")
        # The query's key has the id of the streaming query's run (one start of the query): if the
        # query is started again, the new run may repeat the last micro-batch, and Spark may give it
        # the plan of the earlier run. The different key shows that this plan is reused.
        run_id = get_property("spark.jobGroup.id")
        return Query(f"{stream_id}/{run_id}/{batch_id}", created_ms, True)
    return Query(query_id or execution_id, created_ms, False)


def _time_of(query_id: str) -> int | None:
    try:
        uuid = UUID(query_id)
    except ValueError:
        return None
    return uuid.int >> 80 if uuid.version == _UUID_WITH_TIME else None


def is_reused(plan: PlanIdentity, query: Query, known_key: bool | None, now_ms: int) -> bool:
    """Whether the plan (the partitions that the source returned to Spark) was made for an earlier
    query than the query that uses it now.

    ``known_key`` says whether the first task on this host that used the plan was of this query
    (True) or of another query (False); None if no task has used the plan on this host.
    """
    if query.is_in_stream and known_key is None:
        # A plan that Spark asked for while it pushed filters down is this micro-batch's, whatever
        # its age: Spark pushes filters down, and so asks for a new plan, in each micro-batch.
        return not plan.by_filters and _is_of_earlier_micro_batch(plan, query, now_ms)
    is_made_after = query.created_ms is not None and query.created_ms > plan.planned_ms
    return known_key is False or (is_made_after and not query.is_in_stream)


def _is_of_earlier_micro_batch(plan: PlanIdentity, query: Query, now_ms: int) -> bool:
    if query.created_ms is None:
        return now_ms - plan.planned_ms > OLDEST_IN_A_STREAM_MS
    return query.created_ms - plan.planned_ms > LONGEST_BEFORE_QUERY_MS


def is_constant(bound: Bound | None) -> bool:
    """Whether a bound (the start or the end of a read) is a fixed offset for each partition, and so
    the same in every query."""
    return isinstance(bound, dict) and min(bound.values(), default=-1) >= 0


def describe_changes(
    planned: PlannedOffsets, start: Offsets, end: Offsets, *, fail_on_data_loss: bool
) -> str:
    """Describe how the current ranges from ``start`` to ``end`` differ from the planned ones; empty
    if a new plan would read the same offsets.

    A later start, for example after retention, is no difference without ``fail_on_data_loss``.
    """
    changes = []
    for partition in sorted(planned.start.keys() | start.keys()):
        text = _describe_change(
            _range(partition, planned.start, planned.end),
            _range(partition, start, end),
            fail_on_data_loss=fail_on_data_loss,
        )
        if text:
            changes.append(f"{partition} {text}")
    more = f" (and {len(changes) - _NAMED} more partitions)" if len(changes) > _NAMED else ""
    return ", ".join(changes[:_NAMED]) + more


def _describe_change(
    before: tuple[int, int] | None, after: tuple[int, int] | None, *, fail_on_data_loss: bool
) -> str:
    """Describe one partition's change from ``before`` to ``after``, each its first offset and end,
    or None if the partition is not read; empty without a change."""
    if before == after or (_is_empty(before) and _is_empty(after)):
        return ""
    if before is None:
        return "is new"
    if after is None:
        return "is gone"
    if before[1] != after[1]:
        return f"ended at offset {before[1]} then and ends at {after[1]} now"
    if before[0] < after[0] and not fail_on_data_loss:
        return ""
    return f"began at offset {before[0]} then and begins at {after[0]} now"


def _range(partition: TopicPartition, start: Offsets, end: Offsets) -> tuple[int, int] | None:
    return (start[partition], end[partition]) if partition in start else None


def _is_empty(offsets: tuple[int, int] | None) -> bool:
    return offsets is None or offsets[0] >= offsets[1]
