"""Decides what the driver does once all tasks of a micro-batch have returned. Pure.

A task ends its own transaction only if no earlier run can have written the batch (`decisions.py`).
Other tasks hand their transactions over to the driver, and none of their rows is visible before the
driver has compared all progress rows of the sink. The driver refuses a batch in these cases,
checked in this order. Here a row is a progress row, a committed offset that says what a task wrote
last; a mark is a `RunMark`, which names the last run (start of the query) that began to commit and
its first batch.

| found | why the batch is refused |
|---|---|
| a row of this batch or a later one under another topic | exactlyOnceTopic or topic was changed |
| a row of a later batch | the checkpoint is older than what was written |
| a row of this batch at an index that is no task's | the batch was split into more tasks before |
| another row than the task committed or found | another program writes or deletes rows now |
| another run's mark that lists this run as an earlier one | a newer run, or a copy, has begun |
| another run's row of a later batch than that of this run's mark | a copy of the checkpoint runs |
| a task without a row, which may have expired | rows expire (exactlyOnceMissing=continue goes on) |
| a transaction that was handed over and is not open | it was fenced, or took too long |

In all other cases the driver commits the transactions in the order of their tasks.
The order matters: the driver of an older run that was not stopped commits no transaction at all,
because each task of the newer run has fenced its predecessor, and task 0 is in every batch.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark_klog.client.admin.sink_progress import ProgressRow, RunMark
from pyspark_klog.spark.sink.exactly_once.progress import TaskProgress

if TYPE_CHECKING:
    from pyspark_klog.client.transactions.producer import OpenTransaction

DAY_MS = 86_400_000


class Refuse(NamedTuple):
    """The driver commits no transaction, and the batch fails."""

    sentence: str


class CommitSteps(NamedTuple):
    """The steps in which the driver commits a micro-batch: store ``mark``, then commit the
    transactions in ``end``."""

    mark: RunMark | None
    """The mark to store before any transaction is committed: it names this run (start of the query)
    and its first micro-batch. The value is None if the mark of this run is stored already."""
    end: "tuple[OpenTransaction, ...]"
    """The transactions to commit, one after the other, up to the first failure."""


class MicroBatchResults(NamedTuple):
    """The results of all tasks of a micro-batch."""

    sink: str
    """The name of the sink in error messages."""
    batch_id: int
    run_id: str
    tasks: Mapping[int, TaskProgress]
    """The results by task index; the indices begin at 0 and have no gaps."""


class Seen(NamedTuple):
    """The sink's offsets and transactions, which the driver reads from brokers after it has fenced
    the sink's transactional ids that belong to no task of this micro-batch."""

    rows: Mapping[int, ProgressRow]
    """By task index, the progress rows: offsets that the tasks' consumer groups have committed,
    which say what a task wrote. If a task's transaction is still open, this is the row from the
    last transaction that was committed with the task's transactional id."""
    elsewhere: Mapping[int, tuple[str, ProgressRow]]
    """By task index: a topic for which this run commits no progress rows, and the newest progress
    row that is committed for this topic. Earlier runs committed such rows if option
    exactlyOnceTopic, or option topic in its place, has been changed since."""
    mark: RunMark | None
    open_ids: frozenset[int]
    """The indices of the tasks whose transaction is open."""
    now_ms: int
    """The wall clock's time in ms since 1970."""
    retention_ms: int
    """How long brokers keep the committed offsets of a group without members, in ms; 0 if
    `needs_retention` is false."""


def ended_by_themselves(tasks: Iterable[TaskProgress]) -> bool:
    """Whether each task has ended its own transaction, and had committed an earlier batch of this
    run (start of the query): then no other run has written this batch before, so the driver has
    nothing to compare and sends no request."""
    return all(
        task.opened is None
        and task.row.run_id == task.run_id
        and task.before is not None
        and task.before.run_id == task.run_id
        and task.before.batch_id < task.row.batch_id
        for task in tasks
    )


