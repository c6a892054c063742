"""The failures of a producer: each fails only its own records, with confluent_kafka's code."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import partial

import pytest

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.errors import ClientError
from pyspark_klog.kafka import KafkaError, Producer
from tests.integration.python_client.conftest import PARTITIONS, Reports, purged_at_the_end
from tests.support.eventually import eventually
from tests.support.kafka.reading import read_all

_NOBODY = "127.0.0.1:1"


@pytest.fixture
def lonely() -> Iterator[Producer]:
    """A producer whose broker cannot be reached."""
    with purged_at_the_end({"bootstrap.servers": _NOBODY}) as producer:
        yield producer


def test_a_topic_that_does_not_exist(servers: str, topic: str, reports: Reports) -> None:
    given = {"bootstrap.servers": servers, "topic.metadata.propagation.max.ms": 500}
    with Producer(given) as producer:
        producer.produce("nowhere", b"1", callback=reports.note)
        producer.produce(topic, b"2", callback=reports.note)
    errors = {message.topic(): error for error, message in reports}
    assert errors == {"nowhere": KafkaError._UNKNOWN_TOPIC, topic: None}


def test_a_topic_that_is_created_in_time(servers: str, reports: Reports) -> None:
    given = {"bootstrap.servers": servers, "retry.backoff.ms": 20}
    with Producer(given) as producer:
        producer.produce("later", b"1", callback=reports.note)
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("later", 1)])
    assert reports.errors == [None]


def test_a_partition_that_does_not_exist(servers: str, topic: str, reports: Reports) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.produce(topic, b"1", partition=PARTITIONS, callback=reports.note)
        producer.produce(topic, b"2", partition=0, callback=reports.note)
    assert {message.value(): error for error, message in reports} == {
        b"1": KafkaError._UNKNOWN_PARTITION,
        b"2": None,
    }
    [failed] = [message for error, message in reports if error is not None]
    assert (failed.error(), failed.offset(), failed.partition()) == (
        *(KafkaError._UNKNOWN_PARTITION, None),
        PARTITIONS,
    )


def test_a_partitioner_of_the_program_that_fails(
    servers: str, topic: str, reports: Reports
) -> None:
    def choose(_topic: str, key: bytes | None, _value: bytes | None, _count: int) -> int:
        return {b"good": 0, b"far": 99, b"below": -5}[key or b""]

    with Producer({"bootstrap.servers": servers, "partitioner": choose}) as producer:
        for key in ("unknown", "far", "below", "good"):
            producer.produce(topic, b"v", key, callback=reports.note)
    assert {message.key(): error for error, message in reports} == {
        b"unknown": KafkaError._FAIL,
        b"far": KafkaError._UNKNOWN_PARTITION,
        b"below": KafkaError._UNKNOWN_PARTITION,
        b"good": None,
    }
    assert "the partitioner raised KeyError" in str(reports.errors[0])


def test_only_the_record_that_the_topic_refuses_fails(servers: str, reports: Reports) -> None:
    with Admin(servers) as admin:
        small = {"max.message.bytes": "2000"}
        keyed = {"cleanup.policy": "compact"}
        admin.create_topics(
            [NewTopic("small", 1, configs=small), NewTopic("keyed", 1, configs=keyed)]
        )
    with Producer({"bootstrap.servers": servers, "linger.ms": 100}) as producer:
        for number in range(20):
            size = 5_000 if number == 7 else 500
            producer.produce("small", b"%d" % number + bytes(size), b"k", callback=reports.note)
            key = None if number == 11 else b"k"
            producer.produce("keyed", b"%d" % number, key, callback=reports.note)
    failed = {m.topic(): (error, m.key(), len(m)) for error, m in reports if error is not None}
    assert failed["small"][0] == KafkaError.MSG_SIZE_TOO_LARGE and failed["small"][2] == 5_001
    assert failed["keyed"][0] == KafkaError.INVALID_RECORD and failed["keyed"][1] is None
    assert len(reports) == 40 and len(failed) == 2
    for topic, missing in (("small", 7), ("keyed", 11)):
        [messages] = read_all(servers, topic, 1)
        values = [(message.value() or b"").rstrip(b"\0") for message in messages]
        assert values == [b"%d" % number for number in range(20) if number != missing]


def test_records_that_are_not_acknowledged_in_time(reports: Reports) -> None:
    given = {"bootstrap.servers": _NOBODY, "delivery.timeout.ms": 300, "linger.ms": 0}
    with purged_at_the_end(given) as producer:
        producer.produce("t", b"1", callback=reports.note)
        assert producer.flush(30) == 0
    assert reports.errors == [KafkaError._MSG_TIMED_OUT]


def test_records_for_a_broker_that_has_died(reports: Reports) -> None:
    with testing.Broker() as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1)])
        given = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0}
        with purged_at_the_end({**given, "delivery.timeout.ms": 700}) as producer:
            producer.produce("t", b"1", callback=reports.note)
            assert producer.flush(30) == 0
            broker.kill()
            producer.produce("t", b"2", callback=reports.note)
            assert producer.flush(30) == 0
    assert reports.errors == [None, KafkaError._MSG_TIMED_OUT]


def test_a_full_queue(reports: Reports) -> None:
    given = {"bootstrap.servers": _NOBODY, "queue.buffering.max.messages": 3}
    with purged_at_the_end(given) as producer:
        for _ in range(3):
            producer.produce("t", b"v", callback=reports.note)
        with pytest.raises(BufferError, match="Queue full"):
            producer.produce("t", b"v", callback=reports.note)
        assert len(producer) == 3 and producer.flush(0) == 3
        producer.purge()
        producer.produce("t", b"v", callback=reports.note)
        producer.purge()
        assert producer.flush(30) == 0
    assert reports.errors == [KafkaError._PURGE_QUEUE] * 4


def test_a_full_queue_of_bytes() -> None:
    given = {"bootstrap.servers": _NOBODY, "buffer.memory": 3_000}
    with purged_at_the_end(given) as producer:
        producer.produce("t", bytes(2_000))
        with pytest.raises(BufferError):
            producer.produce("t", bytes(2_000))
        producer.purge()
        producer.produce("t", bytes(2_000))


def test_produce_waits_for_max_block_ms(servers: str, topic: str) -> None:
    given = {"bootstrap.servers": servers, "queue.buffering.max.messages": 2, "linger.ms": 0}
    with Producer({**given, "max.block.ms": 30_000}) as producer:
        for number in range(200):
            producer.produce(topic, b"%d" % number)
    assert sum(len(messages) for messages in read_all(servers, topic, PARTITIONS)) == 200


def test_purged_records_that_were_sent_may_be_written(reports: Reports) -> None:
    with testing.Broker() as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1)])
        with Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0}) as producer:
            producer.produce("t", b"first", callback=reports.note)
            assert producer.flush(30) == 0
            broker.pause()
            producer.produce("t", b"second", callback=reports.note)

            def is_sent() -> bool:
                producer.purge(in_queue=False)
                producer.poll(0)
                return len(reports) == 2

            eventually(is_sent, deadline_s=30, what="the purge of a sent record")
            broker.resume()
            producer.produce("t", b"third", callback=reports.note)
        assert reports.errors == [None, KafkaError._PURGE_INFLIGHT, None]
        [messages] = read_all(broker.bootstrap_servers, "t", 1)
    assert [message.value() for message in messages] == [b"first", b"second", b"third"]


# --- the producer's life -------------------------------------------------------------------------
def test_a_closed_producer(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"v")
    assert producer.close() is True and producer.close() is True
    for call in (lambda: producer.produce(topic), producer.poll, producer.flush, producer.purge):
        with pytest.raises(RuntimeError, match="Producer has been closed"):
            call()
    assert sum(len(messages) for messages in read_all(servers, topic, PARTITIONS)) == 1


def test_a_producer_that_is_dropped_warns_of_its_records(caplog: pytest.LogCaptureFixture) -> None:
    producer = Producer({"bootstrap.servers": _NOBODY})
    loop = producer._core.loop
    for _ in range(5):
        producer.produce("t", b"v")
    del producer
    gc.collect()
    assert "ended with 5 records that are not acknowledged" in caplog.text
    assert not loop.is_running


def test_a_program_that_ends_with_records_warns() -> None:
    program = f"""
        import logging
        logging.basicConfig()
        from pyspark_klog.kafka import Producer
        producer = Producer({{"bootstrap.servers": "{_NOBODY}"}})
        producer.produce("t", b"v")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "ended with 1 records that are not acknowledged" in done.stderr


