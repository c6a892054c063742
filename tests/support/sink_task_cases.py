"""What a task of the exactly-once sink must do on any broker: run on klog and on Apache Kafka.

The broker has to look for transactions that are too old every 200 ms.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest

from pyspark_klog.client.blocking import BlockingClient
from pyspark_klog.client.consumer.offsets import LATEST, list_offsets
from pyspark_klog.client.groups import (
    CommittedOffset,
    commit_offsets,
    committed_offsets,
    delete_group,
)
from pyspark_klog.client.sinks import ProgressRow, RunMark
from pyspark_klog.client.transactions.left_open import open_since
from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import SchemaError
from pyspark_klog.spark.sink.dead_letters import DeadLettersFailed
from pyspark_klog.spark.sink.exactly_once import task
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from pyspark_klog.spark.workers import clients
from pyspark_klog.spark.workers.clients import client_for
from tests.support.client_cases import client_of, new_topic
from tests.support.eventually import eventually
from tests.support.sink_workers import QUERY, RUN_1, RUN_2, Worker, rows, then
from tests.support.transaction_cases import committed, new_id, put, read_committed, stable_offset


class World:
    """A topic of one partition, and a sink of its own."""

    def __init__(self, servers: str, **configs: str) -> None:
        self.servers = servers
        self.topic = new_topic(servers, 1, **configs)
        self.partition = TopicPartition(self.topic, 0)
        self.prefix = new_id()

    def worker(self, **options: str | int) -> Worker:
        return Worker(
            self.servers, **{"topic": self.topic, "exactlyOncePrefix": self.prefix, **options}
        )

    @property
    def committed(self) -> list[str]:
        return committed(self.servers, self.partition)

    def group(self, index: int = 0) -> str:
        return f"{self.prefix}.{QUERY}.sink.{index}"

    def row(self, index: int = 0) -> ProgressRow | None:
        found = stable_offset(self.servers, self.group(index), self.partition)
        return None if found is None else ProgressRow.from_offset(found)

    def is_at(self, batch_id: int) -> None:
        """Wait until everybody sees the row of this batch: Kafka decides first, and shows later."""
        row = self.row()
        assert row is not None
        assert row.batch_id == batch_id

    def row_now(self) -> ProgressRow | None:
        """The row that is there while a transaction is open."""
        with client_of(self.servers) as client:
            found = committed_offsets(client, self.group(), [self.partition])
        return ProgressRow.from_offset(found[self.partition]) if found else None

    def store(self, group: str, position: CommittedOffset, topic: str | None = None) -> None:
        with client_of(self.servers) as client:
            commit_offsets(client, group, {TopicPartition(topic or self.topic, 0): position})

    def take(self, index: int = 0) -> None:
        """Fence whoever has the id, as an attempt that dies then, or a driver."""
        with client_of(self.servers) as client:
            TransactionalProducer(client, self.group(index)).init_transactions()

    def sent(self) -> None:
        """Wait until a record is in the log."""
        with client_of(self.servers) as client:
            ends = {self.partition: LATEST}
            eventually(
                lambda: list_offsets(client, ends)[self.partition].offset > 0, 30, "a record"
            )


# --- the normal course ---------------------------------------------------------------------------
def only_the_first_batch_of_a_run_is_left_to_the_driver(servers: str) -> None:
    """Then each task ends its transaction itself, in the same worker or another."""
    world = World(servers)
    one, other = world.worker(), world.worker()
    first = one.write(0, "a", "b")
    assert first.progress.before is None
    assert read_committed(servers, world.partition) == []
    one.end(first)
    assert world.committed == ["a", "b"]
    before = first.progress.row
    for batch_id, worker in [(1, one), (2, one), (3, other), (4, other), (5, one)]:
        written = worker.write(batch_id, f"{batch_id}-a", f"{batch_id}-b")
        found = written.progress
        assert found.opened is None
        assert (written.row_count, written.dead_letters) == (2, ())
        assert (found.transactional_id, found.topic) == (world.group(), world.topic)
        assert (found.run_id, found.before) == (RUN_1, before)
        assert (found.row.batch_id, found.row.run_id, found.row.row_count) == (batch_id, RUN_1, 2)
        assert world.row() == found.row
        before = found.row
    assert world.committed == ["a", "b", *(f"{n}-{x}" for n in range(1, 6) for x in "ab")]


def a_worker_that_holds_the_id_asks_for_no_new_epoch(servers: str) -> None:
    """On transaction.version 2. Below it always asks: a late EndTxn could end the next batch."""
    world = World(servers)
    worker = world.worker()
    worker.write_and_end(0, "0")
    epochs = [worker.write(n, str(n)).progress.row.next_epoch for n in range(1, 5)]
    assert [b - a for a, b in pairwise(epochs)] == [1, 1, 1]
    held = clients.held_id(worker.options.client, world.group())
    expected = 1 if held.producer.version == 2 else 0
    assert epochs[-1] - held.producer.identity.producer_epoch == 1
    # A second attempt may meet an id that an attempt before it has taken.
    written = worker.write(5, "5", attempt=1).progress
    assert written.opened is None
    assert written.row.next_epoch - epochs[-1] == 1 + expected
    assert world.committed == [str(n) for n in range(6)]


def a_task_without_rows_stores_its_row(servers: str) -> None:
    """So that a batch that is repeated with other tasks is recognised."""
    world = World(servers)
    worker = world.worker()
    worker.write_and_end(0)
    empty = rows("x").slice(0, 0)
    written = worker.write(1, batches=[empty, empty]).progress
    assert written.opened is None
    assert (written.row.row_count, written.row.row_hash) == (0, 0)
    assert world.row() == written.row
    assert world.committed == []


def an_index_that_was_absent_goes_on(servers: str) -> None:
    """Batches have different numbers of tasks: no batch of this run is repeated."""
    world = World(servers)
    worker = world.worker()
    worker.write_and_end(0, "0")
    assert worker.write(7, "7").progress.opened is None
    assert world.committed == ["0", "7"]


def one_batch_goes_to_several_topics(servers: str) -> None:
    """Chosen by a column; the progress is under another one."""
    world = World(servers)
    second = new_topic(servers, 2)
    with pytest.raises(
        ExactlyOnceRefused, match="option exactlyOnceTopic is no:where, and it must"
    ):
        world.worker(exactlyOnceTopic="no:where").write(0, "x")
    worker = Worker(servers, exactlyOncePrefix=world.prefix, exactlyOnceTopic=world.topic)
    given = rows("a", "b", "c", topic=[second, world.topic, second], partition=[1, 0, 0])
    written = worker.write(0, batches=[given])
    places = [TopicPartition(second, 1), world.partition, TopicPartition(second, 0)]
    assert [read_committed(servers, place) for place in places] == [[], [], []]
    worker.end(written)
    assert [committed(servers, place) for place in places] == [["a"], ["b"], ["c"]]
    assert written.progress.row == world.row()


# --- repeated batches ----------------------------------------------------------------------------
def a_repeated_batch_is_verified(servers: str) -> None:
    """In this run by another attempt, in the next run; in any order and split into batches."""
    world = World(servers)
    world.worker().write_and_end(0, "a", "b", "a")
    row = world.row()
    for run_id in (RUN_1, RUN_2):
        again = world.worker().write(0, run_id=run_id, batches=[rows("b"), rows("a", "a")])
        assert again.progress.row == again.progress.before == row
        assert again.progress.opened is None
        assert (again.row_count, again.dead_letters, again.progress.run_id) == (3, (), run_id)
    assert world.committed == ["a", "b", "a"]
    # The next batch of the new run is its first one that it writes.
    assert world.worker().write(1, "c", run_id=RUN_2).progress.opened is not None


def other_rows_than_those_committed_are_refused(servers: str) -> None:
    """Unless the option says to keep what was committed; but never another number of rows."""
    world = World(servers)
    world.worker().write_and_end(0, "a", "b")
    with pytest.raises(
        ExactlyOnceRefused, match=r"2 rows with .* now, and run .* committed 2 rows"
    ):
        world.worker().write(0, "a", "c", run_id=RUN_2)
    keeps = world.worker(exactlyOnceMismatch="keep")
    assert keeps.write(0, "a", "c", run_id=RUN_2).progress.row == world.row()
    for worker in (world.worker(), keeps):
        with pytest.raises(ExactlyOnceRefused, match="task 0 of micro-batch 0 has 1 rows"):
            worker.write(0, "a", run_id=RUN_2)
        with pytest.raises(ExactlyOnceRefused, match="has 0 rows"):
            worker.write(0, run_id=RUN_2)
    assert world.committed == ["a", "b"]


def a_batch_that_was_passed_is_refused(servers: str) -> None:
    """The checkpoint was set back, or a copy of it runs. The one who writes is not disturbed."""
    world = World(servers)
    worker = world.worker()
    worker.write_and_end(0, "0")
    worker.write(1, "1")
    world.is_at(1)
    with pytest.raises(ExactlyOnceRefused, match="finds micro-batch 1 written by run"):
        world.worker().write(0, "0", run_id=RUN_2)
    assert worker.write(2, "2").progress.opened is None
    assert world.committed == ["0", "1", "2"]


def a_copy_of_the_query_is_refused(servers: str) -> None:
    """Its row of this batch is there while the mark says that this run is past its first one."""
    world = World(servers)
    world.worker().write_and_end(0, "0")
    world.store(f"{world.prefix}.{QUERY}.sink.run", RunMark(0, RUN_2, 1, ()).to_offset())
    with pytest.raises(ExactlyOnceRefused, match="two copies of the query write with the same ids"):
        world.worker().write(0, "0", run_id=RUN_2)
    world.store(f"{world.prefix}.{QUERY}.sink.run", CommittedOffset(0, metadata="mine"))
    with pytest.raises(ExactlyOnceRefused, match=r"\.run: a position of the sink is 0 with"):
        world.worker().write(0, "0", run_id=RUN_2)


def a_batch_under_another_topic_is_refused(servers: str) -> None:
    """An earlier one is not, though what is known of it does not count any more."""
    world = World(servers)
    other = new_topic(servers, 1)
    world.worker(exactlyOnceTopic=other).write_and_end(0, "0")
    with pytest.raises(ExactlyOnceRefused, match=f"set option exactlyOnceTopic={other}"):
        world.worker().write(0, "0", run_id=RUN_2)
    written = world.worker().write(1, "1", run_id=RUN_2)
    assert written.progress.before is None
    assert written.progress.opened is not None


def another_programs_position_is_refused(servers: str) -> None:
    """Somebody commits to a group of the sink's."""
    world = World(servers)
    world.store(world.group(), CommittedOffset(3, metadata="mine"))
    with pytest.raises(ExactlyOnceRefused, match=f"group {world.group()}: a position of the sink"):
        world.worker().write(0, "0")


