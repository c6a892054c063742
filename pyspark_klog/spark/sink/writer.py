"""The batch sink, and the commit messages that tasks send to the driver."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.sink.dead_letters import TaskIds, check_count
from pyspark_klog.spark.sink.rows import SinkRows
from pyspark_klog.spark.workers.failures import one_line, one_line_in_task
from pyspark_klog.spark.workers.prompt import Prompt

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """How much one task has written, and its ids, since commit() has no TaskContext."""

    query_id: str | None
    """None in a batch."""
    batch_id: int | None
    partition_id: int
    attempt_number: int
    task_attempt_id: int
    row_count: int
    """Rows that are on their topics."""
    dead_letters: tuple[tuple[str, int], ...] = ()
    """Rows that are on the topic of dead letters instead, by reason."""


def write_task(options: Options, batches: "Iterable[RecordBatch]") -> TaskWritten:
    """Write the rows of the task that runs here."""
    ids = _task_ids()
    rows = SinkRows(options, ids)
    row_count = rows.write(batches)
    return TaskWritten(*ids, row_count, rows.dead_letters)


def _task_ids() -> TaskIds:
    context = TaskContext.get()
    if context is None:
        return TaskIds()
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return TaskIds(
        context.getLocalProperty("sql.streaming.queryId"),
        None if batch_id is None else int(batch_id),
        context.partitionId(),
        context.attemptNumber(),
        context.taskAttemptId(),
    )


class SinkBatchWriter(Prompt, DataSourceArrowWriter):
    """Appends rows to topics."""

    def __init__(self, options: Options) -> None:
        self._options = options

    @one_line_in_task
    def write(self, iterator: "Iterator[RecordBatch]") -> TaskWritten:
        """Write one task's rows."""
        return write_task(self._options, iterator)

    @one_line
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Everything was acknowledged when its task ended."""
        commit_written(messages, self._options, "the batch")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Rows of tasks that succeeded stay written: the sink writes at least once."""
        log_aborted(messages, "the batch")


def commit_written(
    messages: Sequence[WriterCommitMessage | None], options: Options, what: str
) -> None:
    """Log how much was written; ``what`` names the batch or the micro-batch.

    :raises DeadLettersFailed: if all tasks together had more dead letters than deadLetterMax
    """
    written = [m for m in messages if isinstance(m, TaskWritten)]
    rows = sum(m.row_count for m in written)
    _log.debug("wrote rows=%d tasks=%d of %s", rows, len(written), what)
    letters: Counter[str] = Counter()
    for message in written:
        letters.update(dict(message.dead_letters))
    if not letters:
        return
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(letters.items()))
    _log.warning(
        "rows=%d of %s went to topic=%s as dead letters: %s",
        *(letters.total(), what, options.dead_letter_topic, reasons),
    )
    check_count(letters.total(), options.dead_letter_max, reasons)


def log_aborted(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """Log how much stays written. Never raises: its error would hide the reason of the abort."""
    written = [m for m in messages if isinstance(m, TaskWritten)]
    if written:
        rows = sum(m.row_count for m in written)
        letters = sum(count for m in written for _, count in m.dead_letters)
        _log.warning(
            "%s failed: rows=%d and dead letters=%d of tasks=%d stay written",
            *(what, rows, letters, len(written)),
        )
