"""Batch reads whose plan Spark reuses for a later query: refuses to read an outdated plan.

`planning/plan_reuse.py` says why Spark reuses plans, and compares offsets. A file of each executor
has the query that used a plan first: every task looks the query up, or notes its own. If the plan
is an earlier query's, the task of the plan's first partition compares the planned offsets with the
current ones.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_klog.client import chance, clock
from pyspark_klog.spark.errors import PlanOutdated
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.planning.plan_reuse import (
    PlanIdentity,
    PlannedOffsets,
    describe_changes,
    find_query,
    is_constant,
    is_reused,
)
from pyspark_klog.spark.workers.plan_memory import note_plan_use

_FILTERS_MODULE = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module that Spark's planning process runs when it pushes filters down."""


class PlanMark(NamedTuple):
    """Identifies the plan of a task (all partitions that the source returned to Spark together), so
    that the task can detect that Spark reuses the plan for a later query."""

    plan: PlanIdentity
    offsets: PlannedOffsets | None
    """The planned offsets of all partitions; None in the marks of all tasks but the plan's first
    one. If Spark reuses the plan, the first task compares these offsets with the offsets that a
    plan made now would have, to find whether the plan is out of date."""


class EmptyPartition(InputPartition):
    """The only partition of a plan without a range to read. Its task uses ``mark``, the plan's
    identity and offsets, to detect that Spark reuses a plan that is out of date."""

    def __init__(self, mark: PlanMark) -> None:
        super().__init__(None)
        self.mark = mark


def new_plan() -> PlanIdentity:
    """A new identity for the plan (the partitions for Spark) that is being made in this planning
    process of Spark."""
    plan_id = bytes.fromhex(chance.unique_text())[:8]
    return PlanIdentity(plan_id, clock.epoch_ms(), _FILTERS_MODULE in sys.modules)


def may_be_outdated(options: Options) -> bool:
    """Whether Spark may reuse a plan for a query in which a new plan would read other rows."""
    # Spark 4.1 and later, which have the method pushFilters, may use a plan in later queries, too.
    # Spark 4.0 lacks this method, and asks for a new plan in each query.
    if not hasattr(DataSourceReader, "pushFilters"):
        return False
    return not (is_constant(options.starting) and is_constant(options.ending))


def check_plan(
    mark: PlanMark, options: Options, find_offsets: Callable[[], tuple[Offsets, Offsets]]
) -> None:
    """Called in a task: refuse to read the old ranges of a plan that Spark has reused.

    ``find_offsets`` plans again: it returns the start and end of each partition at this moment.

    :raises PlanOutdated: if the plan is an earlier query's, and a new plan would read other rows
    """
    context = TaskContext.get()
    query = None if context is None else find_query(context.getLocalProperty)
    if query is None:
        return
    known_key = note_plan_use(mark.plan.plan_id, query.key)
    if mark.offsets is None or not is_reused(mark.plan, query, known_key, clock.epoch_ms()):
        return
    start, end = find_offsets()
    changes = describe_changes(
        mark.offsets, start, end, fail_on_data_loss=options.fail_on_data_loss
    )
    if changes:
        raise PlanOutdated(
            "Spark reads this frame by the plan of an earlier query, which is out of date: "
            f"{changes}; call load() again for each query, in a stream inside foreachBatch "
            "(docs/frames.md)"
        )