# --- other attempts ------------------------------------------------------------------------------
def a_fenced_attempt_takes_over_the_result(servers: str) -> None:
    """A copy of the task was quicker: its row is this attempt's, and both succeed."""
    world = World(servers)
    world.worker().write_and_end(0, "0")
    slow = world.worker()

    def copy(batch_id: int) -> None:
        worker = world.worker()
        written = worker.write(batch_id, "a", "b", attempt=1)
        # It knows no better than that somebody had the id before it.
        worker.end(written)

    written = slow.write(1, batches=then(rows("a"), lambda: copy(1), rows("b")))
    assert written.progress.row == world.row()
    assert written.progress.opened is None
    assert written.row_count == 2
    assert written.progress.before is not None
    assert written.progress.before.batch_id == 0
    # The producer that was fenced is given up, and the next batch is written all the same.
    assert slow.write(2, "c").progress.opened is None
    assert world.committed == ["0", "a", "b", "c"]


def a_copy_lets_the_other_attempt_finish(servers: str) -> None:
    """It would fence what that one has just left to the driver."""
    world = World(servers)
    one, copy = world.worker(), world.worker()
    written = one.write(0, "0")

    def pause(_: BlockingClient, wait_ms: int) -> None:
        assert wait_ms > 0
        if world.row_now() is None:
            one.end(written)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockingClient, "pause", pause)
        found = copy.write(0, "0", attempt=1)
    assert found.progress.row == written.progress.row
    assert found.progress.opened is None
    assert world.committed == ["0"]


