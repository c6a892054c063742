"""Cases for transactions of klog's client on any broker that has them: run on klog and Kafka.

Values of records are unique in a case, so that the values read show how often each was written.
"""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pyspark_klog.client.admin.groups import CommittedOffset, committed_offsets
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.fetcher import RangeFetcher
from pyspark_klog.client.consumer.lost_offsets import OffsetsLost
from pyspark_klog.client.consumer.offsets import LATEST, list_offsets
from pyspark_klog.client.errors import (
    ProducerFenced,
    ProducerUnusable,
    TimedOut,
    TransactionMisuse,
    TransactionMustAbort,
)
from pyspark_klog.client.transactions.producer import TransactionalProducer, end_transaction
from pyspark_klog.client.transactions.steps import ConsumerGroupMetadata
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.arrow import ArrowDecoder
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.control import ControlType, decode_end_transaction
from pyspark_klog.records.record_sets import entries
from tests.support.client.cases import client_of, new_topic
from tests.support.eventually import eventually


def new_id() -> str:
    """Return an unused transactional id."""
    return f"id-{uuid.uuid4().hex[:8]}"


@contextmanager
def producer_of(
    servers: str, transactional_id: str | None = None, **settings: str | int
) -> Iterator[TransactionalProducer]:
    """A producer with a client of its own, initialized."""
    with client_of(servers, **settings) as client:
        producer = TransactionalProducer(client, transactional_id or new_id())
        producer.init_transactions()
        yield producer


def put(
    producer: TransactionalProducer, partition: TopicPartition, *values: str, size: int = 0
) -> None:
    """A batch of records with these values, each filled up to ``size`` bytes."""
    builder = BatchBuilder()
    for number, value in enumerate(values):
        builder.append(b"k", value.encode().ljust(size, b"."), 1_000 + number, [])
    producer.add(partition, builder.build(), builder.record_count)


def committed(servers: str, partition: TopicPartition) -> list[str]:
    """The values that the log's markers commit, once every transaction has ended.

    A commit is answered when it is decided; its markers may come a moment later.
    """
    with client_of(servers) as client:
        return eventually(lambda: _ended(client, partition), 30, "the last marker")[0]


def _ended(client: BlockingClient, partition: TopicPartition) -> tuple[list[str], ...]:
    """The committed values, in the order of their writing; nothing while a transaction is open."""
    values: list[tuple[str, int]] = []
    kept: set[int] = set()
    is_open: dict[int, set[int]] = defaultdict(set)
    end = list_offsets(client, {partition: LATEST})[partition].offset
    for chunk in RangeFetcher(client, partition, 0, end, progress_timeout_ms=20_000, on_lost=_fail):
        for entry in entries(chunk.data, allow_partial=True):
            assert isinstance(entry, BatchView)
            if entry.is_control:
                ended = is_open.pop(entry.producer_id, set())
                marker = decode_end_transaction(next(entry.records()))
                kept |= ended if marker.control_type is ControlType.COMMIT else set()
                continue
            assert entry.is_transactional
            is_open[entry.producer_id].add(entry.base_offset)
            texts = [(record.value or b"").decode().rstrip(".") for record in entry.records()]
            values += [(text, entry.base_offset) for text in texts]
    return () if is_open else ([value for value, offset in values if offset in kept],)


def read_committed(servers: str, partition: TopicPartition) -> list[str]:
    """The values that a reader of committed records sees, up to the last stable offset."""
    values: list[str] = []
    with client_of(servers, isolation_level="read_committed") as client:
        end = list_offsets(client, {partition: LATEST}, read_committed=True)[partition].offset
        decoder = ArrowDecoder(
            topic=partition.topic, partition=partition.partition, columns=["value"], end_offset=end
        )
        fetcher = RangeFetcher(client, partition, 0, end, progress_timeout_ms=20_000, on_lost=_fail)
        found = [rows for chunk in fetcher for rows in decoder.decode(chunk.data, chunk.aborted)]
        rest = decoder.flush()
        for rows in (*found, *([] if rest is None else [rest])):
            values += [each.decode().rstrip(".") for each in rows.column(0).to_pylist()]
    return values


