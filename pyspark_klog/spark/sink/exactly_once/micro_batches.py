"""Finds the micro-batch for which Spark calls the user's function of foreachBatch, and the run (one
start) of the query."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_klog.client import chance
from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.options.exactly_once import ExactlyOnce, MicroBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass
class _Run:
    """A run (start) of a query, and the newest of its micro-batches that this process wrote."""

    group: str
    """Spark's job group: the id of the run, unless a user has set another group; "-" if there is
    none, and empty under Spark Connect."""
    stem: str
    last_batch: int
    repeated: int = 0

    @property
    def run_id(self) -> str:
        """The id of the run. If a user's function writes a micro-batch a second time, this id
        changes, as if a new run had begun: in the first micro-batch of a run tasks leave their
        transactions to the driver, which checks for repeated rows."""
        return f"{self.stem}+{self.repeated}" if self.repeated else self.stem


_runs: dict[tuple[str, str, str], _Run] = {}


def micro_batch_of(options: ExactlyOnce, frame: "DataFrame", batch_id: int) -> MicroBatch:
    """The micro-batch of ``frame``. Option exactlyOnceQuery names its query; without the option,
    the thread that runs the user's function of foreachBatch does. The job group of that thread
    shows the run of the query, except under Spark Connect.

    :raises OptionError: without the option, if the thread belongs to no streaming query, or under
        Spark Connect
    """
    query_id, group = _query_and_group(options, frame)
    return MicroBatch(query_id, batch_id, _run_id(options, query_id, group, batch_id))


def _query_and_group(options: ExactlyOnce, frame: "DataFrame") -> tuple[str, str]:
    from pyspark.sql.utils import is_remote

    if is_remote():
        if options.query is None:
            raise OptionError(
                "batch_writer with exactlyOnce needs the id of the query, which Spark Connect does "
                "not give: set option exactlyOnceQuery to a name that only this query uses, and "
                "do not change it"
            )
        return options.query, ""
    context = frame.sparkSession.sparkContext
    query_id = options.query or context.getLocalProperty("sql.streaming.queryId")
    if query_id is None:
        raise OptionError(
            "batch_writer with exactlyOnce is called, and no streaming query runs in this thread; "
            "expected a call by foreachBatch, in the thread that Spark calls: to write a batch, "
            'use df.write.format("klog")'
        )
    return query_id, context.getLocalProperty("spark.jobGroup.id") or "-"


def _run_id(options: ExactlyOnce, query_id: str, group: str, batch_id: int) -> str:
    sink = (options.prefix, query_id, options.name)
    known = _runs.get(sink)
    if known is None or known.group != group:
        known = _runs[sink] = _Run(group, _stem(group), batch_id)
    elif group and _UUID.fullmatch(group) is None:
        # A job group that a user has set is the same in each run, so it does not show where a run
        # begins: treat each micro-batch as the first one of a new run.
        known.stem = chance.unique_text()
    elif batch_id <= known.last_batch:
        known.repeated += 1
    known.last_batch = max(batch_id, known.last_batch)
    return known.run_id


def _stem(group: str) -> str:
    return group if _UUID.fullmatch(group) is not None else chance.unique_text()
