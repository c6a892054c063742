"""A producer writes records with all their parts, in order, and reports on each."""

import logging
import threading
from typing import Any

import confluent_kafka
import pytest

from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.kafka import KafkaError, KafkaException, Producer
from tests.integration.python_client.conftest import PARTITIONS, Reports, purged_at_the_end
from tests.support.kafka.reading import read_all

_KEYS = [b"k%d" % number for number in range(200)]


def test_a_record_arrives_with_all_its_parts(servers: str, topic: str, reports: Reports) -> None:
    headers = [("a", b"1"), ("a", None), ("b", "text")]
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.produce(topic, "välue", "key", 1, reports.note, None, 1_700_000_000_123, headers)
        producer.produce(topic, partition=1, on_delivery=reports.note, headers={"c": b"\xff"})
        producer.produce(topic, b"third", partition=1, callback=reports.note)
        assert (len(producer), bool(producer)) == (3, True)
        assert producer.flush() == 0
        assert len(producer) == 0
    [_, found, _] = read_all(servers, topic, PARTITIONS)
    assert [each.value() for each in found] == ["välue".encode(), None, b"third"]
    assert [each.key() for each in found] == [b"key", None, None]
    assert found[0].headers() == [("a", b"1"), ("a", None), ("b", b"text")]
    assert found[0].timestamp() == (1, 1_700_000_000_123)
    assert found[1].headers() == [("c", b"\xff")]
    told = [message for error, message in reports if error is None]
    for mine, theirs in zip(told, found, strict=True):
        assert mine.topic() == topic and mine.error() is None
        for part in ("partition", "offset", "key", "value", "headers", "timestamp"):
            assert getattr(mine, part)() == getattr(theirs, part)(), part
        latency = mine.latency()
        assert latency is not None and latency >= 0


@pytest.mark.parametrize(
    "partitioner",
    ["murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a", "fnv1a_random"],
)
def test_a_key_has_the_partition_that_confluent_kafka_gives_it(
    servers: str, topic: str, partitioner: str
) -> None:
    given = {"bootstrap.servers": servers, "partitioner": partitioner}
    keys: list[bytes | None] = [*_KEYS]
    if partitioner != "consistent_random":
        keys += [b""] * 5
    if not partitioner.endswith("random"):
        keys += [None] * 3
    for made in (Producer(given), confluent_kafka.Producer(given)):
        for key in keys:
            made.produce(topic, b"v", key)
        assert made.flush(30) == 0
    for messages in read_all(servers, topic, PARTITIONS):
        found = [repr(message.key()) for message in messages]
        half = len(found) // 2
        assert half > 30 and sorted(found[:half]) == sorted(found[half:])


def test_a_partitioner_of_the_program(servers: str, topic: str) -> None:
    asked: list[tuple[Any, ...]] = []

    def choose(*args: Any) -> int:
        asked.append(args)
        return 2

    with Producer({"bootstrap.servers": servers, "partitioner": choose}) as producer:
        producer.produce(topic, b"v", b"k")
        producer.produce(topic, b"v", b"k", partition=0)
    found = read_all(servers, topic, PARTITIONS)
    assert [len(messages) for messages in found] == [1, 0, 1]
    assert asked == [(topic, b"k", b"v", PARTITIONS)]


def test_records_without_a_key_fill_one_batch_after_the_other(servers: str, topic: str) -> None:
    given = {"bootstrap.servers": servers, "batch.size": 2_000, "linger.ms": 50}
    with Producer(given) as producer:
        for _ in range(600):
            producer.produce(topic, bytes(100))
    found = read_all(servers, topic, PARTITIONS)
    assert sum(len(messages) for messages in found) == 600
    assert all(len(messages) > 50 for messages in found)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_order_within_a_partition(
    servers: str, topic: str, reports: Reports, codec: str, acks: str
) -> None:
    given = {"bootstrap.servers": servers, "acks": acks, "compression.type": codec}
    with Producer({**given, "batch.size": 3_000, "on_delivery": reports.note}) as producer:
        for number in range(1_000):
            producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    for number, messages in enumerate(read_all(servers, topic, PARTITIONS)):
        expected = [b"%d" % value for value in range(number, 1_000, PARTITIONS)]
        assert [message.value() for message in messages] == expected
        told = [m for error, m in reports if error is None and m.partition() == number]
        assert [message.value() for message in told] == expected
        offsets = [None] * len(told) if acks == "0" else list(range(len(told)))
        assert [message.offset() for message in told] == offsets