def _fail(lost: OffsetsLost) -> None:
    raise lost


def stable_offset(
    servers: str, group: str, partition: TopicPartition, *, timeout_ms: int = 30_000
) -> CommittedOffset | None:
    """A group's position, once no transaction holds it back."""
    with client_of(servers) as client:
        deadline_ms = client.deadline(timeout_ms)
        found = committed_offsets(client, group, [partition], deadline_ms, require_stable=True)
        return found.get(partition)


def what_is_committed_is_written_and_nothing_else(servers: str) -> None:
    """Over several partitions, and many transactions of one producer."""
    topic = new_topic(servers, 2)
    partitions = [TopicPartition(topic, number) for number in range(2)]
    wanted = []
    with producer_of(servers) as producer:
        for number in range(20):
            producer.begin_transaction()
            for partition in partitions:
                put(producer, partition, f"{number}-a", f"{number}-b")
                put(producer, partition, f"{number}-c")
            if number % 3 == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                wanted += [f"{number}-{each}" for each in "abc"]
        for partition in partitions:
            assert committed(servers, partition) == wanted


def readers_see_what_is_committed(servers: str) -> None:
    """Readers get no record of a transaction that is open, aborted, or behind an open one."""
    partition = TopicPartition(new_topic(servers, 1), 0)
    with producer_of(servers) as producer, producer_of(servers) as slow:
        for number in range(6):
            producer.begin_transaction()
            put(producer, partition, f"{number}-a", f"{number}-b")
            producer.flush()
            put(producer, partition, f"{number}-c")
            if number == 4:
                slow.begin_transaction()
                put(slow, partition, "slow")
                slow.flush()
            if number % 3 == 1:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        wanted = [f"{number}-{each}" for number in (0, 2, 3) for each in "abc"]
        eventually(lambda: read_committed(servers, partition) == wanted, 30, "three to be seen")
        slow.commit_transaction()
        wanted += ["slow", "5-a", "5-b", "5-c"]
        eventually(lambda: read_committed(servers, partition) == wanted, 30, "all to be seen")


def an_empty_transaction_ends(servers: str) -> None:
    """Committed or aborted, it leaves the producer ready."""
    partition = TopicPartition(new_topic(servers, 1), 0)
    with producer_of(servers) as producer:
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            end()
        producer.begin_transaction()
        put(producer, partition, "one")
        producer.commit_transaction()
        with pytest.raises(TransactionMisuse, match="producer is without a transaction"):
            producer.commit_transaction()
        with pytest.raises(TransactionMisuse):
            put(producer, partition, "two")
    assert committed(servers, partition) == ["one"]


def offsets_are_committed_with_the_records(servers: str) -> None:
    """Offsets are pending until the transaction's end; a fetch of stable offsets waits for it."""
    topic = new_topic(servers, 1)
    partition, group = TopicPartition(topic, 0), f"group-of-{topic}"
    with producer_of(servers) as producer:
        producer.begin_transaction()
        put(producer, partition, "one")
        five = CommittedOffset(5, metadata="five")
        producer.send_offsets_to_transaction({partition: five}, group)
        with pytest.raises(TimedOut, match="open transactions hold back the offsets"):
            stable_offset(servers, group, partition, timeout_ms=300)
        producer.commit_transaction()
        assert stable_offset(servers, group, partition) == five
        producer.begin_transaction()
        # Without a record: the offsets alone are a transaction.
        producer.send_offsets_to_transaction({partition: CommittedOffset(6)}, group)
        producer.abort_transaction()
        assert stable_offset(servers, group, partition) == five