def decide_commit(
    batch: MicroBatchResults, seen: Seen, *, continue_on_missing: bool
) -> Refuse | CommitSteps:
    """Decide whether the driver commits the micro-batch, or refuses it in one of the cases in the
    table in this module's docstring. With ``continue_on_missing``, the micro-batch is committed
    although brokers may have forgotten what a task wrote before."""
    refusal = (
        _under_another_topic(batch, seen)
        or _later(batch, seen)
        or _split_otherwise(batch, seen)
        or _changed(batch, seen)
        or _other_run(batch, seen)
        or (None if continue_on_missing else _missing(batch, seen))
        or _not_open(batch, seen)
    )
    if refusal is not None:
        return Refuse(f"{_prefix(batch)}: {refusal}")
    mark = _new_mark(batch, seen)
    opened = (task.opened for _, task in sorted(batch.tasks.items()))
    return CommitSteps(mark, tuple(each for each in opened if each is not None))


def needs_retention(batch: MicroBatchResults) -> bool:
    """Whether `decide_commit` may use `Seen.retention_ms`: a task found no progress row, the
    committed offset that says what the task wrote last, so the offset may have expired."""
    return any(_has_no_row(task) for task in batch.tasks.values())


def _new_mark(batch: MicroBatchResults, seen: Seen) -> RunMark | None:
    last = seen.mark
    if last is not None and last.run_id == batch.run_id:
        return None
    is_again = last is not None and last.batch_id == batch.batch_id
    time_ms = last.time_ms if last is not None and is_again else seen.now_ms
    return RunMark.next_mark(last, batch.batch_id, batch.run_id, time_ms)


# --- checks of decide_commit: each returns the reason to refuse the batch, or None ----------------
def _under_another_topic(batch: MicroBatchResults, seen: Seen) -> str | None:
    for index, (topic, row) in sorted(seen.elsewhere.items()):
        if row.batch_id >= batch.batch_id:
            used = batch.tasks[min(batch.tasks)].topic
            return (
                f"the row of task {index} for micro-batch {row.batch_id} is stored under topic "
                f"{topic}, and this run stores rows under {used}: set option "
                f"exactlyOnceTopic={topic}"
            )
    return None


def _later(batch: MicroBatchResults, seen: Seen) -> str | None:
    for index, row in sorted(seen.rows.items()):
        if row.batch_id > batch.batch_id:
            return (
                f"task {index} has written micro-batch {row.batch_id} already (run {row.run_id}): "
                "the query's checkpoint is older than what was written, or two queries use copies "
                f"of it; go on with the newest checkpoint, or {_NEW_NAME}"
            )
    return None


def _split_otherwise(batch: MicroBatchResults, seen: Seen) -> str | None:
    written = (i for i, row in seen.rows.items() if row.batch_id == batch.batch_id)
    more = [index for index in written if index not in batch.tasks]
    if not more:
        return None
    return (
        f"it was written before, by run {seen.rows[max(more)].run_id} with {max(more) + 1} tasks "
        f"or more, and is repeated with {len(batch.tasks)} now, so rows would be missing or "
        "doubled; start the query with the number of cores, the options and the settings that it "
        "had then (minPartitions, maxRecordsPerPartition, spark.sql.shuffle.partitions): after "
        "this micro-batch they may change"
    )


def _changed(batch: MicroBatchResults, seen: Seen) -> str | None:
    for index, task in sorted(batch.tasks.items()):
        expected = task.row if task.opened is None else task.before
        found = seen.rows.get(index)
        if found == expected:
            continue
        if found is None:
            return (
                f"the row of task {index}, which was there when the task looked, is gone: somebody "
                f"deleted group {task.transactional_id} or its topic, or the row expired; restart "
                "the query"
            )
        return (
            f"the row of task {index} was written by run {found.run_id} for micro-batch "
            f"{found.batch_id} while this run, {batch.run_id}, was at work: {_TWO_RUNS}"
        )
    return None


