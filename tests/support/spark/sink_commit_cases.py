"""Cases for the driver of the exactly-once sink on any broker: run on klog and on Apache Kafka.

The broker has to look for expired transactions every 200 ms.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from pyspark_klog.client.admin.groups import (
    CommittedOffset,
    commit_offsets,
    committed_offsets,
    delete_group,
    list_group_ids,
)
from pyspark_klog.client.admin.sink_progress import ProgressRow, RunMark
from pyspark_klog.client.admin.transaction_listing import (
    ONGOING,
    fence_producers,
    list_transactions,
)
from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.client.errors import ProducerFenced, ProducerUnusable
from pyspark_klog.client.transactions.producer import end_transaction
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.options.exactly_once import MicroBatch
from pyspark_klog.spark.sink.exactly_once import sink_groups
from pyspark_klog.spark.sink.exactly_once.commit import abort_batch, commit_batch, end_batch_write
from pyspark_klog.spark.sink.exactly_once.decisions_of_commit import DAY_MS
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from pyspark_klog.spark.sink.exactly_once.names import SinkId
from pyspark_klog.spark.sink.exactly_once.progress import TaskProgress
from pyspark_klog.spark.sink.exactly_once.sink_groups import SinkGroups
from tests.support.client.cases import client_of, new_topic
from tests.support.client.transaction_cases import (
    committed,
    new_id,
    producer_of,
    put,
    read_committed,
)
from tests.support.spark.sink_workers import QUERY, RUN_1, RUN_2, Worker

RUN_3 = "22222222-2222-2222-2222-222222222223"
_FENCE_MS = 60_000


class World:
    """A topic of one partition, a sink of its own, and its driver."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.topic = new_topic(servers, 1)
        self.partition = TopicPartition(self.topic, 0)
        self.prefix = new_id()
        self.sink = SinkId(self.prefix, QUERY, "sink")
        self.options = {"topic": self.topic, "exactlyOncePrefix": self.prefix}

    def worker(self, **options: str | int) -> Worker:
        return Worker(self.servers, **{**self.options, **options})

    def tasks(
        self, batch_id: int, *parts: Sequence[str], run_id: str = RUN_1, **options: str | int
    ) -> list[TaskProgress]:
        """Each task of a batch writes its part, in a new worker."""
        return [
            self.worker(**options).write(batch_id, *part, run_id=run_id, index=index).progress
            for index, part in enumerate(parts)
        ]

    def commit(self, batch_id: int, written: list[TaskProgress], **options: str | int) -> None:
        found = self.worker(**options).options
        assert found.exactly_once is not None
        commit_batch(found.client, found.exactly_once, batch_id, written)

    def batch(
        self, batch_id: int, *parts: Sequence[str], run_id: str = RUN_1, **options: str | int
    ) -> list[TaskProgress]:
        """Write and commit a whole micro-batch."""
        written = self.tasks(batch_id, *parts, run_id=run_id)
        self.commit(batch_id, written, **options)
        return written

    def refused(
        self, text: str, batch_id: int, written: list[TaskProgress], **options: str | int
    ) -> None:
        """Expect that the batch is refused, and that no further row is visible."""
        with client_of(self.servers) as client:
            open_before = {each for each in list_transactions(client) if each.state == ONGOING}
            with pytest.raises(ExactlyOnceRefused, match=text):
                self.commit(batch_id, written, **options)
            kept = {t.opened.transactional_id for t in written if t.opened is not None}
            is_open = {each for each in list_transactions(client) if each.state == ONGOING}
            assert {each for each in open_before if each.transactional_id in kept} <= is_open

    def plant(self, index: int, row: ProgressRow, topic: str | None = None) -> None:
        """Store a row as another run of the query would."""
        self.store(self.sink.task(index), row.to_offset(), topic)

    def store(self, group: str, position: CommittedOffset, topic: str | None = None) -> None:
        with client_of(self.servers) as client:
            commit_offsets(client, group, {TopicPartition(topic or self.topic, 0): position})

    def mark(self) -> RunMark | None:
        with client_of(self.servers) as client:
            return SinkGroups(client, self.sink, self.topic).mark()

    def fence_task(self, index: int) -> None:
        """Another attempt takes the id of a task."""
        with client_of(self.servers) as client:
            fence_producers(client, self.sink.task(index), transaction_timeout_ms=_FENCE_MS)

    @property
    def committed(self) -> list[str]:
        return sorted(committed(self.servers, self.partition))


