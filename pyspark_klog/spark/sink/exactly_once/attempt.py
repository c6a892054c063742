"""Identifies the attempt, the task and the sink for which this process writes. Pure."""

import re
from typing import NamedTuple

from pyspark_klog.spark.options.exactly_once import ExactlyOnce, MicroBatch
from pyspark_klog.spark.sink.dead_letters import TaskIds
from pyspark_klog.spark.sink.exactly_once.decisions import CurrentTask
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from pyspark_klog.spark.sink.exactly_once.names import SinkId

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Task(NamedTuple):
    """The task of an exactly-once sink that runs in this process."""

    sink: SinkId
    topic: str
    """The topic of the progress rows: offsets committed for partition 0 of this topic."""
    now: CurrentTask
    attempt_number: int = 0
    """The number of the attempt, from 0 on; a speculative copy of a task is an attempt, too."""
    keep_on_mismatch: bool = False

    @property
    def transactional_id(self) -> str:
        """The transactional id, which is also the id of the consumer group of the progress row."""
        return self.sink.task(self.now.task)


def task_of(options: ExactlyOnce, ids: TaskIds, run_id: str | None) -> Task:
    """Identify the task that runs in this process.

    ``options`` identify a batch write, and a micro-batch of foreachBatch. In any other micro-batch
    ``ids`` and Spark's job group do: there the job group ``run_id`` is the id of the query's run.

    :raises ExactlyOnceRefused: if Spark does not identify the task's query
    """
    assert options.topic is not None
    micro_batch = options.micro_batch
    if micro_batch is None:
        query_id, batch_id = ids.query_id, ids.batch_id
        if query_id is None or batch_id is None or not _is_uuid(run_id):
            raise ExactlyOnceRefused(
                f"option exactlyOnce needs to know the query, and Spark gives query {query_id}, "
                f"micro-batch {batch_id} and run (the job group) {run_id}; expected the ids of a "
                "streaming query"
            )
        micro_batch = MicroBatch(query_id, batch_id, str(run_id))
    is_repeatable = not micro_batch.is_batch_write
    return Task(
        SinkId(options.prefix, micro_batch.query_id, options.name),
        options.topic,
        CurrentTask(ids.partition_id, micro_batch.batch_id, micro_batch.run_id, is_repeatable),
        ids.attempt_number,
        options.keep_on_mismatch,
    )


def _is_uuid(text: str | None) -> bool:
    """Whether a job group is the id of a query's run: a UUID. A job group that a user has set would
    be the same in every run."""
    return text is not None and _UUID.fullmatch(text) is not None
