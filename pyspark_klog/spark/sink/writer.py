"""The batch sink, and the commit messages that tasks send to the driver."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_klog.client import chance
from pyspark_klog.spark.options.exactly_once import MicroBatch
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.sink.columns import first_of_each_name
from pyspark_klog.spark.sink.dead_letters import TaskIds, check_count
from pyspark_klog.spark.sink.exactly_once.decisions_of_commit import ended_by_themselves
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from pyspark_klog.spark.sink.row_writer import SinkRows
from pyspark_klog.spark.workers.error_display import one_line, one_line_in_task
from pyspark_klog.spark.workers.tcp_acknowledgement import Prompt

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from pyspark_klog.spark.sink.exactly_once.progress import TaskProgress

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """A task's result for the driver, with the task's ids, since commit() has no TaskContext."""

    query_id: str | None
    """The id of the streaming query, also in foreachBatch; None in any other batch."""
    batch_id: int | None
    partition_id: int
    attempt_number: int
    task_attempt_id: int
    row_count: int
    """The number of rows that are on their topics, or with exactlyOnce will be after the commit. If
    another attempt committed the task's rows, its dead letters are counted here, too."""
    dead_letters: tuple[tuple[str, int], ...] = ()
    """The number of rows that became dead letters, by reason."""
    oldest_ms: tuple[tuple[str, int], ...] = ()
    """The smallest timestamp that option timestampColumn gave a record, by topic."""
    progress: "TaskProgress | None" = None
    """With exactlyOnce, what the driver needs to commit the task's rows; else None."""
    run: str | None = None
    """``<query id>/<run id>`` of the streaming query, which changes with each restart of the query;
    set also in foreachBatch, None in any other batch."""


def write_task(
    options: Options, batches: "Iterable[RecordBatch]", names: Sequence[str] = ()
) -> TaskWritten:
    """Write the rows of the task that runs here. ``names`` are the names of the DataFrame's
    columns, of which several may be the same."""
    batches = (first_of_each_name(batch, names) for batch in batches)
    context = TaskContext.get()
    ids = TaskIds() if context is None else _task_ids(context)
    run_id = None if context is None else context.getLocalProperty("spark.jobGroup.id")
    run = None if ids.query_id is None else f"{ids.query_id}/{run_id}"
    if options.exactly_once is not None:
        from pyspark_klog.spark.sink.exactly_once.attempt import task_of
        from pyspark_klog.spark.sink.exactly_once.task import write_once

        written = write_once(options, task_of(options.exactly_once, ids, run_id), ids, batches)
        return TaskWritten(
            *(*ids, written.row_count, written.dead_letters, written.oldest_ms),
            progress=written.progress,
            run=run,
        )
    rows = SinkRows(options, ids)
    row_count = rows.write(batches)
    return TaskWritten(*ids, row_count, rows.dead_letters, rows.oldest_ms, run=run)


def _task_ids(context: TaskContext) -> TaskIds:
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return TaskIds(
        context.getLocalProperty("sql.streaming.queryId"),
        None if batch_id is None else int(batch_id),
        context.partitionId(),
        context.attemptNumber(),
        context.taskAttemptId(),
    )


class SinkBatchWriter(Prompt, DataSourceArrowWriter):
    """Writes a batch: appends its rows to topics."""

    def __init__(self, options: Options, names: Sequence[str]) -> None:
        """``names`` are the names of the DataFrame's columns."""
        self._options = _with_id(options)
        self._names = tuple(names)

    @one_line_in_task
    def write(self, iterator: "Iterator[RecordBatch]") -> TaskWritten:
        """Write one task's rows."""
        return write_task(self._options, iterator, self._names)

    @one_line
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the batch. All rows were acknowledged (with acks=0: sent) when their tasks ended;
        a micro-batch of foreachBatch with exactlyOnce becomes visible here at the latest."""
        commit_written(messages, self._options, "the batch")
        exactly_once = self._options.exactly_once
        if exactly_once is not None and exactly_once.micro_batch is not None:
            if exactly_once.micro_batch.is_batch_write:
                _end_batch_write(messages, self._options)
            else:
                commit_progress(messages, self._options, exactly_once.micro_batch.batch_id)
        check_timestamps(messages, self._options, "the batch")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log a failed batch. Rows of successful tasks stay written; only with exactlyOnce,
        transactions that tasks have left to the driver are aborted."""
        log_aborted(messages, "the batch")
        exactly_once = self._options.exactly_once
        if exactly_once is None or exactly_once.micro_batch is None:
            return
        if exactly_once.micro_batch.is_batch_write:
            _end_batch_write(messages, self._options)
        else:
            abort_progress(messages, self._options)