def _row(batch_id: int, run_id: str = RUN_2, age_ms: int = 0) -> ProgressRow:
    return ProgressRow(batch_id, run_id, 1, 1, 7, epoch_ms() - age_ms)


@contextmanager
def _nothing_is_listed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("list_transactions", "list_group_ids"):
            patch.setattr(sink_groups, name, lambda client: [])
        yield


# --- the client's side ---------------------------------------------------------------------------
def transactional_ids_are_listed_with_their_states(servers: str) -> None:
    """Fencing the listed id aborts its transaction, and its producer cannot go on."""
    partition, name = TopicPartition(new_topic(servers, 1), 0), new_id()
    with producer_of(servers, name) as producer, client_of(servers) as client:
        producer.begin_transaction()
        put(producer, partition, "lost")
        producer.flush()
        (found,) = [t for t in list_transactions(client) if t.transactional_id == name]
        assert (found.state, found.producer_id) == (ONGOING, producer.identity.producer_id)
        identity = fence_producers(client, name, transaction_timeout_ms=_FENCE_MS)
        assert identity.producer_epoch > producer.identity.producer_epoch
        with pytest.raises(ProducerFenced):
            producer.commit_transaction()
        (found,) = [t for t in list_transactions(client) if t.transactional_id == name]
        assert found.state != ONGOING
    assert committed(servers, partition) == []


def groups_are_listed_by_their_ids(servers: str) -> None:
    """`list_group_ids` returns the ids and asks for no other facts about the groups."""
    topic = new_topic(servers, 1)
    with client_of(servers) as client:
        commit_offsets(client, f"g-{topic}", {TopicPartition(topic, 0): CommittedOffset(1)})
        assert f"g-{topic}" in list_group_ids(client)


def a_position_is_retained_for_the_given_time(servers: str) -> None:
    """A retention comes with versions 2 to 4 of OffsetCommit, which every broker still has."""
    topic = new_topic(servers, 1)
    at = {TopicPartition(topic, 0): CommittedOffset(4, metadata="kept")}
    with client_of(servers) as client:
        commit_offsets(client, f"g-{topic}", at, retention_ms=10 * 365 * DAY_MS)
        assert committed_offsets(client, f"g-{topic}") == at


def the_next_epoch_is_known(servers: str) -> None:
    """`ProgressRow.next_epoch` is the next transaction's epoch: one more than the last one's below
    transaction.version 2, two more from version 2 on; more if another attempt took the id."""
    world = World(servers)
    world.batch(0, ["a"])
    (first,) = world.tasks(1, ["b"])
    assert first.opened is None
    (second,) = world.tasks(2, ["c"])
    assert second.opened is None and second.row.producer_id == first.row.producer_id
    world.fence_task(0)
    (third,) = world.tasks(3, ["d"])
    assert third.opened is not None  # the task cannot be sure, so the driver ends the transaction
    world.commit(3, [third])
    assert world.tasks(4, ["e"])[0].opened is None
    assert world.committed == ["a", "b", "c", "d", "e"]


# --- the normal course ---------------------------------------------------------------------------
def the_first_batch_of_a_run_is_visible_after_its_commit(servers: str) -> None:
    """Later ones when their tasks have ended them: no broker is asked then."""
    world = World(servers)
    written = world.tasks(0, ["a", "b"], ["c"], [])
    assert all(task.opened is not None for task in written)
    assert read_committed(servers, world.partition) == []
    world.commit(0, written)
    assert world.committed == ["a", "b", "c"]
    mark = world.mark()
    assert mark is not None and mark[:2] == (0, RUN_1)
    again = world.tasks(1, ["d"], ["e"])
    nobody = Worker("127.0.0.1:1", **world.options).options
    assert nobody.exactly_once is not None
    commit_batch(nobody.client, nobody.exactly_once, 1, again)
    assert world.committed == ["a", "b", "c", "d", "e"]