def an_attempt_that_is_fenced_by_one_that_dies_gives_up(servers: str) -> None:
    """After the transaction's time-out: a third attempt goes on then."""
    world = World(servers)
    world.worker().write_and_end(0, "0")
    slow = world.worker(kafka_transaction_timeout_ms=1_500)

    def copy() -> None:
        with pytest.raises(_Died):
            world.worker().write(1, batches=then(rows("a"), _die), attempt=1)

    with pytest.raises(ExactlyOnceRefused, match="and has not committed: it died, or"):
        slow.write(1, batches=then(rows("a"), copy, rows("b")))
    worker = world.worker()
    worker.end(worker.write(1, "a", "b", attempt=2))
    assert world.committed == ["0", "a", "b"]


def an_attempt_that_is_fenced_and_left_alone_gives_up_soon(servers: str) -> None:
    """Nobody writes under the id: its transaction's time-out is not waited for."""
    world = World(servers)
    world.worker().write_and_end(0, "0")
    slow = world.worker()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "_IDLE_MS", 500)
        with pytest.raises(ExactlyOnceRefused, match="and has not committed: it died, or"):
            slow.write(1, batches=then(rows("a"), world.take, rows("b")))
    assert world.committed == ["0"]


def an_attempt_of_an_older_run_stops(servers: str) -> None:
    """A newer run has written its batch, or is further on."""
    for last in (1, 2):
        world = World(servers)
        world.worker().write_and_end(0, "0")
        newer = world.worker()

        def restarted(world: World = world, newer: Worker = newer, last: int = last) -> None:
            newer.write_and_end(1, "a", "b", run_id=RUN_2)
            for batch_id in range(2, last + 1):
                newer.write(batch_id, "c", run_id=RUN_2)
            world.is_at(last)

        with pytest.raises(ExactlyOnceRefused) as caught:
            world.worker().write(1, batches=then(rows("a"), restarted, rows("b")))
        assert str(caught.value).startswith(
            f"task 0 of micro-batch 1 lost its transactional id to run {RUN_2} of the query, which "
            f"has written micro-batch {last}: this run, {RUN_1}, was replaced"
        )
        assert world.committed == ["0", "a", "b", "c"][: last + 2]