def _with_id(options: Options) -> Options:
    """With exactlyOnce, give a batch write a unique id, which its transactional ids contain; a
    micro-batch of foreachBatch already has its query's id."""
    exactly_once = options.exactly_once
    if exactly_once is None or exactly_once.micro_batch is not None:
        return options
    own = MicroBatch.of_batch_write(chance.unique_text())
    return replace(options, exactly_once=exactly_once._replace(micro_batch=own))


def commit_progress(
    messages: Sequence[WriterCommitMessage | None], options: Options, batch_id: int
) -> None:
    """Make a micro-batch of an exactly-once sink visible.

    :raises KlogError: if the batch is refused, or could not be committed completely
    """
    if options.exactly_once is None:
        return
    progress = _progress(messages)
    if len(progress) != len(messages):
        raise ExactlyOnceRefused(
            f"{len(progress)} of {len(messages)} tasks of micro-batch {batch_id} returned their "
            "progress; expected all: this is a bug of klog"
        )
    if ended_by_themselves(progress):
        return
    # Import the modules that talk to brokers only here: most commits need no request.
    from pyspark_klog.spark.sink.exactly_once.commit import commit_batch

    commit_batch(options.client, options.exactly_once, batch_id, progress)


def abort_progress(messages: Sequence[WriterCommitMessage | None], options: Options) -> None:
    """Abort the transactions that tasks have left open. Never raises."""
    progress = [task for task in _progress(messages) if task.opened is not None]
    if progress:
        from pyspark_klog.spark.sink.exactly_once.commit import abort_batch

        abort_batch(options.client, progress)


def _end_batch_write(messages: Sequence[WriterCommitMessage | None], options: Options) -> None:
    from pyspark_klog.spark.sink.exactly_once.commit import end_batch_write

    assert options.exactly_once is not None
    end_batch_write(options.client, options.exactly_once, _progress(messages))


def _progress(messages: Sequence[WriterCommitMessage | None]) -> "list[TaskProgress]":
    written = (message for message in messages if isinstance(message, TaskWritten))
    return [each.progress for each in written if each.progress is not None]


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


def check_timestamps(
    messages: Sequence[WriterCommitMessage | None], options: Options, what: str
) -> None:
    """Warn if written records have timestamps that are older than their topic's retention.
    ``what`` names the batch or the micro-batch. Never raises."""
    written = [m for m in messages if isinstance(m, TaskWritten)]
    oldest_ms = [each for message in written for each in message.oldest_ms]
    if oldest_ms:
        from pyspark_klog.spark.sink.notices import warn_of_old_records

        warn_of_old_records(options, oldest_ms, run_of(messages), what)


def run_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    """The run (start) of the streaming query whose tasks sent the messages; None outside any
    streaming query, or without tasks."""
    return next((message.run for message in messages if isinstance(message, TaskWritten)), None)


def log_aborted(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """Log how many rows and dead letters of a failed write stay in the topics. Never raises, since
    an error would hide why the write failed."""
    written = [m for m in messages if isinstance(m, TaskWritten)]
    kept = [m for m in written if m.progress is None or m.progress.opened is None]
    if kept:
        rows = sum(m.row_count for m in kept)
        letters = sum(count for m in kept for _, count in m.dead_letters)
        _log.warning(
            "%s failed: rows=%d and dead letters=%d of tasks=%d stay written",
            *(what, rows, letters, len(kept)),
        )