def more_tasks_than_before_are_a_matter_for_the_driver(servers: str) -> None:
    """Within a run, new tasks leave their transactions open; a run with fewer tasks has none."""
    world = World(servers)
    world.batch(0, ["a"])
    written = world.tasks(1, ["b"], ["c"])
    assert [task.opened is None for task in written] == [True, False]
    world.commit(1, written)
    assert [task.opened for task in world.batch(2, ["d"])] == [None]
    assert [task.opened for task in world.batch(3, ["e"], ["f"])] == [None, None]
    assert world.committed == ["a", "b", "c", "d", "e", "f"]


def a_batch_without_ended_transactions_may_be_split_differently(servers: str) -> None:
    """The driver died before commit(): the next run has other tasks, and fences the last ones."""
    world = World(servers)
    lost = world.tasks(0, ["a"], ["b"], ["c"], ["d"])
    world.batch(0, ["a", "b"], ["c", "d"], run_id=RUN_2)
    with client_of(servers) as client:
        for task in lost:
            assert task.opened is not None
            with pytest.raises(ProducerUnusable):
                end_transaction(client, task.opened, commit=True)
    assert world.committed == ["a", "b", "c", "d"]


def a_batch_that_was_ended_in_part_is_completed(servers: str) -> None:
    """The driver died between two ends: the repetition verifies one part and writes the other."""
    world = World(servers)
    lost = world.tasks(0, ["a"], ["b"])
    with client_of(servers) as client:
        assert lost[0].opened is not None
        end_transaction(client, lost[0].opened, commit=True)
    written = world.batch(0, ["a"], ["b"], run_id=RUN_2)
    assert [task.opened is None for task in written] == [True, False]
    # A run that only verified may be followed by another one.
    world.batch(0, ["a"], ["b"], run_id=RUN_3)
    mark = world.mark()
    assert mark is not None and mark[:2] == (0, RUN_3) and mark.earlier_run_ids == (RUN_2,)
    world.batch(1, ["c"], ["d"], run_id=RUN_3)
    assert world.committed == ["a", "b", "c", "d"]


def an_older_run_that_goes_on_ends_nothing(servers: str) -> None:
    """The older run's driver reaches its commit() after the newer run has written."""
    world = World(servers)
    old = world.tasks(0, ["a"], ["b"], ["c"])
    world.batch(0, ["a", "b"], ["c"], run_id=RUN_2)
    world.refused("two queries run with one checkpoint", 0, old)
    assert world.committed == ["a", "b", "c"]


def a_task_of_an_older_run_that_wakes_late_ends_nothing(servers: str) -> None:
    """The late task finds the row of its own run, at an index that the newer run does not have."""
    world = World(servers)
    world.batch(0, ["a"], ["b"], ["c"])
    world.batch(1, ["d", "e"], ["f"], run_id=RUN_2)
    late = world.worker().write(1, "f", index=2).progress
    assert late.opened is not None and late.before is not None and late.before.run_id == RUN_1
    world.batch(2, ["g"], ["h"], run_id=RUN_2)
    # The late task's open transaction holds back readers of committed records until it ends.
    assert sorted(read_committed(servers, world.partition)) == ["a", "b", "c", "d", "e", "f"]
    with client_of(servers) as client:
        end_transaction(client, late.opened, commit=False)
    assert world.committed == ["a", "b", "c", "d", "e", "f", "g", "h"]


# --- refusals ------------------------------------------------------------------------------------
def a_batch_that_is_split_otherwise_is_refused(servers: str) -> None:
    """The batch's tasks committed themselves, and the same rows come with one task less."""
    world = World(servers)
    world.batch(0, ["a"], ["b"], ["c"])
    world.tasks(1, ["d"], ["e"], ["f"])
    written = world.tasks(1, ["d"], ["e"], run_id=RUN_2)
    text = f"written before, by run {RUN_1} with 3 tasks or more, and is repeated with 2 now"
    world.refused(text, 1, written)
    world.batch(1, ["d"], ["e"], ["f"], run_id=RUN_2)
    assert world.committed == ["a", "b", "c", "d", "e", "f"]


def a_group_that_no_broker_lists_is_found(servers: str) -> None:
    """The group's coordinator moves while brokers are asked: the old one no longer has the group,
    the new one does not have it yet."""
    world = World(servers)
    world.batch(0, ["a"], ["b"], ["c"])
    world.tasks(1, ["d"], ["e"], ["f"])
    written = world.tasks(1, ["d"], ["e"], run_id=RUN_2)
    with _nothing_is_listed():
        world.refused(f"written before, by run {RUN_1} with 3 tasks or more", 1, written)
    assert world.committed == ["a", "b", "c", "d", "e", "f"]