def a_copy_that_wakes_after_the_commit_writes_nothing(servers: str) -> None:
    """And takes the id from nobody: it looks when it has its first rows."""
    world = World(servers)
    world.worker().write_and_end(0, "0")
    one, copy = world.worker(), world.worker()

    def write(*batches: int) -> None:
        for batch_id in batches:
            one.write(batch_id, str(batch_id))
            world.is_at(batch_id)

    written = copy.write(1, batches=then(lambda: write(1), rows("1")), attempt=1)
    assert written.progress.row == world.row()

    with pytest.raises(ExactlyOnceRefused, match="finds micro-batch 3 written"):
        copy.write(2, batches=then(lambda: write(2, 3), rows("2")), attempt=1)
    assert world.committed == ["0", "1", "2", "3"]


def a_copy_that_wakes_between_two_looks_writes_nothing(servers: str) -> None:
    """It has the id, and looks again."""
    world = World(servers)
    world.worker().write_and_end(0, "0")
    init = TransactionalProducer.init_transactions
    for batch_id, others in [(1, [1]), (2, [2, 3])]:
        with pytest.MonkeyPatch.context() as patch:

            def sleepy(
                producer: TransactionalProducer,
                patch: pytest.MonkeyPatch = patch,
                others: Iterable[int] = others,
            ) -> None:
                patch.setattr(TransactionalProducer, "init_transactions", init)
                for each in others:
                    worker = world.worker()
                    written = worker.write(each, str(each))
                    if written.progress.opened is not None:
                        worker.end(written)
                producer.init_transactions()

            patch.setattr(TransactionalProducer, "init_transactions", sleepy)
            if batch_id == 1:
                assert world.worker().write(1, "1", attempt=1).progress.row == world.row()
            else:
                with pytest.raises(ExactlyOnceRefused, match="finds micro-batch 3 written"):
                    world.worker().write(2, "2", attempt=1)
    assert world.committed == ["0", "1", "2", "3"]


