"""Cases in which attempts of one task of the exactly-once sink meet each other, on any broker.

The broker has to look for expired transactions every 200 ms.
"""

from collections.abc import Callable, Iterable

import pytest

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.spark.sink.exactly_once import task
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from pyspark_klog.spark.sink.exactly_once.task import TaskResult
from pyspark_klog.spark.workers import clients
from pyspark_klog.spark.workers.clients import client_for
from tests.support.spark.sink_workers import RUN_1, RUN_2, Died, Worker, die, rows, then
from tests.support.spark.sink_world import World


def a_fenced_attempt_takes_over_the_result(servers: str) -> None:
    """A copy of the task was quicker: its row is this attempt's, and both succeed."""
    world = World(servers)
    world.worker().write_and_end(0, "0")
    slow = world.worker()

    def copy(batch_id: int) -> None:
        worker = world.worker()
        written = worker.write(batch_id, "a", "b", attempt=1)
        # The copy knows only that another attempt has used the id before.
        worker.end_transaction(written)

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
    """A copy waits for the other attempt's end, because its InitProducerId would fence that one."""
    world = World(servers)
    one, copy = world.worker(), world.worker()
    written = one.write(0, "0")

    def pause(_: BlockingClient, wait_ms: int) -> None:
        assert wait_ms > 0
        if world.row_now() is None:
            one.end_transaction(written)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockingClient, "sleep_ms", pause)
        found = copy.write(0, "0", attempt=1)
    assert found.progress.row == written.progress.row
    assert found.progress.opened is None
    assert world.committed == ["0"]


def a_copy_waits_longer_for_one_that_has_handed_over(servers: str) -> None:
    """Spark will hear of that one and end the copy, or the driver ends the transaction."""
    world = World(servers)
    one, copy = world.worker(), world.worker()
    written = one.write(0, "0")
    client = client_for(one.options.client)
    began_ms, pause = client.now_ms(), BlockingClient.sleep_ms

    def commit_late(pausing: BlockingClient, wait_ms: int) -> None:
        pause(pausing, wait_ms)
        if client.now_ms() - began_ms > 4 * task._PATIENCE_MS and world.row_now() is None:
            one.end_transaction(written)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockingClient, "sleep_ms", commit_late)
        found = copy.write(0, "0", attempt=1)
    assert found.progress.row == written.progress.row
    assert world.committed == ["0"]


