"""The driver's side of the exactly-once sink: compares progress rows, then commits transactions.

A progress row is an offset that a task's consumer group commits; it says what the task has written.
`decisions_of_commit` has the rules; this module sends the requests. A micro-batch whose tasks have
all ended their transactions themselves is committed without a request of the driver.
"""

import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from pyspark_klog.client import clock
from pyspark_klog.client.admin.sink_progress import ProgressRow, RunMark
from pyspark_klog.client.admin.transaction_listing import fence_producers
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import ClientError, ProducerUnusable
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.transactions.producer import OpenTransaction, end_transaction
from pyspark_klog.errors import KlogError
from pyspark_klog.spark.options.exactly_once import ExactlyOnce
from pyspark_klog.spark.sink.exactly_once.decisions_of_commit import (
    DAY_MS,
    MicroBatchResults,
    Refuse,
    Seen,
    decide_commit,
    ended_by_themselves,
    needs_retention,
)
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from pyspark_klog.spark.sink.exactly_once.names import SinkId, parse_sink_id
from pyspark_klog.spark.sink.exactly_once.progress import TaskProgress
from pyspark_klog.spark.sink.exactly_once.sink_groups import SinkGroups
from pyspark_klog.spark.workers.clients import client_for

_log = logging.getLogger(__name__)

_ABORT_WITHIN_MS = 5_000
"""The time limit for aborting the transactions of a failed micro-batch. The query's next run or the
transaction timeout ends those that stay open."""


def commit_batch(
    settings: ClientSettings,
    exactly_once: ExactlyOnce,
    batch_id: int,
    written: Sequence[TaskProgress],
) -> None:
    """Make a micro-batch visible; ``written`` are the results of all its tasks.

    :raises ExactlyOnceRefused: before the driver commits any transaction, if committing could lose
        rows or double them
    :raises KlogError: if brokers fail, perhaps after some transactions were committed: the batch
        fails, and its repetition finds the progress rows (offsets that say what a task wrote) which
        these transactions have committed
    """
    if ended_by_themselves(written):
        return
    batch, sink, topic = _batch(batch_id, written)
    client = client_for(settings)
    groups = SinkGroups(client, sink, topic)
    seen = _look(client, groups, sink, batch)
    decision = decide_commit(batch, seen, continue_on_missing=exactly_once.continue_on_missing)
    if isinstance(decision, Refuse):
        raise ExactlyOnceRefused(decision.sentence)
    if decision.mark is not None:
        groups.store(decision.mark)
    for ended, opened in enumerate(decision.end):
        _end(client, batch, opened, f"{ended} of {len(decision.end)}")
    _log.info(
        "committed transactions=%d of micro-batch %d of sink %s run=%s",
        *(len(decision.end), batch_id, batch.sink, batch.run_id),
    )


def abort_batch(settings: ClientSettings, written: Sequence[TaskProgress]) -> None:
    """Abort the transactions that tasks of a failed micro-batch left to the driver, so that readers
    of committed records need not wait for the timeout. Committed rows stay; never raises."""
    opened = [task.opened for task in written if task.opened is not None]
    if not opened:
        return
    try:
        client = client_for(settings)
        deadline_ms = client.now_ms() + _ABORT_WITHIN_MS
        for each in opened:
            left_ms = deadline_ms - client.now_ms()
            if left_ms <= 0:
                break
            try:
                end_transaction(client, each, commit=False, timeout_ms=left_ms)
            except ProducerUnusable:
                continue  # the transaction ended, or a newer attempt took the transactional id
    except Exception as error:
        # An exception would hide why the batch failed.
        _log.warning(
            "transactions that could not be aborted stay open until the query's next run or their "
            "timeout: %s",
            error,
        )


def end_batch_write(
    settings: ClientSettings, exactly_once: ExactlyOnce, written: Sequence[TaskProgress]
) -> None:
    """Delete the consumer groups with the progress rows of a batch write that succeeded or failed.
    Never raises.

    A progress row is a committed offset that says what a task wrote. A speculative copy of a task
    that begins later finds no progress row, but must not write again: before the groups are
    deleted, a `RunMark` is stored, another offset, which makes such a copy fail.
    """
    micro_batch = exactly_once.micro_batch
    assert micro_batch is not None and exactly_once.topic is not None
    sink = SinkId(exactly_once.prefix, micro_batch.query_id, exactly_once.name)
    try:
        client = client_for(settings)
        groups = SinkGroups(client, sink, exactly_once.topic)
        now_ms = clock.epoch_ms()
        groups.store(RunMark(micro_batch.batch_id, micro_batch.run_id, now_ms), DAY_MS)
        listed = groups.listed()
        known = {parse_index(task) for task in written}
        for index in sorted(known | listed.ids | listed.groups):
            _fence(client, sink, index)
        groups.delete(sorted(known | listed.groups))
    except Exception as error:
        # The rows are written, or the job has failed for another reason: only warn.
        _log.warning(
            "consumer groups %s.* stay until their progress rows expire, since they could not be "
            "deleted: %s",
            *(sink.task(0).removesuffix(".0"), error),
        )