def test_a_topic_with_log_append_time(servers: str, topic: str, reports: Reports) -> None:
    with Admin(servers) as admin:
        admin.create_topics(
            [NewTopic(f"{topic}-late", 1, configs={"message.timestamp.type": "LogAppendTime"})]
        )
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.produce(f"{topic}-late", b"v", timestamp=5, callback=reports.note)
    [[found]] = read_all(servers, f"{topic}-late", 1)
    assert reports[0][1].timestamp() == found.timestamp()
    assert found.timestamp()[0] == 2


def test_flush_does_not_wait_for_linger_ms(servers: str, topic: str, reports: Reports) -> None:
    with purged_at_the_end({"bootstrap.servers": servers, "linger.ms": 200_000}) as producer:
        producer.produce(topic, b"v", callback=reports.note)
        assert producer.flush(30) == 0
        assert reports.errors == [None]
        producer.produce(topic, b"v", callback=reports.note)
        assert producer.poll(0.2) == 0 and len(producer) == 1


# --- reports -------------------------------------------------------------------------------------
def test_reports_of_successes_can_be_left_out(servers: str, topic: str, reports: Reports) -> None:
    given = {"bootstrap.servers": servers, "delivery.report.only.error": True}
    with Producer(given) as producer:
        producer.produce(topic, b"v", callback=reports.note)
        producer.produce(topic, b"v", partition=99, callback=reports.note)
    assert reports.errors == [KafkaError._UNKNOWN_PARTITION]


def test_callbacks_run_in_the_thread_that_polls(servers: str, topic: str) -> None:
    threads: list[threading.Thread] = []
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.produce(
            topic, b"v", callback=lambda *_: threads.append(threading.current_thread())
        )
        assert producer.poll(30) == 1
        assert producer.poll(0) == 0
    assert threads == [threading.current_thread()]


def test_an_exception_of_a_callback_comes_out_of_poll(
    servers: str, topic: str, reports: Reports
) -> None:
    def fail(*_: Any) -> None:
        raise LookupError("from the callback")

    with Producer({"bootstrap.servers": servers}) as producer:
        producer.produce(topic, b"1", partition=0, callback=fail)
        producer.produce(topic, b"2", partition=0, callback=reports.note)
        with pytest.raises(LookupError, match="from the callback"):
            producer.flush()
        assert producer.flush() == 0
    assert [message.value() for _, message in reports] == [b"2"]