def a_copy_takes_the_id_of_one_that_died_at_its_end(servers: str) -> None:
    world = World(servers)
    world.worker().write(0, "0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "_PATIENCE_AT_END_MS", 400)
        worker = world.worker()
        worker.end_transaction(worker.write(0, "0", attempt=1))
    assert world.committed == ["0"]


def an_attempt_whose_id_is_taken_before_its_next_check_takes_over_the_result(
    servers: str,
) -> None:
    """A copy has left its transaction open for the driver, so the copy's row is not visible yet.
    The slow attempt must not wait for the row as if the transaction were just being ended."""
    world = World(servers)
    world.worker().write_and_end(0, "0")
    slow, copy = world.worker(kafka_default_api_timeout_ms=5_000), world.worker()
    init, pause = TransactionalProducer.init_transactions, BlockingClient.sleep_ms
    handed_over: list[TaskResult] = []

    def then_the_copy(producer: TransactionalProducer) -> None:
        init(producer)
        if not handed_over:
            patch.setattr(TransactionalProducer, "init_transactions", init)
            handed_over.append(copy.write(1, "a", attempt=1))

    def end_copy(pausing: BlockingClient, wait_ms: int) -> None:
        pause(pausing, wait_ms)
        if handed_over and world.row_now() == handed_over[0].progress.before:
            copy.end_transaction(handed_over[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionalProducer, "init_transactions", then_the_copy)
        patch.setattr(BlockingClient, "sleep_ms", end_copy)
        written = slow.write(1, "a")
    assert written.progress.row == world.row()
    assert written.progress.opened is None
    assert world.committed == ["0", "a"]


def an_attempt_that_is_fenced_by_one_that_dies_gives_up(servers: str) -> None:
    """The attempt gives up after the transaction's time-out; a third attempt goes on then."""
    world = World(servers)
    world.worker().write_and_end(0, "0")
    slow = world.worker(kafka_transaction_timeout_ms=1_500)

    def copy() -> None:
        with pytest.raises(Died):
            world.worker().write(1, batches=then(rows("a"), die), attempt=1)

    with pytest.raises(ExactlyOnceRefused, match="and has not committed: it died, or"):
        slow.write(1, batches=then(rows("a"), copy, rows("b")))
    worker = world.worker()
    worker.end_transaction(worker.write(1, "a", "b", attempt=2))
    assert world.committed == ["0", "a", "b"]


def a_fenced_attempt_without_a_successor_gives_up_soon(servers: str) -> None:
    """If no attempt writes under the id, the time-out of its transaction is not waited for."""
    world = World(servers)
    world.worker().write_and_end(0, "0")
    slow = world.worker()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "_IDLE_MS", 500)
        with pytest.raises(ExactlyOnceRefused, match="and has not committed: it died, or"):
            slow.write(1, batches=then(rows("a"), world.fence_producer, rows("b")))
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
    """The copy reads the row when it has its first rows, and does not take the id."""
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
    """After InitProducerId the copy reads the row again, and finds the batch written."""
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
                        worker.end_transaction(written)
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
    # An attempt that takes the id afterwards keeps its epoch, and must not commit.
    written = world.worker().write(2, batches=then(world.fence_producer, rows("late")))
    assert written.progress.opened is not None
    late.end_transaction(written, commit=False)
    assert world.committed == ["0", "1"]


def a_worker_that_holds_the_id_in_vain_ends_nothing(servers: str) -> None:
    """The same where the worker had the id already: it is fenced, or asks and leaves it open."""
    world = World(servers)
    holder = world.worker(kafka_transaction_timeout_ms=1_000)
    holder.write_and_end(0, "0")
    assert holder.write(1, "1").progress.opened is None
    version = clients.reused_producer(holder.options.client, world.group()).producer.version
    if version == 2:
        with pytest.raises(ExactlyOnceRefused, match="and has not committed: it died, or"):
            holder.write(2, batches=then(world.fence_producer, rows("late")))
    else:
        written = holder.write(2, batches=then(world.fence_producer, rows("late")))
        holder.end_transaction(written, commit=False)
    assert world.committed == ["0", "1"]


def a_worker_that_lost_the_id_meanwhile_asks_again(servers: str) -> None:
    """Another worker wrote the batch before; this one's producer is of older days."""
    world = World(servers)
    one, other = world.worker(), world.worker()
    one.write_and_end(0, "0")
    one.write(1, "1")
    other.write(2, "2")
    # Until the markers of batch 2 are written, this worker sees its own row of batch 1 as the last.
    world.is_at(2)
    assert one.write(3, "3").progress.opened is None
    assert world.committed == ["0", "1", "2", "3"]


ATTEMPTS: tuple[Callable[[str], None], ...] = (
    a_fenced_attempt_takes_over_the_result,
    a_copy_lets_the_other_attempt_finish,
    a_copy_waits_longer_for_one_that_has_handed_over,
    a_copy_takes_the_id_of_one_that_died_at_its_end,
    an_attempt_whose_id_is_taken_before_its_next_check_takes_over_the_result,
    an_attempt_that_is_fenced_by_one_that_dies_gives_up,
    a_fenced_attempt_without_a_successor_gives_up_soon,
    an_attempt_of_an_older_run_stops,
    a_copy_that_wakes_after_the_commit_writes_nothing,
    a_copy_that_wakes_between_two_looks_writes_nothing,
    a_task_of_a_stopped_run_that_wakes_late_ends_nothing,
    a_worker_that_holds_the_id_in_vain_ends_nothing,
    a_worker_that_lost_the_id_meanwhile_asks_again,
)
