"""Records by the clients that people use: what one writes, all of them read.

kcat and confluent-kafka (librdkafka), kafka-python and aiokafka, as they come; kafka-python and
librdkafka as they speak to brokers of 0.8 to 0.11, without ApiVersions.
"""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPartition

from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tests.support.raw_requests import create_topic, produce, read_all
from tests.support.records.codec_cases import cases

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

Headers = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """A record, as every client can say it."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()


ROWS = [
    Row(b"key", b"value"),
    Row(None, b"no key"),
    Row(b"tombstone", None),
    Row(b"", b""),
    Row("schlüssel".encode(), "wért".encode(), (("h", b"1"), ("h", b"2"), ("empty", b""))),
    Row(bytes(range(256)), bytes(range(256)) * 40, (("ü", bytes(range(256))),)),
    *[Row(b"%d" % number, b"x" * number) for number in range(0, 1000, 37)],
]
PLAIN_ROWS = [row._replace(headers=()) for row in ROWS]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("clients") / "data") as running:
        yield running


@pytest.fixture
def servers(broker: BrokerProcess) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of this test's own; the first producer creates the topic."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)


# -- confluent-kafka (librdkafka) -------------------------------------------------------------


def write_confluent(
    servers: str, topic: str, rows: list[Row], codec: str, **options: object
) -> None:
    producer = ConfluentProducer(
        {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 50, **options}
    )
    errors: list[object] = []
    for row in rows:
        producer.produce(
            topic,
            key=row.key,
            value=row.value,
            headers=list(row.headers) or None,
            on_delivery=lambda error, _: errors.append(error),
        )
    assert producer.flush(30) == 0
    assert errors == [None] * len(rows)


def read_confluent(servers: str, topic: str, count: int, **options: object) -> list[Row]:
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **options,
        }
    )
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    rows: list[Row] = []

    def enough() -> bool:
        for message in consumer.consume(10_000, 0.2):
            assert message.error() is None, message.error()
            rows.append(Row(message.key(), message.value(), tuple(message.headers() or ())))
        return len(rows) >= count

    eventually(enough, 30)
    consumer.close()
    return rows


# -- kafka-python -----------------------------------------------------------------------------


def write_kafka_python(
    servers: str, topic: str, rows: list[Row], codec: str, **options: object
) -> None:
    producer = KafkaProducer(
        bootstrap_servers=servers,
        compression_type=None if codec == "none" else codec,
        linger_ms=50,
        **options,
    )
    futures = [
        producer.send(topic, key=row.key, value=row.value, headers=list(row.headers))
        for row in rows
    ]
    producer.flush(30)
    offsets = [future.get(30).offset for future in futures]
    producer.close()
    assert offsets == list(range(len(rows)))


def read_kafka_python(servers: str, topic: str, count: int, **options: object) -> list[Row]:
    consumer = KafkaConsumer(bootstrap_servers=servers, **options)
    partition = KafkaPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    rows: list[Row] = []

    def enough() -> bool:
        rows.extend(
            Row(record.key, record.value, tuple(record.headers))
            for record in consumer.poll(200).get(partition, [])
        )
        return len(rows) >= count

    eventually(enough, 30)
    consumer.close()
    return rows


# -- aiokafka ---------------------------------------------------------------------------------


def write_aiokafka(servers: str, topic: str, rows: list[Row], codec: str) -> None:
    async def write() -> list[int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers, compression_type=None if codec == "none" else codec
        )
        await producer.start()
        futures = [
            await producer.send(topic, key=row.key, value=row.value, headers=list(row.headers))
            for row in rows
        ]
        offsets = [(await future).offset for future in futures]
        await producer.stop()
        return offsets

    assert asyncio.run(write()) == list(range(len(rows)))


def read_aiokafka(servers: str, topic: str, count: int) -> list[Row]:
    async def read() -> list[Row]:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers)
        await consumer.start()
        partition = AioPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        rows = []
        while len(rows) < count:
            record = await asyncio.wait_for(consumer.getone(), 30)
            rows.append(Row(record.key, record.value, tuple(record.headers)))
        await consumer.stop()
        return rows

    return asyncio.run(read())


# -- kcat -------------------------------------------------------------------------------------


def kcat(*arguments: str, text: bytes = b"") -> bytes:
    ended = subprocess.run(
        ["kcat", *arguments], input=text, capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout


def read_kcat(servers: str, topic: str, count: int) -> list[Row]:
    """Parse kcat's key length, key, value length and value: null has the length -1."""
    found = kcat(
        "-C", "-q", "-b", servers, "-t", topic, "-p", "0", "-o", "beginning",
        "-c", str(count), "-f", "%K:%k%S:%s",
    )  # fmt: skip
    rows = []
    for _ in range(count):
        parts: list[bytes | None] = []
        for _ in range(2):
            size, _, found = found.partition(b":")
            length = int(size)
            parts.append(None if length < 0 else found[:length])
            found = found[max(length, 0) :]
        rows.append(Row(parts[0], parts[1]))
    return rows


WRITERS: dict[str, Callable[[str, str, list[Row], str], None]] = {
    "confluent": write_confluent,
    "kafka-python": write_kafka_python,
    "aiokafka": write_aiokafka,
}
READERS: dict[str, Callable[[str, str, int], list[Row]]] = {
    "confluent": read_confluent,
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
}


