"""Cases for a task of the exactly-once sink on any broker: run on klog and on Apache Kafka.

The broker has to look for expired transactions every 200 ms.
"""

from collections.abc import Callable
from itertools import pairwise

import pyarrow as pa
import pytest

from pyspark_klog.client.admin.groups import (
    CommittedOffset,
    delete_group,
)
from pyspark_klog.client.admin.sink_progress import RunMark
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from pyspark_klog.spark.workers import clients
from tests.support.client.cases import client_of, new_topic
from tests.support.client.transaction_cases import committed, new_id, read_committed
from tests.support.spark.sink_attempt_cases import ATTEMPTS
from tests.support.spark.sink_failure_cases import FAILURES
from tests.support.spark.sink_workers import QUERY, RUN_1, RUN_2, Worker, rows
from tests.support.spark.sink_world import World


# --- the normal course ---------------------------------------------------------------------------
def only_the_first_batch_of_a_run_is_left_to_the_driver(servers: str) -> None:
    """Then each task ends its transaction itself, in the same worker or another."""
    world = World(servers)
    one, other = world.worker(), world.worker()
    first = one.write(0, "a", "b")
    assert first.progress.before is None
    assert read_committed(servers, world.partition) == []
    one.end_transaction(first)
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
    """From transaction.version 2 on. Below it a worker asks, as a late EndTxn could end a batch."""
    world = World(servers)
    worker = world.worker()
    worker.write_and_end(0, "0")
    epochs = [worker.write(n, str(n)).progress.row.next_epoch for n in range(1, 5)]
    assert [b - a for a, b in pairwise(epochs)] == [1, 1, 1]
    held = clients.reused_producer(worker.options.client, world.group())
    expected = 1 if held.producer.version == 2 else 0
    assert epochs[-1] - held.producer.identity.producer_epoch == 1
    # A second attempt may meet an id that an attempt before it has taken.
    written = worker.write(5, "5", attempt=1).progress
    assert written.opened is None
    assert written.row.next_epoch - epochs[-1] == 1 + expected
    assert world.committed == [str(n) for n in range(6)]


def a_task_without_rows_stores_its_row(servers: str) -> None:
    """The stored row lets a batch be recognised that is repeated with other tasks."""
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
        ExactlyOnceRefused, match="option exactlyOnceTopic is no:where; expected the name of"
    ):
        world.worker(exactlyOnceTopic="no:where").write(0, "x")
    worker = Worker(servers, exactlyOncePrefix=world.prefix, exactlyOnceTopic=world.topic)
    given = rows("a", "b", "c", topic=[second, world.topic, second], partition=[1, 0, 0])
    written = worker.write(0, batches=[given])
    places = [TopicPartition(second, 1), world.partition, TopicPartition(second, 0)]
    assert [read_committed(servers, place) for place in places] == [[], [], []]
    worker.end_transaction(written)
    assert [committed(servers, place) for place in places] == [["a"], ["b"], ["c"]]
    assert written.progress.row == world.row()


def a_partitioner_of_ones_own_chooses(servers: str) -> None:
    """A repeated batch is recognised without asking the partitioner."""
    world = World(servers)
    wide = new_topic(servers, 3)
    own = "tests.support.partitioners:last_but_keyed"
    for _ in range(2):
        worker = world.worker(topic=wide, kafka_partitioner_class=own)
        written = worker.write(0, "0", "2", "4")
        if written.progress.opened is not None:
            worker.end_transaction(written)
    assert committed(servers, TopicPartition(wide, 2)) == ["0", "2", "4"]


# --- repeated batches ----------------------------------------------------------------------------
def a_repeated_batch_is_verified(servers: str) -> None:
    """By another attempt or by the next run; with rows in any order and split into batches."""
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
    """An option keeps the committed rows instead, but never if the number of rows differs."""
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


def an_ignored_column_timestamp_may_differ_when_a_batch_is_repeated(servers: str) -> None:
    """The first try may be that of a release that wrote the column as the record's timestamp."""
    firsts: tuple[dict[str, str], ...] = ({}, {"timestampColumn": "timestamp"})
    for first in firsts:
        world = World(servers)
        at = [1_500_000_000_000_000, 1_500_000_000_000_001]
        written = world.worker(**first).write(0, batches=[_timed(at)])
        world.worker().end_transaction(written)
        again = world.worker().write(0, run_id=RUN_2, batches=[_timed(at)])
        assert again.progress.row == world.row()
        other = [_timed([at[0], None])]
        if not first:
            world.worker().write(0, run_id=RUN_2, batches=other)
            continue
        for worker in (world.worker(), world.worker(**first)):
            with pytest.raises(ExactlyOnceRefused, match=r"2 rows with .* committed 2 rows"):
                worker.write(0, run_id=RUN_2, batches=other)


def _timed(at: list[int | None]) -> pa.RecordBatch:
    times = pa.array(at, pa.timestamp("us", "UTC"))
    return rows(*(f"{n}" for n in range(len(at)))).append_column("timestamp", times)


def a_batch_that_was_passed_is_refused(servers: str) -> None:
    """The checkpoint was set back, or a copy of it runs. The writing run is not disturbed."""
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


# --- batch writes --------------------------------------------------------------------------------
def a_batch_write_ends_its_tasks_itself(servers: str) -> None:
    """A later attempt verifies the rows; an attempt after the end writes nothing."""
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
    a_partitioner_of_ones_own_chooses,
    a_repeated_batch_is_verified,
    other_rows_than_those_committed_are_refused,
    an_ignored_column_timestamp_may_differ_when_a_batch_is_repeated,
    a_batch_that_was_passed_is_refused,
    a_copy_of_the_query_is_refused,
    a_batch_under_another_topic_is_refused,
    another_programs_position_is_refused,
    a_batch_write_ends_its_tasks_itself,
    *ATTEMPTS,
    *FAILURES,
)