def test_a_producer_cannot_be_used_after_a_fork(lonely: Producer) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            lonely.produce("t", b"v")
            os.write(writing, b"queued")
        except ClientError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert b"make a new client after the fork" in pipe.read()
    os.waitpid(child, 0)


@pytest.mark.parametrize("call", ["poll()", "flush()"])
def test_ctrl_c_ends_a_wait(call: str) -> None:
    program = f"""
        from pyspark_klog.kafka import Producer
        producer = Producer({{"bootstrap.servers": "{_NOBODY}"}})
        producer.produce("t", b"v")
        try:
            print("waits", flush=True)
            producer.{call}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            producer.purge()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"

    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert output == "interrupted\n"


# --- brokers that die ----------------------------------------------------------------------------
def test_every_record_once_and_in_order_through_kills_of_brokers(reports: Reports) -> None:
    given_count = 0
    with testing.KlogCluster(
        3, default_replication_factor=3, zookeeper_session_timeout_ms=4_000
    ) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("t", PARTITIONS, configs={"min.insync.replicas": "2"})])
        given = {"bootstrap.servers": servers, "linger.ms": 1, "retry.backoff.ms": 20}
        with Producer({**given, "queue.buffering.max.messages": 5_000}) as producer:
            for victim in cluster.brokers:
                before = len(reports)

                def writes_on(before: int = before) -> bool:
                    nonlocal given_count
                    for _ in range(50):
                        try:
                            producer.produce(
                                "t",
                                b"%d" % given_count,
                                partition=given_count % PARTITIONS,
                                callback=reports.note,
                            )
                        except BufferError:
                            break
                        given_count += 1
                    producer.poll(0)
                    return len(reports) > before + 2_000

                eventually(writes_on, deadline_s=60, what="records before the kill")
                victim.kill()
                before = len(reports)
                without_it = partial(writes_on, before)
                eventually(without_it, deadline_s=90, what="records without the broker")
                victim.restart()
        assert reports.errors == [None] * given_count
        found = read_all(servers, "t", PARTITIONS)
    for number, messages in enumerate(found):
        expected = [b"%d" % value for value in range(number, given_count, PARTITIONS)]
        assert [message.value() for message in messages] == expected
