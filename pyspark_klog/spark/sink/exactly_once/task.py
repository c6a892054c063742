"""The task's side of the exactly-once sink: its rows and its progress row in one transaction.

The progress row is an offset that says what the task has written. `decisions.py` has the rules;
this module sends the requests. A task reads its progress row, takes its transactional id and reads
the progress row again (it leaves out both if its producer may go on after its own last commit),
writes its rows and a new progress row, and then commits the transaction or leaves it to the driver.
If its rows were committed before, the task only compares them with the committed ones.
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from pyspark_klog.client.admin.open_transactions import find_open_transactions
from pyspark_klog.client.admin.sink_progress import ProgressRow
from pyspark_klog.client.admin.transaction_descriptions import (
    TransactionDescription,
    describe_transaction,
)
from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.client.errors import (
    ClientError,
    ProducerFenced,
    ProducerUnusable,
    TimedOut,
    TopicMissing,
    TransactionMustAbort,
    UnsupportedByBroker,
)
from pyspark_klog.client.producer.batches import ADDS_IMPLICITLY
from pyspark_klog.client.transactions.blocking_driver import transaction_version
from pyspark_klog.client.transactions.producer import OpenTransaction
from pyspark_klog.client.transactions.states import TransactionalProducerState
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.sink.dead_letters import TaskIds
from pyspark_klog.spark.sink.exactly_once import refusals
from pyspark_klog.spark.sink.exactly_once.attempt import Task
from pyspark_klog.spark.sink.exactly_once.decisions import (
    Fail,
    Verify,
    Write,
    after_fenced,
    difference,
)
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from pyspark_klog.spark.sink.exactly_once.progress import TaskProgress
from pyspark_klog.spark.sink.exactly_once.task_group import TaskGroup
from pyspark_klog.spark.sink.row_writer import SinkRows
from pyspark_klog.spark.workers.clients import (
    check_numba,
    client_for,
    drop_producer,
    freeze_once,
    reused_producer,
)

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_log = logging.getLogger(__name__)

_ABORTED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
"""The error codes with which partition leaders refuse batches of a transaction that its coordinator
has aborted."""
_BUSY = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_PATIENCE_MS = 5_000
_PATIENCE_AT_END_MS = 15_000
"""How long an attempt waits for the transaction of another attempt of the task that has written all
its rows; `_PATIENCE_MS` is the time for an attempt that still writes rows. Spark ends the other
attempts once one has succeeded."""
_NEW = TransactionDescription("Empty", frozenset())
_OFFSETS = "__consumer_offsets"
_IDLE_MS = 10_000
"""An attempt that has taken the transactional id, and has had no open transaction for this time,
counts as dead: an attempt takes the id only when it is ready to write."""


class TaskResult(NamedTuple):
    """The result of a task."""

    progress: TaskProgress
    row_count: int
    """The number of rows that are on their topics, or will be once the driver has committed the
    transaction. If another attempt committed the rows, its dead letters are counted here, too."""
    dead_letters: tuple[tuple[str, int], ...] = ()
    """The dead letters of this attempt, by reason; none if another attempt committed the rows."""
    oldest_ms: tuple[tuple[str, int], ...] = ()
    """By topic, the smallest timestamp that option timestampColumn gave this attempt's records."""


def write_once(
    options: Options, task: Task, ids: TaskIds, batches: "Iterable[RecordBatch]"
) -> TaskResult:
    """Write the rows of a task in a transaction; if they were committed before, only compare them
    with the committed rows.

    After an error this worker drops its client and producers with these settings; a later task
    makes new ones.

    :raises ExactlyOnceRefused: if the rows must not be written, or the transaction was aborted
    :raises KlogError: if brokers fail or do not answer in time
    """
    check_numba(options.allow_slow)
    try:
        written = _Attempt(options, task, ids).run(batches)
    except BaseException:
        drop_producer(options.client)
        raise
    freeze_once()
    return written


