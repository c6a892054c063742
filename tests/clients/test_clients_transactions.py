"""Transactions by the clients that people use: commit, abort, positions, fencing, time-outs."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaProducer
from kafka import TopicPartition as KafkaPartition
from kafka.structs import OffsetAndMetadata

from pyspark_klog.ids import TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.coordinator.transaction_client import TransactionClient
from tests.support.coordinator.transaction_reading import committed_values
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tests.support.raw_requests import create_topic

Write = Callable[[str, str], None]

COMMITTED = [b"one", b"two", b"five"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
        "transaction.state.log.num.partitions": 3,
        "offsets.topic.num.partitions": 3,
    }
    with BrokerProcess(tmp_path_factory.mktemp("clients") / "data", settings) as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.address) as connection:
        yield connection


@pytest.fixture
def topic(client: RawClient, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.replace("[", "-").replace("]", "")
    create_topic(client, name, partitions=2)
    return name


# Each commits "one" and "two" with the position 7 of its group, aborts "three" and "four" with the
# position 9, and commits "five".


def write_confluent(servers: str, topic: str) -> None:
    producer = confluent(servers, topic)
    consumer = ConfluentConsumer({"bootstrap.servers": servers, "group.id": topic})
    group = consumer.consumer_group_metadata()
    producer.init_transactions(30)
    for values, position, ends in (
        ((b"one", b"two"), 7, producer.commit_transaction),
        ((b"three", b"four"), 9, producer.abort_transaction),
        ((b"five",), None, producer.commit_transaction),
    ):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        if position is not None:
            where = ConfluentPartition(topic, 1, position)
            producer.send_offsets_to_transaction([where], group, 30)
        producer.flush(30)
        ends(30)
    consumer.close()


def write_kafka_python(servers: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=topic)
    producer.init_transactions()
    for values, position, ends in (
        ((b"one", b"two"), 7, producer.commit_transaction),
        ((b"three", b"four"), 9, producer.abort_transaction),
        ((b"five",), None, producer.commit_transaction),
    ):
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value, partition=0)
        if position is not None:
            where = {KafkaPartition(topic, 1): OffsetAndMetadata(position, "", -1)}
            producer.send_offsets_to_transaction(where, topic)
        producer.flush()
        ends()
    producer.close()


def write_aiokafka(servers: str, topic: str) -> None:
    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic)
        await producer.start()
        try:
            for values, position, ends in (
                ((b"one", b"two"), 7, producer.commit_transaction),
                ((b"three", b"four"), 9, producer.abort_transaction),
                ((b"five",), None, producer.commit_transaction),
            ):
                await producer.begin_transaction()
                for value in values:
                    await producer.send_and_wait(topic, value, partition=0)
                if position is not None:
                    where = {AioPartition(topic, 1): position}
                    await producer.send_offsets_to_transaction(where, topic)
                await ends()
        finally:
            await producer.stop()

    asyncio.run(write())


def confluent(servers: str, transactional_id: str, **options: object) -> ConfluentProducer:
    return ConfluentProducer(
        {"bootstrap.servers": servers, "transactional.id": transactional_id, **options}
    )


@pytest.mark.parametrize("write", [write_confluent, write_kafka_python, write_aiokafka])
def test_what_is_committed_counts_with_its_position_and_nothing_else(
    broker: BrokerProcess, client: RawClient, topic: str, write: Write
) -> None:
    write(broker.bootstrap_servers, topic)
    assert eventually(lambda: committed_values(client, topic)) == COMMITTED
    # The default of librdkafka's consumers is read_committed.
    assert read(broker.bootstrap_servers, topic, len(COMMITTED)) == COMMITTED
    where = TopicPartition(topic, 1)
    assert TransactionClient(client).committed(topic, where, stable=True) == 7


def read(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = ConfluentConsumer({"bootstrap.servers": servers, "group.id": f"reads-{topic}"})
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    values: list[bytes] = []

    def enough() -> bool:
        for message in consumer.consume(count - len(values), timeout=0.2):
            assert message.error() is None, message.error()
            values.append(message.value())
        return len(values) == count

    eventually(enough, deadline_s=30, what="the records come")
    consumer.close()
    return values


def test_every_input_comes_out_once_though_most_transactions_are_lost(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    """Consume, transform, produce: processes of one id follow each other, most of them end within
    their transaction; the last one's output has every input once."""
    servers, out, count = broker.bootstrap_servers, f"{topic}-out", 60
    create_topic(client, out)
    source = ConfluentProducer({"bootstrap.servers": servers})
    for number in range(count):
        source.produce(topic, b"%d" % number, partition=0)
    source.flush(30)
    done = 0
    for life in range(100):
        producer = confluent(servers, topic)
        # InitProducerId ends the earlier process's transaction, which makes its position stable.
        producer.init_transactions(30)
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": servers,
                "group.id": topic,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        (start,) = consumer.committed([ConfluentPartition(topic, 0)], 30)
        done = max(start.offset, 0)
        if done == count:
            consumer.close()
            break
        consumer.assign([ConfluentPartition(topic, 0, done)])
        producer.begin_transaction()
        messages = consumer.consume(min(1 + life % 7, count - done), timeout=30)
        for message in messages:
            producer.produce(out, b"out " + (message.value() or b""), partition=0)
        producer.flush(30)
        end = ConfluentPartition(topic, 0, done + len(messages))
        producer.send_offsets_to_transaction([end], consumer.consumer_group_metadata(), 30)
        if life % 3 == 2:
            producer.commit_transaction(30)
        consumer.close()
    assert done == count
    assert read(servers, out, count) == [b"out %d" % number for number in range(count)]


def test_a_second_producer_fences_the_first(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    first, second = (confluent(broker.bootstrap_servers, topic) for _ in range(2))
    first.init_transactions(30)
    first.begin_transaction()
    first.produce(topic, b"zombie", partition=0)
    first.flush(30)
    second.init_transactions(30)
    second.begin_transaction()
    second.produce(topic, b"owner", partition=0)
    with pytest.raises(KafkaException, match=r"fenced|FENCED"):
        first.commit_transaction(30)
    second.commit_transaction(30)
    assert committed_values(client, topic) == [b"owner"]


def test_a_transaction_that_takes_too_long_is_aborted(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    producer = confluent(broker.bootstrap_servers, topic, **{"transaction.timeout.ms": 1_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"late", partition=0)
    producer.flush(30)
    assert eventually(lambda: [committed_values(client, topic)]) == [[]]
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)


def test_a_transaction_that_was_begun_before_a_kill_goes_on_after_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = BrokerProcess(data)
    port = broker.address[1]
    with RawClient(broker.address) as client:
        create_topic(client, "killed", partitions=2)
    producer = confluent(broker.bootstrap_servers, "killed")
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("killed", b"before", partition=0)
    producer.flush(30)
    broker.kill()
    with BrokerProcess(data, port=port) as again, RawClient(again.address) as client:
        producer.produce("killed", b"after", partition=0)
        producer.commit_transaction(60)
        assert committed_values(client, "killed") == [b"before", b"after"]
