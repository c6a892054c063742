"""Decides what a task of an exactly-once sink does, from the progress row it finds. Pure.

A progress row says what a task wrote in a micro-batch; it is an offset that the task's consumer
group has committed. A `RunMark` names the last run (start) of the query that began to commit.

`decide_task` is called with the progress row that exists when the task begins, and again with the
one that exists once the task has taken its transactional id, since an older attempt may have
committed in between.
`after_fenced` is for an attempt that lost its transactional id to another attempt.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark_klog.client.admin.sink_progress import ProgressRow, RunMark


class CurrentTask(NamedTuple):
    """The task and the micro-batch that are written now, and the run (start) of the query."""

    task: int
    """The task's number: Spark's partition."""
    batch_id: int
    run_id: str
    is_repeatable: bool = True
    """Whether another run of the query may write the batch again: false for a batch write outside
    any streaming query, whose transactional ids no other write uses."""


class Fail(NamedTuple):
    """The attempt of the task fails, and none of the rows that it wrote become visible."""

    error: str


class Verify(NamedTuple):
    """Another attempt has committed this batch's rows: only compare the task's rows with ``row``,
    which has the number and the hash of the committed rows. After this attempt has lost its
    transactional id, take ``row`` over as its result instead."""

    row: ProgressRow


class Write(NamedTuple):
    """Write the task's rows in a transaction, together with a progress row: an offset that says
    what the task wrote."""

    ends_itself: bool
    """Whether the task may commit its transaction itself. In a streaming query it does so only if
    no other producer has had its transactional id since the task's last progress row.
    If false, the driver compares the progress rows of all tasks, then commits: an earlier run may
    have written the micro-batch before, with its rows split into other tasks."""


class Wait(NamedTuple):
    """Read the progress row again later: another attempt of the task may still commit."""


def needs_mark(row: ProgressRow | None, now: CurrentTask) -> bool:
    """Whether `decide_task` needs the `RunMark`, which names the last run (start of the query) that
    began to commit. If another run wrote this batch's progress row, the mark shows whether that run
    was stopped before this run began, or belongs to a copy of the query."""
    return row is not None and row.batch_id == now.batch_id and row.run_id != now.run_id


def decide_task(
    row: ProgressRow | None, now: CurrentTask, mark: RunMark | None
) -> Fail | Verify | Write:
    """Decide what a task does by ``row``, its progress row: the offset that its consumer group has
    committed, which says what the task wrote last. ``mark`` names the last run (start of the query)
    that began to commit; it is used only if `needs_mark` is true. "End itself" means that the task
    commits its transaction, "leave open" that the driver does so, after all tasks have returned.

    =====================  =====================================================  =================
    row found              why it may be there                                    decision
    =====================  =====================================================  =================
    a later batch          a copy of the query; a checkpoint set back; a zombie   fail
    this batch, this run   another attempt of the task was quicker                verify
    this batch, other run  the batch is repeated after a restart                  verify
    this batch, other run  a copy of the query: see `explain_foreign_row`         fail
    earlier, this run      this run is past its first batch: nothing is repeated  write, end itself
    earlier, other run     the first batch of a run; it may be a repeated one     write, leave open
    no row                 a first batch, or the first one with so many tasks     write, leave open
    no row, batch write    no run can repeat a batch write                        write, end itself
    =====================  =====================================================  =================
    """
    if row is None:
        return Write(ends_itself=not now.is_repeatable)
    if row.batch_id > now.batch_id:
        return Fail(_passed(row, now))
    if row.batch_id < now.batch_id:
        return Write(ends_itself=row.run_id == now.run_id)
    text = explain_foreign_row(row, now, mark)
    return Verify(row) if text is None else Fail(text)


def after_fenced(row: ProgressRow | None, now: CurrentTask) -> Fail | Verify | Wait:
    """Decide what an attempt of a task does after another attempt has taken its transactional id.

    ``row`` is the task's progress row: the committed offset that says what the task wrote last.

    ===================  ===================================================  ====================
    row found            holder of the id                                     decision
    ===================  ===================================================  ====================
    this batch, our run  another attempt of the task, and it has committed    take over its result
    none, or earlier     another attempt that still writes, or an older one   wait
    anything else        a newer run of the query                             fail
    ===================  ===================================================  ====================

    If the attempt failed in place of waiting, Spark would start a third attempt, which would fence
    the second one, the holder of the id.
    """
    if row is None or row.batch_id < now.batch_id:
        return Wait()
    if row.batch_id == now.batch_id and row.run_id == now.run_id:
        return Verify(row)
    return Fail(
        f"task {now.task} of micro-batch {now.batch_id} lost its transactional id to run "
        f"{row.run_id} of the query, which has written micro-batch {row.batch_id}: this run, "
        f"{now.run_id}, was replaced by that one, or a copy of the query runs; {_ONE_COPY}"
    )


def explain_foreign_row(row: ProgressRow, now: CurrentTask, mark: RunMark | None) -> str | None:
    """Why this batch's progress row, if another run (start of the query) has written it, comes from
    another copy of the query, for example with a copied checkpoint; None if that run may have been
    stopped before.

    ``mark`` is the sink's `RunMark`: it names the last run that began to commit.

    ====================================  =========================================================
    mark                                  whether the row comes from another copy of the query
    ====================================  =========================================================
    none                                  no: no run has begun to commit a batch
    of this run                           yes: this run has begun to commit, so no other run may
    of a run that began after this run    yes: this run still writes, though a later one has begun
    of an earlier run                     no: the row's run was stopped; this run repeats its batch
    ====================================  =========================================================
    """
    if mark is None or row.run_id == now.run_id:
        return None
    if now.run_id not in (mark.run_id, *mark.earlier_run_ids):
        return None
    return (
        f"task {now.task} of micro-batch {row.batch_id} was written by run {row.run_id} of the "
        f"query while this run, {now.run_id}, was at work: two copies of the query write with the "
        f"same ids, as with a copied checkpoint; {_ONE_COPY}"
    )


def refuse_row_elsewhere(
    rows: Mapping[str, ProgressRow], topic: str, now: CurrentTask
) -> Fail | None:
    """Fail if the task has a progress row of this batch, or of a later one, under another topic
    than ``topic``, because option exactlyOnceTopic, or option topic in its place, was changed. A
    progress row says what the task wrote; it is an offset that the task's consumer group has
    committed for a topic. ``rows`` has the progress rows by topic."""
    for other, row in sorted(rows.items()):
        if other != topic and row.batch_id >= now.batch_id:
            return Fail(
                f"task {now.task} of micro-batch {now.batch_id} finds that run {row.run_id} has "
                f"written micro-batch {row.batch_id} with its progress under topic {other}, but "
                f"this run stores progress under {topic}: set option exactlyOnceTopic={other}"
            )
    return None


def difference(
    found: ProgressRow, made: ProgressRow, now: CurrentTask, *, keep: bool
) -> str | None:
    """Why a repeated task fails: its rows (``made``) differ from the rows that an earlier attempt
    has committed (``found``); None if they do not. With ``keep`` (exactlyOnceMismatch) only the
    numbers of rows are compared: another number most likely means that the batch was split into
    other tasks, and keeping the committed rows would lose rows."""
    if (found.row_count, found.row_hash) == (made.row_count, made.row_hash):
        return None
    if keep and found.row_count == made.row_count:
        return None
    advice = (
        "the batch was cut into other tasks then, or the query does not give the same rows again: "
        "repeat it with as many cores and shuffle partitions as then, and with the same query"
    )
    if found.row_count == made.row_count and not keep:
        advice += (
            "; if its values cannot be the same, as with sums of floats, "
            "exactlyOnceMismatch=keep takes what was committed"
        )
    return (
        f"task {now.task} of micro-batch {found.batch_id} has {_shown(made)} now, and run "
        f"{found.run_id} committed {_shown(found)}: {advice}"
    )


_ONE_COPY = "let one copy run, and give each other one a checkpoint of its own"


def _passed(row: ProgressRow, now: CurrentTask) -> str:
    task = f"task {now.task} of micro-batch {now.batch_id}"
    if row.run_id == now.run_id:
        return (
            f"{task} finds micro-batch {row.batch_id} written by its own run, {now.run_id}: this "
            "attempt comes too late, and has written nothing"
        )
    return (
        f"{task} finds micro-batch {row.batch_id} written by run {row.run_id}; this run is "
        f"{now.run_id}: its checkpoint was reset, or a copy of the query runs; {_ONE_COPY}"
    )


def _shown(row: ProgressRow) -> str:
    return f"{row.row_count} rows with {row.byte_count} bytes (hash {row.row_hash:032x})"