# -- what one writes, all read ----------------------------------------------------------------


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("codec", CODECS)
def test_every_client_reads_what_each_writes(
    broker: BrokerProcess, topic: str, writer: str, codec: str
) -> None:
    servers = broker.bootstrap_servers
    with RawClient(broker.address) as client:
        create_topic(client, topic)
        WRITERS[writer](servers, topic, ROWS, codec)
        stored = read_all(client, topic)
    assert [(each.key, each.value, tuple(each.headers)) for each in stored] == ROWS
    for reader, read in READERS.items():
        assert read(servers, topic, len(ROWS)) == ROWS, reader
    assert read_kcat(servers, topic, len(ROWS)) == PLAIN_ROWS


def test_every_client_reads_odd_compressed_batches_that_are_accepted(
    broker: BrokerProcess, topic: str
) -> None:
    """Two gzip members, bytes behind an lz4 frame and so on; librdkafka would abort the process, or
    get no further, if these were stored as they are sent."""
    rows: list[Row] = []
    with RawClient(broker.address) as client:
        create_topic(client, topic)
        for case in cases():
            version = 9 if case.magic == 2 else 2
            if not produce(client, topic, case.records, version=version).error_code:
                rows += [Row(None, value) for value in case.values]
    assert len(rows) > 600
    for reader, read in READERS.items():
        assert read(broker.bootstrap_servers, topic, len(rows)) == rows, reader


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_writes(broker: BrokerProcess, topic: str, codec: str) -> None:
    servers = broker.bootstrap_servers
    rows = [Row(b"k%d" % number, b"v" * number, (("a", b"b"),)) for number in range(1, 300)]
    text = b"".join(b"%s|%s\n" % (row.key, row.value) for row in rows)
    arguments = ["-P", "-b", servers, "-t", topic, "-K", "|", "-H", "a=b", "-z", codec]
    kcat(*arguments, "-X", "linger.ms=100", text=text)
    assert read_confluent(servers, topic, len(rows)) == rows
    with RawClient(broker.address) as client:
        assert len(read_all(client, topic)) == len(rows)


def test_kcat_lists_the_cluster(broker: BrokerProcess) -> None:
    with RawClient(broker.address) as client:
        create_topic(client, "listed", partitions=3)
    found = kcat("-L", "-b", broker.bootstrap_servers).decode()
    assert f"broker 0 at {broker.bootstrap_servers} (controller)" in found
    assert 'topic "listed" with 3 partitions' in found


def test_kcat_asks_for_offsets_by_time(broker: BrokerProcess, topic: str) -> None:
    servers = broker.bootstrap_servers
    write_confluent(servers, topic, ROWS, "none")
    assert kcat("-Q", "-b", servers, "-t", f"{topic}:0:-1").decode().split()[-1] == str(len(ROWS))
    assert kcat("-Q", "-b", servers, "-t", f"{topic}:0:1").decode().split()[-1] == "0"


# -- clients that speak as to old brokers -----------------------------------------------------


@pytest.mark.parametrize("version", [(0, 8, 2), (0, 9), (0, 10), (0, 11)], ids=str)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_kafka_python_as_to_an_old_broker(
    servers: str, topic: str, version: tuple[int, ...], codec: str
) -> None:
    rows = ROWS if version >= (0, 11) else PLAIN_ROWS
    options: dict[str, object] = {"api_version": version}
    idempotent = {"enable_idempotence": False} if version < (0, 11) else {}
    write_kafka_python(servers, topic, rows, codec, **options, **idempotent)
    assert read_kafka_python(servers, topic, len(rows), **options) == rows
    # New clients read the old client's records, and the old client reads those of new ones.
    assert read_confluent(servers, topic, len(rows)) == rows
    write_confluent(servers, topic, PLAIN_ROWS, "gzip")
    both = read_kafka_python(servers, topic, len(rows) + len(PLAIN_ROWS), **options)
    assert both == rows + PLAIN_ROWS


@pytest.mark.parametrize("fallback", ["0.8.2", "0.9.0", "0.10.0", "0.10.2"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_librdkafka_without_api_versions(
    servers: str, topic: str, fallback: str, codec: str
) -> None:
    options = {"api.version.request": "false", "broker.version.fallback": fallback}
    write_confluent(servers, topic, PLAIN_ROWS, codec, **options)
    assert read_confluent(servers, topic, len(PLAIN_ROWS), **options) == PLAIN_ROWS
    assert read_aiokafka(servers, topic, len(PLAIN_ROWS)) == PLAIN_ROWS


def test_librdkafka_with_idempotence_and_many_batches(broker: BrokerProcess, topic: str) -> None:
    rows = [Row(b"%d" % number, b"v" * 50) for number in range(20_000)]
    write_confluent(
        broker.bootstrap_servers,
        topic,
        rows,
        "lz4",
        **{"enable.idempotence": True, "batch.num.messages": 100, "linger.ms": 0},
    )
    with RawClient(broker.address) as client:
        stored = read_all(client, topic)
    assert [(each.key, each.value) for each in stored] == [(row.key, row.value) for row in rows]