def a_transaction_that_no_broker_lists_is_committed(servers: str) -> None:
    world = World(servers)
    written = world.tasks(0, ["a"], ["b"])
    with _nothing_is_listed():
        world.commit(0, written)
    assert world.committed == ["a", "b"]


def a_checkpoint_that_is_older_than_the_rows_is_refused(servers: str) -> None:
    """The commit is refused even if only a task beyond the last one has the newer row."""
    world = World(servers)
    written = world.tasks(3, ["a"])
    world.plant(4, _row(9))
    world.refused("task 4 has written micro-batch 9 already .* checkpoint is older", 3, written)


def a_row_that_changed_meanwhile_is_refused(servers: str) -> None:
    """Another run of the query, or a user who deletes groups, has changed the row."""
    world = World(servers)
    world.batch(0, ["a"], ["b"])
    written = world.tasks(1, ["c"], ["d"], run_id=RUN_2)
    world.plant(1, _row(0, RUN_3))
    world.refused(f"row of task 1 was written by run {RUN_3}", 1, written)
    world = World(servers)
    world.batch(0, ["a"], ["b"])
    world.tasks(1, ["c"], ["d"])
    written = world.tasks(1, ["c"], ["d"], run_id=RUN_2)
    with client_of(servers) as client:
        delete_group(client, world.sink.task(1))
    world.refused("the row of task 1, which was there when the task looked, is gone", 1, written)


def a_copy_of_the_checkpoint_is_refused(servers: str) -> None:
    """The copy's batch is refused, and so is the original query's."""
    world = World(servers)
    world.batch(0, ["a"])
    written = world.tasks(5, ["b"], ["c"])
    world.plant(7, _row(3, RUN_2))
    world.refused(f"task 7 has a row of run {RUN_2} for micro-batch 3, though this", 5, written)
    world = World(servers)
    world.batch(0, ["a"])
    world.batch(1, ["b"], run_id=RUN_2)
    written = world.tasks(2, ["c"], ["d"], run_id=RUN_1)
    world.refused(f"run {RUN_2} has taken the query over at micro-batch 1", 2, written)


def absent_rows_are_refused_after_the_first_batch(servers: str) -> None:
    """The rows may have existed or not, so the commit is refused unless an option allows it."""
    world = World(servers)
    written = world.tasks(7, ["a"], ["b"])
    text = "rows of 2 of 2 tasks are absent .task 0 has none either.*set option exactlyOnceMissing"
    world.refused(text, 7, written)
    world.commit(7, written, exactlyOnceMissing="continue")
    assert world.committed == ["a", "b"]
    # From now on this run needs no row: it repeats nothing.
    with client_of(servers) as client:
        for index in range(2):
            delete_group(client, world.sink.task(index))
    world.batch(8, ["c"], ["d"])
    assert world.committed == ["a", "b", "c", "d"]


def a_row_of_task_0_that_is_old_is_not_trusted(servers: str) -> None:
    """A young one shows that absent rows were never there."""
    world = World(servers)
    world.plant(0, _row(6, age_ms=6 * DAY_MS + 60_000))
    written = world.tasks(7, ["a"], ["b"])
    text = r"rows of 1 of 2 tasks are absent .that of task 0 is 6\.0 days old.* after 7\.0 days"
    world.refused(text, 7, written)
    world = World(servers)
    world.plant(0, _row(6, age_ms=5 * DAY_MS))
    world.batch(7, ["a"], ["b"])
    assert world.committed == ["a", "b"]


def the_first_batch_is_not_new_after_an_old_mark(servers: str) -> None:
    """The batch was ended in part so long ago that its rows have expired."""
    world = World(servers)
    written = world.tasks(0, ["a"])
    world.store(world.sink.mark, RunMark(0, RUN_2, epoch_ms() - 8 * DAY_MS).to_offset())
    world.refused("rows of 1 of 1 tasks are absent", 0, written)
    world.store(world.sink.mark, RunMark(0, RUN_2, epoch_ms() - DAY_MS).to_offset())
    world.commit(0, written)
    assert world.committed == ["a"]


