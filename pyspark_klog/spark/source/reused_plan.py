"""Batch reads whose plan Spark uses again: `planning/reuse.py` says why, and what is compared.

Every task notes its query on its host. The task of the first partition compares the planned offsets
with those of this moment, if the plan is reused.
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
from pyspark_klog.spark.planning.reuse import (
    Plan,
    PlannedOffsets,
    describe_changes,
    find_query,
    is_constant,
    is_reused,
)
from pyspark_klog.spark.workers.plan_memory import remember

_FILTERS_MODULE = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module that Spark's planning process runs when it pushes filters down."""


class PlanMark(NamedTuple):
    """The plan of a task, by which the task notices that Spark reuses the plan."""

    plan: Plan
    offsets: PlannedOffsets | None
    """The whole plan, in the first partition alone."""


class EmptyPartition(InputPartition):
    """The one partition of a plan without anything to read."""

    def __init__(self, mark: PlanMark) -> None:
        super().__init__(None)
        self.mark = mark


def new_plan() -> Plan:
    """A plan that was made now, in one of Spark's planning processes."""
    plan_id = bytes.fromhex(chance.unique_text())[:8]
    return Plan(plan_id, clock.epoch_ms(), _FILTERS_MODULE in sys.modules)


def may_be_outdated(options: Options) -> bool:
    """Whether Spark may reuse a plan for a query in which a new plan would read other rows."""
    # Spark has kept plans since it has pushed filters down, from 4.1 on. Spark 4.0 has no such
    # method, and plans in each query.
    if not hasattr(DataSourceReader, "pushFilters"):
        return False
    return not (is_constant(options.starting) and is_constant(options.ending))


def check_plan(
    mark: PlanMark, options: Options, find_offsets: Callable[[], tuple[Offsets, Offsets]]
) -> None:
    """Refuse to return old rows, in a task of the plan.

    ``find_offsets`` plans again: it returns the start and end of each partition at this moment.

    :raises PlanOutdated: if an earlier query was planned so, and a new plan would read other rows
    """
    context = TaskContext.get()
    query = None if context is None else find_query(context.getLocalProperty)
    if query is None:
        return
    known_key = remember(mark.plan.plan_id, query.key)
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
