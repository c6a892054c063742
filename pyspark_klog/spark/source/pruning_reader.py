"""Batch sources that Spark tells a query's filters: option ``pushdown``, Spark 4.1 and later.

There is an option for it since Spark refuses a reader with pushFilters while
spark.sql.python.filterPushdown.enabled is false, and keeps what it planned for one ``load()``.
docs/backfills.md says how to use it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.planning.pruning import Condition, cut, prune_by
from pyspark_klog.spark.source.reader import BatchReader
from pyspark_klog.spark.source.segment_reader import SegmentReader
from pyspark_klog.spark.workers.failures import hide_tracebacks, one_line

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_TESTS = {
    "EqualTo": "in",
    "EqualNullSafe": "in",
    "In": "in",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
"""Classes of Spark's filters; by name, since Spark 4.0 has none of them."""


def condition_of(given: "Filter") -> Condition | None:
    """One of Spark's filters as the planner takes it; None if it cuts nothing."""
    name = type(given).__name__
    if name == "Not":
        inner = condition_of(given.child)  # type: ignore[attr-defined]
        return None if inner is None else inner._replace(test=f"not {inner.test}")
    path: tuple[str, ...] = getattr(given, "attribute", ())
    if name not in _TESTS or len(path) != 1:
        return None
    value: Any = given.value  # type: ignore[attr-defined]
    if name == "EqualNullSafe" and value is None:
        return None  # the one that null passes
    return Condition(path[0], _TESTS[name], tuple(value) if name == "In" else (value,))


class _Prunes(BatchReader):
    """Takes filters, and cuts by them the offsets that are read."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._conditions: list[Condition] = []
        # Spark's own error that pushdown is off would come next, and says all in its one line.
        hide_tracebacks()

    @one_line
    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802
        """Keep the filters that can cut something. All are returned, which lets Spark filter the
        rows, too."""
        found = map(condition_of, filters)
        self._conditions = [condition for condition in found if condition is not None]
        return filters

    def _cut(
        self,
        start: Offsets,
        end: Offsets,
        partition_counts: Mapping[str, int],
        at_times: Callable[[Mapping[TopicPartition, int]], Offsets],
    ) -> tuple[Offsets, Offsets]:
        assumptions = self._options.pushdown
        assert assumptions is not None
        pruning = prune_by(self._conditions, assumptions)
        return cut(pruning, start, end, partition_counts, at_times)


class PruningReader(_Prunes, BatchReader):
    """Reads from brokers."""


class PruningSegmentReader(_Prunes, SegmentReader):
    """Reads segment files."""


def pruning_reader(options: Options) -> DataSourceReader:
    """:raises OptionError: if this Spark tells a Python source no filters"""
    if not hasattr(DataSourceReader, "pushFilters"):
        raise OptionError("option pushdown needs Spark 4.1 or later: leave it out")
    return PruningReader(options) if options.path is None else PruningSegmentReader(options)