def a_stranger_to_the_group_must_abort(servers: str) -> None:
    """The group has no such member (KIP-447); the producer can go on."""
    topic = new_topic(servers, 1)
    partition, group = TopicPartition(topic, 0), f"group-of-{topic}"
    with producer_of(servers) as producer:
        producer.begin_transaction()
        put(producer, partition, "lost")
        member = ConsumerGroupMetadata(group, 3, "stranger")
        with pytest.raises(TransactionMustAbort):
            producer.send_offsets_to_transaction({partition: CommittedOffset(5)}, member)
        with pytest.raises(TransactionMustAbort):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        put(producer, partition, "kept")
        producer.commit_transaction()
    assert committed(servers, partition) == ["kept"]
    assert stable_offset(servers, group, partition) is None


def a_newer_producer_fences_the_older(servers: str) -> None:
    """The older producer's open transaction is aborted; its next step raises the fencing error."""
    partition = TopicPartition(new_topic(servers, 1), 0)
    name = new_id()
    with producer_of(servers, name) as older:
        older.begin_transaction()
        put(older, partition, "of the older")
        older.flush()
        with producer_of(servers, name) as newer:
            newer.begin_transaction()
            put(newer, partition, "of the newer")
            with pytest.raises(ProducerFenced):
                older.commit_transaction()
            newer.commit_transaction()
            with pytest.raises(ProducerFenced):
                older.begin_transaction()
    assert committed(servers, partition) == ["of the newer"]


def a_fenced_producer_hears_so_when_it_writes(servers: str) -> None:
    """The leader's refusal is one to abort for; the abort tells that it is for good (KIP-588)."""
    partition = TopicPartition(new_topic(servers, 1), 0)
    name = new_id()
    with producer_of(servers, name) as older:
        older.begin_transaction()
        put(older, partition, "of the older")
        older.flush()
        with producer_of(servers, name):
            # The refusal may come while the record is handed over already.
            with pytest.raises((TransactionMustAbort, ProducerFenced)):
                put(older, partition, "of the older, too")
                older.flush()
            with pytest.raises(ProducerFenced):
                older.abort_transaction()
    assert committed(servers, partition) == []


def a_transaction_is_ended_by_another_process(servers: str) -> None:
    """Another process ends it by producer id and epoch, committed or aborted, even twice."""
    partition = TopicPartition(new_topic(servers, 1), 0)
    name = new_id()
    with producer_of(servers, name) as producer, client_of(servers) as driver:
        for number, commit in enumerate([True, False, True]):
            producer.begin_transaction()
            put(producer, partition, f"{number}")
            producer.send_offsets_to_transaction({partition: CommittedOffset(number)}, name)
            opened = producer.hand_over()
            for _ in range(2):
                end_transaction(driver, opened, commit=commit)
            with pytest.raises(TransactionMisuse, match="not initialized"):
                producer.begin_transaction()
            producer.init_transactions()
        assert stable_offset(servers, name, partition) == CommittedOffset(2)
        producer.begin_transaction()
        put(producer, partition, "open")
        late = producer.hand_over()
        producer.init_transactions()
        with pytest.raises(ProducerFenced):
            end_transaction(driver, late, commit=True)
    assert committed(servers, partition) == ["0", "2"]


def a_transaction_that_took_too_long_is_over(servers: str) -> None:
    """The coordinator has aborted the transaction, and ending it raises an error. The broker has to
    look often (transaction.abort.timed.out.transaction.cleanup.interval.ms)."""
    partition = TopicPartition(new_topic(servers, 1), 0)
    with client_of(servers) as client:
        producer = TransactionalProducer(client, new_id(), transaction_timeout_ms=300)
        producer.init_transactions()
        producer.begin_transaction()
        put(producer, partition, "late")
        opened = producer.hand_over()
        assert committed(servers, partition) == []
        with pytest.raises(ProducerUnusable, match=r"INVALID_TXN_STATE|PRODUCER_FENCED"):
            end_transaction(client, opened, commit=True)
        producer.init_transactions()
        producer.begin_transaction()
        put(producer, partition, "late, too")
        producer.flush()
        assert committed(servers, partition) == []
        with pytest.raises(ProducerUnusable):
            producer.commit_transaction()
    assert committed(servers, partition) == []