def _other_run(batch: MicroBatchResults, seen: Seen) -> str | None:
    mark = seen.mark
    if mark is None:
        return None
    if batch.run_id in mark.earlier_run_ids:
        return (
            f"run {mark.run_id} has taken the query over at micro-batch {mark.batch_id} while this "
            f"run, {batch.run_id}, was at work: {_TWO_RUNS}"
        )
    if mark.run_id != batch.run_id:
        return None
    for index, row in sorted(seen.rows.items()):
        if row.run_id != batch.run_id and row.batch_id > mark.batch_id:
            return (
                f"task {index} has a row of run {row.run_id} for micro-batch {row.batch_id}, "
                f"though this run, {batch.run_id}, writes since micro-batch {mark.batch_id}: "
                f"{_TWO_RUNS}"
            )
    return None


def _missing(batch: MicroBatchResults, seen: Seen) -> str | None:
    without = [i for i, task in sorted(batch.tasks.items()) if _has_no_row(task)]
    if not without or _is_known(batch, seen):
        return None
    first = seen.rows.get(0)
    if first is None:
        of_first = "task 0 has none either" if without != [0] else "though task 0 is in every batch"
    else:
        of_first = f"that of task 0 is {_days(seen.now_ms - first.time_ms)} old"
    return (
        f"progress rows of {len(without)} of {len(batch.tasks)} tasks are absent ({of_first}), and "
        f"brokers forget rows after {_days(seen.retention_ms)} (offsets.retention.minutes), so "
        "nobody can tell whether this micro-batch, or a part of it, was written before; if it was "
        "not, or if its rows may be doubled, or to begin with exactlyOnce on a checkpoint that was "
        "without it: set option exactlyOnceMissing=continue for one start"
    )


def _is_known(batch: MicroBatchResults, seen: Seen) -> bool:
    """Whether it is certain that no progress row (committed offset that says what a task wrote) of
    this batch has expired: then tasks that found none have not written this batch before."""
    fresh_ms = seen.now_ms - (seen.retention_ms - min(DAY_MS, seen.retention_ms // 2))
    first, mark = seen.rows.get(0), seen.mark
    if first is not None and first.time_ms > fresh_ms:
        # Task 0 is in every batch, and its recent progress row is of this batch or an earlier one.
        # So the other progress rows of this batch are as recent, and none can have expired.
        return True
    if batch.batch_id == 0:
        # Only the driver commits batch 0, after it has stored a `RunMark`: a committed offset with
        # the run's first batch and the time at which the mark was stored. If batch 0 is repeated,
        # the new mark keeps this time. So without a mark no progress row of batch 0 was ever
        # committed, and with a recent mark none has expired.
        return mark is None or (mark.batch_id == 0 and mark.time_ms > fresh_ms)
    # The mark names the first batch of a run. If it is of this run and of an earlier batch, then
    # this run is past its first batch, and no run has written this batch before.
    return mark is not None and mark.run_id == batch.run_id and mark.batch_id < batch.batch_id


def _not_open(batch: MicroBatchResults, seen: Seen) -> str | None:
    for index, task in sorted(batch.tasks.items()):
        if task.opened is not None and index not in seen.open_ids:
            return (
                f"the transaction of task {index} is not open any more: it took longer than "
                "kafka.transaction.timeout.ms, or another attempt of the task began; the first "
                "micro-batch of a run must fit into that time: restart the query, with a longer "
                "time-out (the broker's transaction.max.timeout.ms bounds it) or smaller "
                "micro-batches if this happens again"
            )
    return None


# --- texts of the errors with which the driver refuses a batch ------------------------------------
_NEW_NAME = "give this query an exactlyOnceName that was not used before"
_TWO_RUNS = (
    "two queries run with one checkpoint, or with copies of it; stop one, or give the copy a topic "
    "or an exactlyOnceName of its own"
)


def _prefix(batch: MicroBatchResults) -> str:
    return f"micro-batch {batch.batch_id} of the exactly-once sink {batch.sink} is refused"


def _has_no_row(task: TaskProgress) -> bool:
    return task.opened is not None and task.before is None


def _days(ms: int) -> str:
    return f"{ms / DAY_MS:.1f} days"
