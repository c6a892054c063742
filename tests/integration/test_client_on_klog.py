"""klog's client on klog's broker, and while the broker is down and after its restart."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin
from pyspark_klog.client.consumer.fetcher import RangeFetcher
from pyspark_klog.client.consumer.lost_offsets import OffsetsLost
from pyspark_klog.client.consumer.offsets import LATEST, list_offsets
from pyspark_klog.client.errors import (
    DeliveryFailed,
    NoBrokerAvailable,
    ReplyUnreadable,
    TimedOut,
    TopicMissing,
)
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.compression import Codec
from tests.support.client.cases import (
    CASES,
    batch,
    client_of,
    new_topic,
    read,
    records_come_back_as_they_were_written,
)
from tests.support.records.record_sets import iterate


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.Broker(num_partitions=3) as running:
        yield running


@pytest.mark.parametrize("codec", list(Codec))
def test_codecs(broker: testing.Broker, codec: Codec) -> None:
    records_come_back_as_they_were_written(broker.bootstrap_servers, codec)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_any_broker(broker: testing.Broker, case: Callable[[str], None]) -> None:
    case(broker.bootstrap_servers)


def test_a_topic_is_created_by_the_producers_question(broker: testing.Broker) -> None:
    with client_of(broker.bootstrap_servers) as client:
        assert Producer(client).partition_count("made-by-asking") == 3


def test_without_auto_creation_the_producer_says_so() -> None:
    with (
        testing.Broker(auto_create_topics_enable=False) as strict,
        client_of(strict.bootstrap_servers, max_block_ms=300) as client,
        pytest.raises(TopicMissing, match=r"topic absent does not exist.*max\.block\.ms"),
    ):
        Producer(client).partition_count("absent")


def test_reading_and_asking_create_no_topic(broker: testing.Broker) -> None:
    with client_of(broker.bootstrap_servers) as client:
        with pytest.raises(TopicMissing, match="never-0 does not exist"):
            list_offsets(client, {TopicPartition("never", 0): LATEST})
        with Admin(client=client) as admin:
            assert "never" not in admin.list_topics()


def test_a_topic_that_goes_while_it_is_read_is_reported(broker: testing.Broker) -> None:
    topic = new_topic(broker.bootstrap_servers, 1)
    partition = TopicPartition(topic, 0)
    lost: list[OffsetsLost] = []
    with client_of(broker.bootstrap_servers, retry_backoff_ms=10) as client:
        producer = Producer(client)
        producer.add(partition, *batch([b"k"] * 10))
        producer.flush()
        with Admin(client=client) as admin:
            admin.delete_topics([topic])
        assert read(client, partition, 0, 10, lost.append) == []
    assert ["is gone" in str(error) for error in lost] == [True]


def test_reading_goes_on_after_the_broker_was_killed() -> None:
    with testing.Broker(num_partitions=1) as broker:
        topic = new_topic(broker.bootstrap_servers, 1)
        partition = TopicPartition(topic, 0)
        with client_of(broker.bootstrap_servers, max_partition_fetch_bytes=2_000) as client:
            producer = Producer(client)
            for number in range(40):
                producer.add(partition, *batch([b"%d" % number] * 20))
            producer.flush()
            seen: list[int] = []

            def fail(lost: OffsetsLost) -> None:
                raise lost

            chunks = RangeFetcher(
                client, partition, 0, 800, progress_timeout_ms=60_000, on_lost=fail
            )
            for number, chunk in enumerate(chunks):
                after = seen[-1] + 1 if seen else 0
                records = iterate(chunk.data, allow_partial=True)
                seen += [record.offset for record in records if record.offset >= after]
                if number == 3:
                    broker.kill()
                    broker.start()
        assert seen == list(range(800))


def test_writing_goes_on_after_the_broker_was_killed() -> None:
    with testing.Broker(num_partitions=1) as broker:
        topic = new_topic(broker.bootstrap_servers, 1)
        partition = TopicPartition(topic, 0)
        with client_of(broker.bootstrap_servers) as client:
            producer = Producer(client)
            for number in range(60):
                producer.add(partition, *batch([b"%d" % number] * 5))
                if number % 20 == 10:
                    broker.kill()
                    broker.start()
            producer.flush()
            assert producer.written_records == 300
            found = read(client, partition, 0, 300)
            end = list_offsets(client, {partition: LATEST})[partition].offset
    assert [r.key for r in found] == [b"%d" % n for n in range(60) for _ in range(5)]
    assert end == 300


def test_a_silent_broker_ends_the_call_in_time_and_serves_again(broker: testing.Broker) -> None:
    topic = new_topic(broker.bootstrap_servers, 1)
    partition = TopicPartition(topic, 0)
    with client_of(
        broker.bootstrap_servers, request_timeout_ms=300, delivery_timeout_ms=1_000
    ) as client:
        assert list_offsets(client, {partition: LATEST})[partition].offset == 0
        broker.pause()
        try:
            with pytest.raises(TimedOut):
                list_offsets(client, {partition: LATEST}, deadline_ms=client.deadline(700))
            producer = Producer(client)
            with pytest.raises((TimedOut, DeliveryFailed, NoBrokerAvailable)):
                producer.add(partition, *batch([b"k"]))
                producer.flush()
        finally:
            broker.resume()
        assert list_offsets(client, {partition: LATEST})[partition].offset >= 0


def test_an_address_where_nothing_listens_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with (
        client_of(address, default_api_timeout_ms=300) as client,
        pytest.raises(TimedOut, match=rf"could not connect to {address}: Connection refused"),
    ):
        client.refresh(None)


def test_a_server_of_another_protocol_is_recognised() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(1_000)

        thread = threading.Thread(target=answer)
        thread.start()
        with (
            client_of(f"127.0.0.1:{server.getsockname()[1]}") as client,
            pytest.raises(ReplyUnreadable, match="is the address a listener of Kafka's protocol"),
        ):
            client.refresh(None)
        thread.join(10)


def test_buffers_are_bounded_and_block(broker: testing.Broker) -> None:
    topic = new_topic(broker.bootstrap_servers, 1)
    partition = TopicPartition(topic, 0)
    with client_of(broker.bootstrap_servers, buffer_memory=5_000) as client:
        producer = Producer(client)
        for number in range(50):
            producer.add(partition, *batch([b"%d" % number] * 40))
            assert producer._core.pending_bytes <= 5_000
        producer.flush()
        assert len(read(client, partition, 0, 2_000)) == 2_000


@pytest.mark.parametrize("acks", ["0", "1"])
def test_other_acks(broker: testing.Broker, acks: str) -> None:
    topic = new_topic(broker.bootstrap_servers, 1)
    partition = TopicPartition(topic, 0)
    with client_of(broker.bootstrap_servers, acks=acks) as client:
        producer = Producer(client)
        for number in range(10):
            producer.add(partition, *batch([b"%d" % number] * 10))
        producer.flush()
        assert not producer.is_idempotent
        assert [r.key for r in read(client, partition, 0, 100)] == [
            b"%d" % n for n in range(10) for _ in range(10)
        ]