def a_record_that_is_refused_spoils_its_transaction_only(servers: str) -> None:
    """Only the transaction with the refused record fails, even if other batches are in flight."""
    topic = new_topic(servers, 2, max_message_bytes="2000")
    partition, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with producer_of(servers) as producer:
        for number in range(3):
            producer.begin_transaction()
            put(producer, partition, f"good-{number}")
            put(producer, other, f"other-{number}")
            if number == 1:
                with pytest.raises(TransactionMustAbort, match="larger than the topic takes"):
                    put(producer, partition, "large", size=3_000)
                    for _ in range(6):
                        put(producer, partition, "behind")
                    producer.commit_transaction()
                with pytest.raises(TransactionMustAbort):
                    producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        assert committed(servers, partition) == ["good-0", "good-2"]
        assert committed(servers, other) == ["other-0", "other-2"]


def records_can_be_set_aside_in_a_transaction(servers: str) -> None:
    """Records behind the ones set aside are still written, once and in order."""
    partition = TopicPartition(new_topic(servers, 1, max_message_bytes="2000"), 0)
    aside: list[int] = []
    with producer_of(servers) as producer:
        producer.on_refused_record(lambda each: aside.append(len(each.data)))
        # Where the leader of a new topic is not ready, a batch is refused in a way that leaves open
        # whether it was written; and such a batch is not set aside.
        producer.begin_transaction()
        put(producer, partition, "first")
        producer.commit_transaction()
        for number in range(3):
            producer.begin_transaction()
            producer.add_all(
                (partition, *_batch(f"{number}-{each}", 3_000 if each in (0, 4, 5) else 0))
                for each in range(10)
            )
            producer.commit_transaction()
    assert len(aside) == 9
    kept = [each for each in range(10) if each not in (0, 4, 5)]
    wanted = [f"{number}-{each}" for number in range(3) for each in kept]
    assert committed(servers, partition) == ["first", *wanted]


def lost_connections_lose_nothing(servers: str) -> None:
    """Connections end while requests are in flight: the client does not know what was written."""
    topic = new_topic(servers, 2)
    partitions = [TopicPartition(topic, number) for number in range(2)]
    group = f"group-of-{topic}"
    wanted: list[str] = []
    with client_of(servers, retry_backoff_ms=10) as client:
        producer = TransactionalProducer(client, new_id())
        producer.init_transactions()
        for number in range(8):
            producer.begin_transaction()
            for part in range(4):
                for partition in partitions:
                    put(producer, partition, f"{number}-{part}")
            _cut(client)
            offsets = {partitions[0]: CommittedOffset(number)}
            producer.send_offsets_to_transaction(offsets, group)
            _cut(client)
            if number % 4 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                wanted += [f"{number}-{part}" for part in range(4)]
            _cut(client)
    for partition in partitions:
        assert committed(servers, partition) == wanted
    assert stable_offset(servers, group, partitions[0]) == CommittedOffset(7)


def _batch(value: str, size: int) -> tuple[bytes, int]:
    builder = BatchBuilder()
    builder.append(b"k", value.encode().ljust(size, b"."), 1_000, [])
    return builder.build(), 1


def _cut(client: BlockingClient) -> None:
    for link in client.links:
        link.close()


CASES: tuple[Callable[[str], None], ...] = (
    what_is_committed_is_written_and_nothing_else,
    readers_see_what_is_committed,
    an_empty_transaction_ends,
    offsets_are_committed_with_the_records,
    a_stranger_to_the_group_must_abort,
    a_newer_producer_fences_the_older,
    a_fenced_producer_hears_so_when_it_writes,
    a_transaction_is_ended_by_another_process,
    a_transaction_that_took_too_long_is_over,
    a_record_that_is_refused_spoils_its_transaction_only,
    records_can_be_set_aside_in_a_transaction,
    lost_connections_lose_nothing,
)