class _Attempt:
    """One attempt of a task to write its rows exactly once."""

    def __init__(self, options: Options, task: Task, ids: TaskIds) -> None:
        self._options = options
        self._task = task
        self._client = client_for(options.client)
        self._group = TaskGroup(self._client, task)
        self._held = reused_producer(options.client, task.transactional_id)
        self._producer = self._held.producer
        self._rows = SinkRows(options, ids)
        from pyspark_klog.spark.sink.exactly_once.row_hash import RowHash  # needs pyarrow

        self._hash = RowHash(options.timestamp_column)
        self._timeout_ms = options.client.number("transaction.timeout.ms")
        self._began_ms = 0

    def run(self, batches: "Iterable[RecordBatch]") -> TaskResult:
        rest: Iterator[RecordBatch] = (batch for batch in batches if batch.num_rows)
        # Read the first input row before taking the transactional id from another attempt: then an
        # attempt that has taken the id can write at once. Other attempts rely on that: they take an
        # attempt that has the id, but no open transaction for `_IDLE_MS`, for dead.
        rest = chain([each for each in [next(rest, None)] if each is not None], rest)
        self._check_topic()
        found = self._group.row(stable=False)
        own = self._own_row(found)
        if own is not None:
            found = own
        decision = self._group.decide(found)
        if isinstance(decision, Write) and self._has_waited():
            found = self._group.row(stable=False)
            decision = self._group.decide(found)
        if isinstance(decision, Verify):
            return self._verify(decision.row, rest)
        is_sure = own is not None
        try:
            if own is None:
                found, decision = self._take_id()
                is_sure = found is not None and self._follows(found)
            if isinstance(decision, Write):
                ends_itself = decision.ends_itself and (is_sure or not self._task.now.is_repeatable)
                return self._write(rest, found, ends_itself=ends_itself)
        except KlogError as error:
            return self._failed(error, rest, found)
        except Exception:
            self._abort()
            raise
        return self._verify(decision.row, rest)

    # --- before the first row is written ---------------------------------------------------------
    def _check_topic(self) -> None:
        """Check that the topic exists under which the task stores its progress as an offset:
        brokers refuse to commit an offset for a missing topic."""
        topic = self._task.topic
        try:
            self._producer.partition_count(topic)
        except (TopicMissing, BrokerError) as error:
            if topic == self._options.topic:
                raise
            raise ExactlyOnceRefused(
                f"option exactlyOnceTopic is {topic}; expected the name of an existing topic "
                f"that this user may describe: {error}"
            ) from error

    def _own_row(self, found: ProgressRow | None) -> ProgressRow | None:
        """The progress row (offset that says what the task wrote) of this producer's last commit,
        if the producer may begin a transaction without InitProducerId; else None. ``found`` is the
        progress row that the group's coordinator has returned.

        Attempts after a task's first must send InitProducerId: a failed attempt may have taken the
        transactional id without leaving a progress row. Below transaction.version 2 the first
        attempt must send it, too: a late EndTxn request of the last micro-batch could end the
        transaction of this one.
        """
        held = self._held
        if held.committed is None or self._task.attempt_number:
            return None
        if (
            self._producer.state is not TransactionalProducerState.READY
            or self._version() < ADDS_IMPLICITLY
        ):
            return None
        # Until the group's coordinator has applied the producer's last commit, it still returns the
        # progress row of the commit before, which is ``held.before``.
        position = None if found is None else found.to_offset()
        if position not in (held.committed, held.before):
            return None
        return ProgressRow.from_offset(held.committed)

    def _has_waited(self) -> bool:
        """Wait for the attempt before this one if it is still writing; return whether it was.

        If a speculative copy of a task took the transactional id at once, it could fence an attempt
        that has just left its transaction to the driver. So this attempt waits up to `_PATIENCE_MS`
        while the other one writes rows, and up to `_PATIENCE_AT_END_MS` more once it has written
        all; Spark ends the copies of a finished task well within `_PATIENCE_AT_END_MS`. An attempt
        that has died delays the next one by the sum of both times at most.
        """
        if not self._task.attempt_number:
            return False
        began_ms = self._client.now_ms()
        end_seen_ms: int | None = None
        looks = 0
        while (found := self._described()) is not None and found.state in _BUSY:
            now_ms = self._client.now_ms()
            # An attempt has written all its rows once __consumer_offsets is a part of its
            # transaction, because it sends its progress, an offset, after the rows.
            if end_seen_ms is None and _OFFSETS in found.topics:
                end_seen_ms = now_ms
            end_ms = None if end_seen_ms is None else end_seen_ms + _PATIENCE_AT_END_MS
            left_ms = (end_ms or began_ms + _PATIENCE_MS) - now_ms
            if left_ms <= 0:
                break
            looks += 1
            self._client.sleep_ms(min(self._client.wait_ms(looks), left_ms))
        return looks > 0

    def _version(self) -> int:
        return transaction_version(self._client)[1]

    def _take_id(self) -> tuple[ProgressRow | None, Verify | Write]:
        """Take the task's transactional id, which fences all other attempts, and read the progress
        row (the committed offset that says what the task wrote) again: an older attempt may have
        committed in between."""
        self._held.committed = None
        self._producer.init_transactions()
        found = self._group.row(stable=True, while_unstable=self._check_id)
        decision = self._group.decide(found)
        if found is None and not self._task.now.is_repeatable and self._group.mark() is not None:
            raise refusals.ended(self._task)
        if isinstance(decision, Write):
            self._check_no_open_transaction()
        return found, decision

    def _check_id(self) -> None:
        """Check that this producer still has its transactional id.

        Called while OffsetFetch waits for a transaction that brokers are ending. If another attempt
        has taken the id since, and has left its transaction to the driver, OffsetFetch would wait
        for that transaction, too, which may take longer than this attempt waits.

        :raises ProducerFenced: if another producer has the id
        """
        described = self._described()
        if described is None or described.producer_id < 0:
            return
        own_id, own_epoch = self._producer.identity
        # A producer epoch below this producer's does not prove that another attempt has the id: a
        # coordinator that was replaced may still return it.
        if described.producer_id != own_id or described.producer_epoch > own_epoch:
            raise ProducerFenced(
                f"producer {described.producer_id} of epoch {described.producer_epoch} has the "
                f"transactional id, and this attempt is producer {own_id} of epoch {own_epoch}"
            )

    def _check_no_open_transaction(self) -> None:
        """Check that no partition of option topic's topic has an open transaction of this producer.

        The coordinator has ended the transactional id's earlier transaction, and no attempt has
        committed this batch. But Apache Kafka writes no transaction marker to a partition that has
        no leader at that time (docs/exactly-once.md): the earlier transaction stays open there, and
        this task's commit would commit its rows, too. Topics that only rows name are not checked,
        because the task has read only its first row by now. If brokers cannot list open
        transactions, or this user may not, nothing is checked."""
        topic = self._options.topic
        if topic is None:
            return
        try:
            found = find_open_transactions(self._client, *self._producer.identity, topic)
        except UnsupportedByBroker:
            return
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            _log.warning(
                "cannot look for transactions that were never ended; the task writes without this "
                "check: %s",
                error,
            )
            return
        if found:
            raise refusals.left_open(self._task, topic, *min(found.items()))

    def _follows(self, row: ProgressRow) -> bool:
        """Whether no other producer has had the transactional id between this producer and the one
        that wrote ``row``, the progress row of the task's last committed transaction."""
        return (row.producer_id, row.next_epoch) == self._producer.identity

    # --- writing in a transaction ----------------------------------------------------------------
    def _write(
        self, batches: "Iterator[RecordBatch]", before: ProgressRow | None, *, ends_itself: bool
    ) -> TaskResult:
        producer, rows, task = self._producer, self._rows, self._task
        self._held.committed = None
        producer.begin_transaction()
        self._began_ms = self._client.now_ms()
        rows.prepare_producer(producer)
        for batch in batches:
            self._hash.add(batch)
            rows.add(producer, batch)
        rows.flush_rows(producer)
        row = self._made()
        position = {self._group.partition: row.to_offset()}
        producer.send_offsets_to_transaction(position, task.transactional_id)
        opened: OpenTransaction | None = None
        if ends_itself:
            producer.commit_transaction()
            self._held.committed = row.to_offset()
            self._held.before = None if before is None else before.to_offset()
        else:
            opened = producer.hand_over()
        progress = self._progress(row, before, opened)
        row_count = row.row_count - rows.letter_count
        return TaskResult(progress, row_count, rows.dead_letters, rows.oldest_ms)

    def _made(self) -> ProgressRow:
        """A progress row with the number and the hash of this attempt's rows. Its producer id and
        epoch have no meaning in an attempt that only compares its rows with committed ones, without
        a transaction."""
        hashed, now = self._hash, self._task.now
        identity, version = self._producer.identity, self._producer.version
        # The next producer's InitProducerId raises the epoch; so does, from transaction.version 2
        # on, the commit of this transaction.
        raised = 2 if version >= ADDS_IMPLICITLY else 1
        return ProgressRow(
            *(now.batch_id, now.run_id, hashed.row_count, hashed.byte_count, hashed.value),
            *(epoch_ms(), identity.producer_id, identity.producer_epoch + raised),
        )

    def _progress(
        self, row: ProgressRow, before: ProgressRow | None, opened: OpenTransaction | None
    ) -> TaskProgress:
        task = self._task
        return TaskProgress(task.transactional_id, task.topic, row, before, opened, task.now.run_id)

    # --- comparing with rows that were committed before ------------------------------------------
    def _verify(self, found: ProgressRow, batches: "Iterator[RecordBatch]") -> TaskResult:
        former_hash = self._hash.add_repeated(batches)
        made, task = self._made(), self._task
        if former_hash == found.row_hash:
            made = made._replace(row_hash=former_hash)
        text = difference(found, made, task.now, keep=task.keep_on_mismatch)
        if text is not None:
            raise ExactlyOnceRefused(text)
        if found.row_hash != made.row_hash:
            _log.warning(
                "the rows of a repeated task differ from those that it committed before, and are "
                "not written (exactlyOnceMismatch=keep): task=%d micro-batch=%d rows=%d",
                *(task.now.task, task.now.batch_id, made.row_count),
            )
        return TaskResult(self._progress(found, found, None), found.row_count)

    # --- failed transactions ---------------------------------------------------------------------
    def _failed(
        self, error: KlogError, batches: "Iterator[RecordBatch]", before: ProgressRow | None
    ) -> TaskResult:
        """Handle a failed transaction: take over the result of another attempt, if one has the
        transactional id, or raise."""
        if isinstance(error, TimedOut):
            raise error  # brokers would not answer an abort request either
        lost = self._abort() or (error if isinstance(error, ProducerUnusable) else None)
        elapsed_ms = self._client.now_ms() - self._began_ms if self._began_ms else 0
        is_late = elapsed_ms >= self._timeout_ms
        if lost is None:
            if not isinstance(error, TransactionMustAbort):
                raise error
            if is_late and error.code in _ABORTED:
                raise refusals.timed_out(self._task, self._timeout_ms, elapsed_ms) from error
            raise refusals.explained(error, self._task, self._timeout_ms) from error
        if isinstance(lost, ProducerFenced):
            found = self._result_of_another(batches, 0 if is_late else self._timeout_ms)
            if found is not None:
                return TaskResult(self._progress(found, before, None), found.row_count)
        if is_late:
            raise refusals.timed_out(self._task, self._timeout_ms, elapsed_ms) from error
        if isinstance(lost, ProducerFenced):
            raise refusals.fenced(self._task) from error
        raise refusals.explained(lost, self._task, self._timeout_ms) from error

    def _abort(self) -> ProducerUnusable | None:
        """Abort the open transaction, so that readers need not wait for its timeout. Return the
        error if the producer cannot be used any more, else None."""
        try:
            self._producer.abort_transaction()
        except ProducerUnusable as lost:
            return lost
        except ClientError as error:
            _log.info("no transaction to abort, or the abort failed: %s", error)
        return None

    def _result_of_another(
        self, batches: "Iterator[RecordBatch]", timeout_ms: int
    ) -> ProgressRow | None:
        """Wait for another attempt of this task to commit, and return its progress row, which says
        what that attempt wrote. Returns None after ``timeout_ms``, or once no attempt has had an
        open transaction for `_IDLE_MS`, which means that the other attempt has died.

        :raises ExactlyOnceRefused: if the progress row is another run's, for this micro-batch, or
            any run's for a later one
        """
        client = self._client
        for _ in batches:
            pass  # Spark expects that a task reads its whole input
        began_ms = client.now_ms()
        busy_ms = began_ms
        looks = 0
        while True:
            decision = after_fenced(self._group.row(stable=False), self._task.now)
            if isinstance(decision, Verify):
                drop_producer(self._options.client)
                return decision.row
            if isinstance(decision, Fail):
                raise ExactlyOnceRefused(decision.error)
            now_ms = client.now_ms()
            described = self._described()
            if described is None or described.state in _BUSY:
                busy_ms = now_ms
            left_ms = min(began_ms + timeout_ms, busy_ms + _IDLE_MS) - now_ms
            if left_ms <= 0:
                return None
            looks += 1
            client.sleep_ms(min(client.wait_ms(looks), left_ms))

    def _described(self) -> TransactionDescription | None:
        """The state of the transactional id's producer and transaction, as the coordinator
        describes it; no transaction if it does not know the id, None if the request fails."""
        try:
            return describe_transaction(self._client, self._task.transactional_id)
        except BrokerError as error:
            return _NEW if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND else None
        except ClientError:
            return None
