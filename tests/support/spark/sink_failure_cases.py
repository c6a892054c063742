"""Cases in which a task of the exactly-once sink fails, or meets a failed one, on any broker.

The broker has to look for expired transactions every 200 ms.
"""

from collections.abc import Callable

import pytest

from pyspark_klog.client.admin.open_transactions import find_open_transactions
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.layout import INT16_MAX
from pyspark_klog.spark.errors import SchemaError
from pyspark_klog.spark.sink.dead_letters import DeadLettersFailed
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from pyspark_klog.spark.workers.clients import client_for
from tests.support.client.cases import client_of, new_topic
from tests.support.client.transaction_cases import committed, new_id, put, read_committed
from tests.support.eventually import eventually
from tests.support.spark.sink_workers import Died, die, rows, then
from tests.support.spark.sink_world import World


def _fail() -> None:
    raise ValueError("a user's function failed")


def a_dead_attempt_holds_nobody_back(servers: str) -> None:
    """A dead attempt's transaction is open: the next attempt ends it and waits for no time-out."""
    world = World(servers)
    world.worker().write_and_end(0, "0")
    with pytest.raises(Died):
        world.worker().write(1, batches=then(rows("a"), world.sent, die))
    worker = world.worker()
    written = worker.write(1, "a", attempt=1)
    assert written.progress.before == world.row_now()
    # Somebody has had the id since the row before: the driver compares.
    worker.end_transaction(written)
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
    """The task's error contains the text of the refusal."""
    world = World(servers, max_message_bytes="2000")
    with pytest.raises(ExactlyOnceRefused, match=r"task 0 of micro-batch 0: .*larger than") as got:
        world.worker().write(0, "a" * 3_000)
    assert "abort the transaction" not in str(got.value)
    assert world.committed == []


def a_transaction_that_takes_too_long_says_so(servers: str) -> None:
    """A transaction that has timed out is not mistaken for one that another attempt has fenced."""
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
    """Dead letters are committed with the rows, or not at all."""
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
    worker.end_transaction(written)
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
        worker.end_transaction(worker.write(1, batches=[rows("a"), bad, bad], attempt=1))

    slow = world.worker(deadLetterTopic=dead)
    written = slow.write(1, batches=then(rows("a"), bad, copy, bad, bad))
    assert written.progress.row == world.row()
    assert world.committed == ["0", "a"]
    assert committed(servers, TopicPartition(dead, 0)) == ["x", "x"]


def what_a_producer_left_open_is_seen_in_its_partition(servers: str) -> None:
    topic = new_topic(servers, 2)
    with client_of(servers) as client:
        producer = TransactionalProducer(client, new_id())
        producer.init_transactions()

        def seen() -> dict[int, int]:
            return find_open_transactions(client, producer.identity.producer_id, INT16_MAX, topic)

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
        assert find_open_transactions(client, producer.identity.producer_id + 1, 9, topic) == {}
        # A transaction opened in this epoch does not count as one left open by an earlier epoch.
        assert find_open_transactions(client, *producer.identity, topic) == {}


FAILURES: tuple[Callable[[str], None], ...] = (
    a_dead_attempt_holds_nobody_back,
    what_fails_is_aborted_at_once,
    a_record_that_the_topic_refuses_fails_the_task,
    a_transaction_that_takes_too_long_says_so,
    a_time_out_that_the_broker_does_not_allow_is_explained,
    dead_letters_are_in_the_transaction,
    an_attempt_that_is_fenced_while_it_writes_letters_waits_too,
    what_a_producer_left_open_is_seen_in_its_partition,
)