def parse_index(task: TaskProgress) -> int:
    """The index of a task, Spark's partition number: the last part of its transactional id."""
    return _parsed(task)[1]


# --- steps of commit_batch -----------------------------------------------------------------------
def _batch(batch_id: int, written: Sequence[TaskProgress]) -> tuple[MicroBatchResults, SinkId, str]:
    sinks = {_parsed(task)[0] for task in written}
    tasks = {_parsed(task)[1]: task for task in written}
    runs = {task.run_id for task in written}
    topics = {task.topic for task in written}
    alone = len(sinks) == len(runs) == len(topics) == 1
    if not alone or sorted(tasks) != list(range(len(written))):
        raise ExactlyOnceRefused(
            f"micro-batch {batch_id} has {len(written)} results: of tasks {sorted(tasks)}, sinks "
            f"{sorted(sinks)}, runs {sorted(runs)} and topics {sorted(topics)}; expected each task "
            "once, and one sink, run and topic: this is a bug of klog"
        )
    (sink,) = sinks
    (topic,) = topics
    (run_id,) = runs
    return MicroBatchResults(f"{sink.query_id}.{sink.name}", batch_id, run_id, tasks), sink, topic


def _parsed(task: TaskProgress) -> tuple[SinkId, int]:
    found = parse_sink_id(task.transactional_id)
    if found is None or found[1] is None:
        raise ExactlyOnceRefused(
            "a task's transactional id is not that of an exactly-once sink, a bug of klog: "
            f"{task.transactional_id!r}"
        )
    return found[0], found[1]


def _look(
    client: BlockingClient, groups: SinkGroups, sink: SinkId, batch: MicroBatchResults
) -> Seen:
    """Fence the sink's transactional ids that belong to no task of this batch, then read the
    progress rows of all tasks: committed offsets that say what a task wrote. From then on only this
    driver and newer attempts of tasks can change these offsets.
    """
    listed = groups.listed()
    others = (listed.ids | listed.groups) - batch.tasks.keys()
    others |= _unlisted(groups, others, len(batch.tasks))
    for index in sorted(others):
        _fence(client, sink, index)
    rows: dict[int, ProgressRow] = {}
    elsewhere: dict[int, tuple[str, ProgressRow]] = {}
    for index in sorted(others | batch.tasks.keys()):
        # Do not wait for the progress row of a transaction that the task has left to the driver:
        # the row stays uncommitted until the driver commits.
        task = batch.tasks.get(index)
        found = groups.rows(index, stable=task is None or task.opened is None)
        row = found.pop(groups.topic, None)
        if row is not None:
            rows[index] = row
        if found:
            elsewhere[index] = max(found.items(), key=lambda each: each[1].batch_id)
    retention_ms = groups.retention_ms() if needs_retention(batch) else 0
    mark = groups.mark()
    opened = {index for index, task in batch.tasks.items() if task.opened is not None}
    unsure = opened - listed.open_ids
    open_ids = listed.open_ids | {index for index in unsure if groups.is_open(index)}
    now_ms = clock.epoch_ms()
    return Seen(rows, elsewhere, mark, open_ids, now_ms, retention_ms)


def _unlisted(groups: SinkGroups, listed: AbstractSet[int], first: int) -> set[int]:
    """The task indices from ``first`` on up to the first that is not in ``listed`` (the tasks that
    brokers listed) and has no progress row: an offset that the task's consumer group has committed.

    While the coordinator of a group changes, neither the old nor the new coordinator may list the
    group. A request for the group's offsets waits for the new coordinator instead. The search ends
    at the first index without a progress row: the driver commits the first progress row of each
    task of a streaming query, in the order of the indices, so that no higher index has one."""
    found: set[int] = set()
    index = first
    while index in listed or groups.rows(index, stable=False):
        found.add(index)
        index += 1
    return found


def _fence(client: BlockingClient, sink: SinkId, index: int) -> None:
    timeout_ms = client.settings.number("transaction.timeout.ms")
    fence_producers(client, sink.task(index), transaction_timeout_ms=timeout_ms)


def _end(
    client: BlockingClient, batch: MicroBatchResults, opened: OpenTransaction, how_many: str
) -> None:
    try:
        end_transaction(client, opened, commit=True)
    except KlogError as error:
        raise ClientError(
            f"micro-batch {batch.batch_id} of the exactly-once sink {batch.sink}: {how_many} "
            f"transactions of tasks were committed, and committing the next one failed: {error}; "
            "start the query again with the same number of tasks, which writes the other rows"
        ) from error