def a_task_of_a_stopped_run_that_wakes_late_ends_nothing(servers: str) -> None:
    """A newer run had fewer tasks, and its driver fenced the others' ids."""
    world = World(servers)
    world.worker().write_and_end(0, "0")
    late = world.worker()
    assert late.write(1, "1").progress.opened is None
    # One that asks for the id afterwards has it, and must not commit.
    written = world.worker().write(2, batches=then(world.take, rows("late")))
    assert written.progress.opened is not None
    late.end(written, commit=False)
    assert world.committed == ["0", "1"]


def a_worker_that_holds_the_id_in_vain_ends_nothing(servers: str) -> None:
    """The same where the worker had the id already: it is fenced, or asks and leaves it open."""
    world = World(servers)
    holder = world.worker(kafka_transaction_timeout_ms=1_000)
    holder.write_and_end(0, "0")
    assert holder.write(1, "1").progress.opened is None
    version = clients.held_id(holder.options.client, world.group()).producer.version
    if version == 2:
        with pytest.raises(ExactlyOnceRefused, match="and has not committed: it died, or"):
            holder.write(2, batches=then(world.take, rows("late")))
    else:
        written = holder.write(2, batches=then(world.take, rows("late")))
        holder.end(written, commit=False)
    assert world.committed == ["0", "1"]


def a_worker_that_lost_the_id_meanwhile_asks_again(servers: str) -> None:
    """Another worker wrote the batch before; this one's producer is of older days."""
    world = World(servers)
    one, other = world.worker(), world.worker()
    one.write_and_end(0, "0")
    one.write(1, "1")
    other.write(2, "2")
    assert one.write(3, "3").progress.opened is None
    assert world.committed == ["0", "1", "2", "3"]


# --- failures ------------------------------------------------------------------------------------
class _Died(BaseException):
    """The worker was killed."""


def _die() -> None:
    raise _Died


def _fail() -> None:
    raise ValueError("a user's function failed")


def a_dead_attempt_holds_nobody_back(servers: str) -> None:
    """Its transaction is open: the next attempt ends it, without waiting for its time-out."""
    world = World(servers)
    world.worker().write_and_end(0, "0")
    with pytest.raises(_Died):
        world.worker().write(1, batches=then(rows("a"), world.sent, _die))
    worker = world.worker()
    written = worker.write(1, "a", attempt=1)
    assert written.progress.before == world.row_now()
    # Somebody has had the id since the row before: the driver compares.
    worker.end(written)
    assert world.committed == ["0", "a"]