def a_row_under_another_topic_is_refused(servers: str) -> None:
    """exactlyOnceTopic was changed while the batch was being written; older rows do not matter."""
    world = World(servers)
    other = new_topic(servers, 1)
    written = world.tasks(0, ["a"])
    world.plant(3, _row(0), other)
    text = f"under topic {other}, and this run stores rows under {world.topic}: set option"
    world.refused(text, 0, written)
    with client_of(servers) as client:
        delete_group(client, world.sink.task(3))
    world.commit(0, written)


def a_position_of_somebody_else_is_refused(servers: str) -> None:
    """A program uses the sink's group, or the group of its mark."""
    world = World(servers)
    written = world.tasks(0, ["a"])
    world.store(world.sink.task(2), CommittedOffset(17, metadata="mine"))
    world.refused("17 with metadata 'mine'; expected metadata that begins", 0, written)
    world = World(servers)
    written = world.tasks(0, ["a"])
    world.store(world.sink.mark, CommittedOffset(18, metadata="mine"))
    world.refused("18 with metadata 'mine'", 0, written)


def a_transaction_that_is_not_open_any_more_fails_the_batch(servers: str) -> None:
    """The commit ends no transaction, and the repeated batch is written."""
    world = World(servers)
    written = world.tasks(0, ["a"], ["b"])
    world.fence_task(1)
    world.refused("the transaction of task 1 is not open any more", 0, written)
    assert world.mark() is None
    world.batch(0, ["a", "b"], run_id=RUN_2)
    assert world.committed == ["a", "b"]


# --- failures, and batch writes ------------------------------------------------------------------
def an_abort_lets_readers_go_on(servers: str) -> None:
    """Transactions that tasks left open are aborted; transactions that have ended stay."""
    world = World(servers)
    world.batch(0, ["a"])
    written = world.tasks(1, ["b"], ["c"])
    abort_batch(world.worker().options.client, written)
    abort_batch(world.worker().options.client, written)
    assert world.committed == ["a", "b"]
    world.batch(1, ["b"], ["c"], run_id=RUN_2)
    assert world.committed == ["a", "b", "c"]


def a_batch_write_leaves_no_group(servers: str) -> None:
    """A batch write leaves no group of a task behind, and a late attempt writes nothing."""
    world = World(servers)
    worker, uuid = world.worker(), new_id()
    written = worker.write_batch(uuid, "a").progress
    assert written.opened is None
    exactly_once = worker.options.exactly_once
    assert exactly_once is not None
    own = exactly_once._replace(micro_batch=MicroBatch.of_batch_write(uuid))
    end_batch_write(worker.options.client, own, [written])
    sink = SinkId(world.prefix, uuid, "sink")
    with client_of(servers) as client:
        groups = [group for group in list_group_ids(client) if uuid in group]
    assert groups == [sink.mark]
    with pytest.raises(ExactlyOnceRefused, match="has ended without this attempt"):
        world.worker().write_batch(uuid, "a")
    assert world.committed == ["a"]


CASES: tuple[Callable[[str], None], ...] = (
    transactional_ids_are_listed_with_their_states,
    groups_are_listed_by_their_ids,
    a_position_is_retained_for_the_given_time,
    the_next_epoch_is_known,
    the_first_batch_of_a_run_is_visible_after_its_commit,
    more_tasks_than_before_are_a_matter_for_the_driver,
    a_batch_without_ended_transactions_may_be_split_differently,
    a_batch_that_was_ended_in_part_is_completed,
    an_older_run_that_goes_on_ends_nothing,
    a_task_of_an_older_run_that_wakes_late_ends_nothing,
    a_batch_that_is_split_otherwise_is_refused,
    a_group_that_no_broker_lists_is_found,
    a_transaction_that_no_broker_lists_is_committed,
    a_checkpoint_that_is_older_than_the_rows_is_refused,
    a_row_that_changed_meanwhile_is_refused,
    a_copy_of_the_checkpoint_is_refused,
    absent_rows_are_refused_after_the_first_batch,
    a_row_of_task_0_that_is_old_is_not_trusted,
    the_first_batch_is_not_new_after_an_old_mark,
    a_row_under_another_topic_is_refused,
    a_position_of_somebody_else_is_refused,
    a_transaction_that_is_not_open_any_more_fails_the_batch,
    an_abort_lets_readers_go_on,
    a_batch_write_leaves_no_group,
)
