"""Faults of a test's broker, as Kafka's clients notice them."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, ProducerFenced
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaConsumer, KafkaProducer

from pyspark_klog import testing
from pyspark_klog.testing import Fault
from tests.support.eventually import eventually

VALUES = [b"0", b"1", b"2"]


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.Broker(num_partitions=1, offsets_topic_num_partitions=1) as running:
        yield running


# --- each client sends VALUES with idempotence, and reads them back -------------------------------
def send_confluent(servers: str, topic: str) -> None:
    producer = ConfluentProducer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "retry.backoff.ms": 10}
    )
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def read_confluent(servers: str, topic: str) -> list[bytes]:
    consumer = ConfluentConsumer(
        {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[bytes] = []

    def has_all() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
        return len(values) >= len(VALUES)

    eventually(has_all, 60, "all records are read")
    consumer.close()
    return values


def send_kafka_python(servers: str, topic: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, retry_backoff_ms=10
    )
    sent = [producer.send(topic, value) for value in VALUES]
    for each in sent:
        each.get(timeout=60)
    producer.close()


def read_kafka_python(servers: str, topic: str) -> list[bytes]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    values = [next(consumer).value for _ in VALUES]
    consumer.close()
    return values


def send_aiokafka(servers: str, topic: str) -> None:
    async def send() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, retry_backoff_ms=10
        )
        await producer.start()
        for value in VALUES:
            await producer.send_and_wait(topic, value)
        await producer.stop()

    asyncio.run(send())


def read_aiokafka(servers: str, topic: str) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest"
        )
        await consumer.start()
        values = [(await asyncio.wait_for(consumer.getone(), 60)).value for _ in VALUES]
        await consumer.stop()
        return values

    return asyncio.run(read())


Client = tuple[Callable[[str, str], None], Callable[[str, str], list[bytes]]]
CLIENTS: dict[str, Client] = {
    "confluent": (send_confluent, read_confluent),
    "kafka-python": (send_kafka_python, read_kafka_python),
    "aiokafka": (send_aiokafka, read_aiokafka),
}


def faults_of(broker: testing.Broker, topic: str) -> list[Fault]:
    """Faults after which each client must go on, without a lost or repeated record."""
    faults = broker.faults
    return [
        faults.answer("Metadata", "LEADER_NOT_AVAILABLE", topic=topic),
        faults.answer("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS"),
        faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic, partition=0),
        faults.disconnect("Produce", after=True),
        faults.delay("Fetch", 50, times=1),
        faults.answer("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=topic, partition=0),
        faults.answer("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
        faults.disconnect("SyncGroup", before=True),
    ]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_goes_on_after_each_fault(broker: testing.Broker, name: str) -> None:
    send, read = CLIENTS[name]
    faults = faults_of(broker, f"{name}-topic")
    send(broker.bootstrap_servers, f"{name}-topic")
    assert read(broker.bootstrap_servers, f"{name}-topic") == VALUES
    assert [each.fired for each in faults] == [1] * len(faults)


def test_a_member_joins_again_after_a_rebalance_and_after_its_expiry(
    broker: testing.Broker,
) -> None:
    send_confluent(broker.bootstrap_servers, "rebalanced")
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "rebalanced",
            "client.id": "member",
            "heartbeat.interval.ms": 100,
        }
    )
    assignments: list[object] = []
    consumer.subscribe(["rebalanced"], on_assign=lambda _, given: assignments.append(given))

    def is_assigned(times: int) -> bool:
        consumer.poll(0.1)
        return len(assignments) == times

    eventually(lambda: is_assigned(1), 60, "the member has joined")
    assert broker.faults.rebalance("rebalanced").fired == 1
    eventually(lambda: is_assigned(2), 60, "the member has joined again")
    assert broker.faults.expire("rebalanced", "member").fired == 1
    eventually(lambda: is_assigned(3), 60, "the expired member has joined again")
    consumer.close()
    with pytest.raises(testing.FaultFailed, match="has 0 members 'member'"):
        broker.faults.expire("rebalanced", "member")
    with pytest.raises(testing.FaultFailed, match="has no members"):
        broker.faults.rebalance("rebalanced")


def test_the_producer_of_an_aborted_transaction_is_fenced(broker: testing.Broker) -> None:
    async def commit_after_abort() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="aborted"
        )
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait("transactions", b"v")
        assert broker.faults.abort("aborted").fired == 1
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
        await producer.stop()

    asyncio.run(commit_after_abort())
    with pytest.raises(testing.FaultFailed, match="no ongoing transaction"):
        broker.faults.abort("aborted")


def test_a_black_hole_takes_only_its_client(broker: testing.Broker) -> None:
    servers = broker.bootstrap_servers
    fault = broker.faults.blackhole("lost")

    async def send_as_lost(request_timeout_ms: int) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers, client_id="lost", request_timeout_ms=request_timeout_ms
        )
        try:
            await producer.start()
            await producer.send_and_wait("holes", b"v")
        finally:
            await producer.stop()

    with pytest.raises(KafkaConnectionError):
        asyncio.run(send_as_lost(request_timeout_ms=300))
    assert fault.fired > 0
    send_kafka_python(servers, "holes")
    fault.end()
    asyncio.run(send_as_lost(request_timeout_ms=60_000))