def what_fails_is_aborted_at_once(servers: str) -> None:
    """Readers of committed records need not wait for the time-out."""
    world = World(servers)
    worker = world.worker()
    worker.write_and_end(0, "0")
    with pytest.raises(ValueError, match="a user's function failed"):
        worker.write(1, batches=then(rows("a"), world.sent, _fail))
    assert world.committed == ["0"]
    bad = rows("a", "b", partition=[0, 7])
    with pytest.raises(SchemaError, match="column partition is 7 in a row"):
        worker.write(1, batches=[rows("a"), bad], attempt=1)
    assert world.committed == ["0"]
    assert worker.write(1, "a", attempt=2).progress.opened is not None


def a_record_that_the_topic_refuses_fails_the_task(servers: str) -> None:
    """In the words of the refusal."""
    world = World(servers, max_message_bytes="2000")
    with pytest.raises(ExactlyOnceRefused, match=r"task 0 of micro-batch 0: .*larger than") as got:
        world.worker().write(0, "a" * 3_000)
    assert "abort the transaction" not in str(got.value)
    assert world.committed == []


def a_transaction_that_takes_too_long_says_so(servers: str) -> None:
    """It is not taken for one that another attempt has fenced."""
    world = World(servers)
    world.worker().write_and_end(0, "0")
    for more in ([], [rows("b")]):
        worker = world.worker(kafka_transaction_timeout_ms=600)
        client = client_for(worker.options.client)
        began_ms = client.now_ms()

        def until_aborted(client: BlockingClient = client, began_ms: int = began_ms) -> None:
            eventually(lambda: client.now_ms() - began_ms > 1_000, 30, "the time-out")
            eventually(lambda: world.committed == ["0"], 30, "the abort")

        with pytest.raises(ExactlyOnceRefused, match=r"kafka\.transaction\.timeout\.ms allows 600"):
            worker.write(1, batches=then(rows("a"), world.sent, until_aborted, *more))
    assert world.committed == ["0"]


def a_time_out_that_the_broker_does_not_allow_is_explained(servers: str) -> None:
    """transaction.max.timeout.ms is 900000 by default."""
    world = World(servers)
    text = "kafka.transaction.timeout.ms is 900001, and the broker's transaction.max.timeout.ms is"
    with pytest.raises(ExactlyOnceRefused, match=text):
        world.worker(kafka_transaction_timeout_ms=900_001).write(0, "0")


def dead_letters_are_in_the_transaction(servers: str) -> None:
    """With the rows, or not at all."""
    world = World(servers)
    dead = new_topic(servers, 1)
    place = TopicPartition(dead, 0)
    worker = world.worker(deadLetterTopic=dead, kafka_max_request_size=2_000)
    given = [rows("a", "b" * 3_000), rows("c", "d", partition=[0, 9])]
    written = worker.write(0, batches=given)
    assert written.row_count == 2
    assert written.dead_letters == (("BAD_PARTITION", 1), ("TOO_LARGE", 1))
    assert written.progress.row.row_count == 4
    assert read_committed(servers, place) == []
    worker.end(written)
    assert world.committed == ["a", "c"]
    assert committed(servers, place) == ["b" * 3_000, "d"]
    with pytest.raises(ValueError, match="failed"):
        worker.write(1, batches=then(*given, _fail))
    assert committed(servers, place) == ["b" * 3_000, "d"]
    few = world.worker(deadLetterTopic=dead, deadLetterMax=0)
    with pytest.raises(DeadLettersFailed, match="1 rows could not be written, and deadLetterMax"):
        few.write(1, batches=[given[1]], attempt=1)


def an_attempt_that_is_fenced_while_it_writes_letters_waits_too(servers: str) -> None:
    """The letters' failure hides the fencing from it."""
    world = World(servers)
    dead = new_topic(servers, 1)
    world.worker().write_and_end(0, "0")
    bad = rows("x", partition=[9])

    def copy() -> None:
        worker = world.worker(deadLetterTopic=dead)
        worker.end(worker.write(1, batches=[rows("a"), bad, bad], attempt=1))

    slow = world.worker(deadLetterTopic=dead)
    written = slow.write(1, batches=then(rows("a"), bad, copy, bad, bad))
    assert written.progress.row == world.row()
    assert world.committed == ["0", "a"]
    assert committed(servers, TopicPartition(dead, 0)) == ["x", "x"]


