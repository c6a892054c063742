"""The batch sink, and the commit messages that tasks send to the driver."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_klog.spark.options import SourceOptions
from pyspark_klog.spark.sink_rows import SinkRows

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """What one task has written, and which task it was. In commit() there is no TaskContext."""

    query_id: str | None
    """None in a batch."""
    batch_id: int | None
    partition_id: int
    attempt_number: int
    task_attempt_id: int
    row_count: int


def write_task(options: SourceOptions, batches: "Iterable[RecordBatch]") -> TaskWritten:
    """Write the rows of the task that runs here."""
    context = TaskContext.get()
    row_count = SinkRows(options).write(batches)
    if context is None:
        return TaskWritten(None, None, 0, 0, 0, row_count)
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return TaskWritten(
        context.getLocalProperty("sql.streaming.queryId"),
        None if batch_id is None else int(batch_id),
        context.partitionId(),
        context.attemptNumber(),
        context.taskAttemptId(),
        row_count,
    )


class BatchWriter(DataSourceArrowWriter):
    """Appends rows to topics."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[RecordBatch]") -> TaskWritten:
        """Write one task's rows."""
        return write_task(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Everything was acknowledged when its task ended."""
        log_written(messages, "a batch")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Rows of tasks that succeeded stay written: the sink writes at least once."""
        log_aborted(messages, "a batch")


def log_written(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """Say in the log how much was written."""
    written = [m for m in messages if isinstance(m, TaskWritten)]
    _log.debug(
        "wrote rows=%d tasks=%d of %s", sum(m.row_count for m in written), len(written), what
    )


def log_aborted(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """Say in the log what stays written. Never raises: Spark would hide the reason behind it."""
    written = [m for m in messages if isinstance(m, TaskWritten)]
    if written:
        rows = sum(m.row_count for m in written)
        _log.warning("%s failed: rows=%d of tasks=%d stay written", what, rows, len(written))