def test_several_threads_write_through_one_producer(servers: str, topic: str) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:

        def write(name: int) -> None:
            for number in range(500):
                producer.produce(topic, b"%d %d" % (name, number), partition=name % PARTITIONS)

        threads = [threading.Thread(target=write, args=(name,)) for name in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.flush() == 0
    for messages in read_all(servers, topic, PARTITIONS):
        values = [[int(part) for part in (message.value() or b"").split()] for message in messages]
        for name in {name for name, _ in values}:
            assert [number for each, number in values if each == name] == list(range(500))
        assert len(values) == 1_000


# --- many records in one call --------------------------------------------------------------------
def test_a_list_of_messages(servers: str, topic: str, reports: Reports) -> None:
    own = Reports()
    messages: list[dict[str, Any]] = [
        {"value": "text", "key": b"k", "partition": 1, "callback": own.note},
        {"value": b"bytes", "timestamp": 1_700_000_000_000, "headers": {"a": b"b"}},
        {"value": bytes(5_000)},
        {},
    ]
    with Producer({"bootstrap.servers": servers, "message.max.bytes": 2_000}) as producer:
        assert producer.produce_batch(topic, messages, 2, on_delivery=reports.note) == 3
    assert [message.get("_error") for message in messages] == [
        *(None, None),
        *(KafkaError.MSG_SIZE_TOO_LARGE, None),
    ]
    [_, first, rest] = read_all(servers, topic, PARTITIONS)
    assert [(each.key(), each.value()) for each in first] == [(b"k", b"text")]
    assert [each.value() for each in rest] == [b"bytes", None]
    assert (rest[0].timestamp()[1], rest[0].headers()) == (1_700_000_000_000, [("a", b"b")])
    assert (own.errors, reports.errors) == ([None], [None, None])


def test_messages_for_which_the_queue_has_no_room() -> None:
    given = {"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 2, "log_level": 0}
    own: list[dict[str, Any]] = [{"value": b"1"}, {"value": b"2"}, {"value": b"3"}]
    theirs = [dict(message) for message in own]
    with purged_at_the_end(given) as producer:
        assert producer.produce_batch("t", own) == 2
    assert confluent_kafka.Producer(given).produce_batch("t", theirs) == 2
    for mine, other in zip(own, theirs, strict=True):
        assert mine.get("_error") == (other["_error"].code() if "_error" in other else None)


_WRONG_MESSAGES = [
    *(5, [5], ({"value": b"a"},), [{}, {"value": 5}], [{"key": 1.5}], [{"partition": "x"}]),
    [{"value": bytearray(b"x")}],
]


@pytest.mark.parametrize("messages", _WRONG_MESSAGES)
def test_wrong_messages_are_refused_as_by_confluent_kafka(messages: Any) -> None:
    given = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    with pytest.raises(TypeError) as theirs:
        confluent_kafka.Producer(given).produce_batch("t", messages)
    with purged_at_the_end(given) as producer:
        with pytest.raises(TypeError) as own:
            producer.produce_batch("t", messages)
        assert len(producer) == 0
    assert str(own.value) == str(theirs.value)


# --- arguments -----------------------------------------------------------------------------------
_WRONG = [
    {},
    {"topic": None},
    {"topic": 5},
    {"topic": "t", "value": 5},
    {"topic": "t", "value": bytearray(b"x")},
    {"topic": "t", "key": 1.5},
    {"topic": "t", "partition": "1"},
    {"topic": "t", "timestamp": "x"},
    {"topic": "t", "headers": 5},
    {"topic": "t", "headers": [("a", 5)]},
]


@pytest.mark.parametrize("arguments", _WRONG)
def test_wrong_arguments_are_refused_as_by_confluent_kafka(arguments: Any) -> None:
    given = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    own, theirs = Producer(given), confluent_kafka.Producer(given)
    with pytest.raises(TypeError):
        theirs.produce(**arguments)
    with pytest.raises(TypeError):
        own.produce(**arguments)
    assert len(own) == 0
    own.close()


def test_a_record_that_is_too_large_for_the_producer(servers: str, topic: str) -> None:
    with Producer({"bootstrap.servers": servers, "message.max.bytes": 2_000}) as producer:
        with pytest.raises(KafkaException) as caught:
            producer.produce(topic, bytes(2_000))
        assert caught.value.args[0] == KafkaError.MSG_SIZE_TOO_LARGE
        producer.produce(topic, bytes(1_500))
    assert sum(len(messages) for messages in read_all(servers, topic, PARTITIONS)) == 1


def test_the_defaults_that_differ_are_named_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pyspark_klog.kafka"):
        Producer({"bootstrap.servers": "127.0.0.1:1"}).close()
    [line] = [each.getMessage() for each in caplog.records if "defaults that" in each.getMessage()]
    assert "murmur2_random" in line and "enable.idempotence is true" in line