# --- batch writes --------------------------------------------------------------------------------
def what_a_producer_left_open_is_seen_in_its_partition(servers: str) -> None:
    topic = new_topic(servers, 2)
    with client_of(servers) as client:
        producer = TransactionalProducer(client, new_id())
        producer.init_transactions()

        def seen() -> dict[int, int]:
            return open_since(client, producer.identity.producer_id, topic)

        def write(partition: int, *values: str) -> None:
            put(producer, TopicPartition(topic, partition), *values)
            producer.flush()

        assert seen() == {}
        producer.begin_transaction()
        write(1, "a", "b")
        assert seen() == {1: 0}
        producer.commit_transaction()
        eventually(lambda: not seen(), 30, "the marker")
        producer.begin_transaction()
        write(0, "c")
        write(1, "d")
        write(1, "e")
        assert seen() == {0: 0, 1: 3}
        TransactionalProducer(client, producer.transactional_id).init_transactions()
        assert seen() == {}
        assert open_since(client, producer.identity.producer_id + 1, topic) == {}


def a_batch_write_ends_its_tasks_itself(servers: str) -> None:
    """An attempt that comes later verifies; one that comes after the end writes nothing."""
    world = World(servers)
    uuid = new_id()
    written = world.worker().write_batch(uuid, "a", "b").progress
    assert written.opened is None
    assert (written.row.run_id, written.before) == (uuid, None)
    again = world.worker().write_batch(uuid, "a", "b", attempt=1).progress
    assert again.row == again.before == written.row
    group = f"{world.prefix}.{uuid}.sink"
    world.store(f"{group}.run", RunMark(0, uuid, 1, ()).to_offset())
    with client_of(servers) as client:
        delete_group(client, f"{group}.0")
    with pytest.raises(ExactlyOnceRefused, match=r"task 0 of a batch write: .* has ended without"):
        world.worker().write_batch(uuid, "a", "b", attempt=2)
    assert world.committed == ["a", "b"]


CASES: tuple[Callable[[str], None], ...] = (
    only_the_first_batch_of_a_run_is_left_to_the_driver,
    a_worker_that_holds_the_id_asks_for_no_new_epoch,
    a_task_without_rows_stores_its_row,
    an_index_that_was_absent_goes_on,
    one_batch_goes_to_several_topics,
    a_repeated_batch_is_verified,
    other_rows_than_those_committed_are_refused,
    a_batch_that_was_passed_is_refused,
    a_copy_of_the_query_is_refused,
    a_batch_under_another_topic_is_refused,
    another_programs_position_is_refused,
    a_fenced_attempt_takes_over_the_result,
    a_copy_lets_the_other_attempt_finish,
    an_attempt_that_is_fenced_by_one_that_dies_gives_up,
    an_attempt_that_is_fenced_and_left_alone_gives_up_soon,
    an_attempt_of_an_older_run_stops,
    a_copy_that_wakes_after_the_commit_writes_nothing,
    a_copy_that_wakes_between_two_looks_writes_nothing,
    a_task_of_a_stopped_run_that_wakes_late_ends_nothing,
    a_worker_that_holds_the_id_in_vain_ends_nothing,
    a_worker_that_lost_the_id_meanwhile_asks_again,
    a_dead_attempt_holds_nobody_back,
    what_fails_is_aborted_at_once,
    a_record_that_the_topic_refuses_fails_the_task,
    a_transaction_that_takes_too_long_says_so,
    a_time_out_that_the_broker_does_not_allow_is_explained,
    dead_letters_are_in_the_transaction,
    an_attempt_that_is_fenced_while_it_writes_letters_waits_too,
    what_a_producer_left_open_is_seen_in_its_partition,
    a_batch_write_ends_its_tasks_itself,
)
