"""Apache Kafka's own tools on klog's broker: the newest versions of each request, and topic ids."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from pyspark_klog.client.consumer.fetcher import RangeFetcher
from pyspark_klog.client.consumer.lost_offsets import OffsetsLost
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.batch import split_batches
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.record import Header, Record
from tests.support.broker_process import BrokerProcess
from tests.support.client.cases import client_of, new_topic
from tests.support.kafka.dump_log_segments import dump
from tests.support.peers import KAFKA_4_4, NEWEST_KAFKA, OLDEST_KAFKA, run_tool

VERSIONS = [OLDEST_KAFKA, NEWEST_KAFKA, KAFKA_4_4]
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}

TOPICS = "org.apache.kafka.tools.TopicCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
PRODUCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUME = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

# 4.3 deprecates the names of 3.9's options, and 3.9 does not know 4.3's.
PRODUCER_OPTION = dict.fromkeys(VERSIONS, "--command-property") | {OLDEST_KAFKA: "--producer-props"}
PRINTING_OPTION = dict.fromkeys(VERSIONS, "--formatter-property") | {OLDEST_KAFKA: "--property"}

RECORDS = 20_000
AT_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("klog") / "data", SETTINGS) as broker:
        yield broker.bootstrap_servers


def _run(version: str, main_class: str, *arguments: str) -> str:
    """Return the output of a tool, which must exit with 0 and log no warning."""
    result = run_tool(version, main_class, arguments)
    assert result.returncode == 0, result.stdout[-2_000:] + result.stderr[-2_000:]
    # 4.3.1 logs to stderr; 3.9.1's jars log nothing without a configuration.
    warned = re.search(r"^\[.*\] (WARN|ERROR) .*", result.stderr, re.M)
    assert warned is None, warned.group()
    return result.stdout


def _produce(
    version: str, servers: str, topic: str, *properties: str, records: int = RECORDS
) -> None:
    """Writes the numbers from 0 on, as text; the tool prints what became of every record."""
    output = _run(
        version,
        PRODUCE,
        *("--topic", topic, "--num-records", str(records), "--payload-monotonic"),
        *("--throughput", "-1"),
        *(PRODUCER_OPTION[version], f"bootstrap.servers={servers}", *properties),
    )
    assert re.search(rf"^{records} records sent, ", output, re.M), output
    assert "Exception" not in output


def _consume(version: str, servers: str, topic: str, count: int, *options: str) -> list[str]:
    output = _run(
        version,
        CONSUME,
        *("--bootstrap-server", servers, "--topic", topic),
        *("--max-messages", str(count), "--timeout-ms", "20000", *options),
    )
    lines = output.splitlines()
    assert len(lines) == count
    return lines


def _numbers(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]


def _end_offsets(version: str, servers: str, topic: str) -> dict[int, int]:
    output = _run(version, OFFSETS, "--bootstrap-server", servers, "--topic", topic)
    rows = [line.split(":") for line in output.splitlines()]
    assert all(row[0] == topic for row in rows)
    return {int(partition): int(offset) for _topic, partition, offset in rows}


def _group(version: str, servers: str, group: str) -> list[tuple[str, ...]]:
    """Topic, partition, committed offset, end and lag of each partition."""
    output = _run(version, GROUPS, "--bootstrap-server", servers, "--describe", "--group", group)
    rows = [line.split() for line in output.splitlines() if line.startswith(f"{group} ")]
    return sorted(tuple(row[1:6]) for row in rows)


def test_topics_are_created_described_listed_and_deleted(servers: str) -> None:
    def topics(*arguments: str) -> str:
        return _run(NEWEST_KAFKA, TOPICS, "--bootstrap-server", servers, *arguments)

    name = "made-by-a-tool"
    settings = ["--config", "retention.ms=123456", "--config", "segment.bytes=2000000"]
    assert topics("--create", "--topic", name, "--partitions", "3", *settings).splitlines() == [
        f"Created topic {name}."
    ]
    described = topics("--describe", "--topic", name)
    summary, *partitions = [
        dict(re.findall(r"(\w+): (\S+)", line)) for line in described.splitlines()
    ]
    assert (summary["Topic"], summary["PartitionCount"]) == (name, "3")
    assert re.fullmatch(r"[\w-]{22}", summary["TopicId"])
    assert set(summary["Configs"].split(",")) == {"retention.ms=123456", "segment.bytes=2000000"}
    assert [row["Partition"] for row in partitions] == ["0", "1", "2"]
    assert {(row["Leader"], row["Replicas"], row["Isr"]) for row in partitions} == {("0", "0", "0")}
    topics("--alter", "--topic", name, "--partitions", "5")
    assert _end_offsets(NEWEST_KAFKA, servers, name) == dict.fromkeys(range(5), 0)
    assert name in topics("--list").splitlines()
    topics("--delete", "--topic", name)
    assert name not in topics("--list").splitlines()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_reads_on_where_it_stopped(servers: str, version: str) -> None:
    """Written with acks=all and idempotence, the default of both releases."""
    topic, group = new_topic(servers, 1), f"group-{version}"
    _produce(version, servers, topic)
    assert _end_offsets(version, servers, topic) == {0: RECORDS}
    first = RECORDS * 3 // 5
    joined = ("--group", group, "--from-beginning")
    assert _consume(version, servers, topic, first, *joined) == _numbers(0, first)
    lag = RECORDS - first
    assert _group(version, servers, group) == [(topic, "0", str(first), str(RECORDS), str(lag))]
    assert _consume(version, servers, topic, lag, *joined) == _numbers(first, RECORDS)
    assert _group(version, servers, group) == [(topic, "0", str(RECORDS), str(RECORDS), "0")]
    assert group in _run(version, GROUPS, "--bootstrap-server", servers, "--list").splitlines()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_codec_and_every_acks(servers: str, version: str) -> None:
    topic, records = new_topic(servers, 3), 3_000
    for codec, acks in [
        ("none", "0"),
        ("gzip", "1"),
        ("snappy", "0"),
        ("lz4", "1"),
        ("zstd", "all"),
        ("zstd", "0"),
    ]:
        properties = (f"compression.type={codec}", f"acks={acks}", "batch.size=4096")
        _produce(version, servers, topic, *properties, records=records)
    # With acks=0 the last may still be under way when its producer ends: the consumer waits.
    found = _consume(version, servers, topic, 6 * records, "--from-beginning")
    assert Counter(found) == dict.fromkeys(_numbers(0, records), 6)
    ends = _end_offsets(version, servers, topic)
    assert sum(ends.values()) == 6 * records
    assert _codecs(servers, topic, ends) == set(Codec)


def _codecs(servers: str, topic: str, ends: dict[int, int]) -> set[Codec]:
    """Return the codecs of the stored batches."""

    def fail(lost: OffsetsLost) -> None:
        raise lost

    with client_of(servers) as client:
        return {
            batch.codec
            for number, end in ends.items()
            for chunk in RangeFetcher(
                client,
                TopicPartition(topic, number),
                0,
                end,
                progress_timeout_ms=20_000,
                on_lost=fail,
            )
            for batch in split_batches(chunk.data, allow_partial=True)
        }


def _odd_records() -> list[Record]:
    headers = (Header("h", b"1"), Header("none", None), Header("h", b""))
    rows: list[tuple[bytes | None, bytes | None, tuple[Header, ...]]] = [
        (b"key", b"value", headers),
        (None, b"no key", ()),
        (b"no value", None, headers[:1]),
        (b"", b"", ()),
        (None, None, ()),
        ("Schlüssel".encode(), "値".encode(), (Header("ü", "ö".encode()),)),
        (b"long", b"x" * 100_000, ()),
    ]
    return [
        Record(offset, AT_MS + 1_000 * offset, 0, key, value, found)
        for offset, (key, value, found) in enumerate(rows)
    ]


def _write_with_klog(servers: str, partition: TopicPartition, records: list[Record]) -> None:
    builder = BatchBuilder(codec=Codec.ZSTD)
    for record in records:
        builder.append(record.key, record.value, record.timestamp_ms, record.headers)
    with client_of(servers) as client:
        producer = Producer(client)
        producer.add(partition, builder.build(), builder.record_count)
        producer.flush()


def _write_with_librdkafka(servers: str, partition: TopicPartition, records: list[Record]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": "all"})
    for record in records:
        producer.produce(
            partition.topic,
            record.value,
            record.key,
            partition=partition.partition,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
    assert producer.flush(20) == 0


def _printed(partition: int, record: Record) -> str:
    """Return a record in the console consumer's form: parts in its order, separated by tabs."""

    def text(data: bytes | None) -> str:
        return "null" if data is None else data.decode()

    headers = ",".join(f"{key}:{text(value)}" for key, value in record.headers)
    return "\t".join(
        [
            f"CreateTime:{record.timestamp_ms}",
            f"Partition:{partition}",
            f"Offset:{record.offset}",
            headers or "NO_HEADERS",
            text(record.key),
            text(record.value),
        ]
    )


def test_what_clients_write_is_printed_as_they_wrote_it(servers: str) -> None:
    topic, records = new_topic(servers, 2), _odd_records()
    _write_with_klog(servers, TopicPartition(topic, 0), records)
    _write_with_librdkafka(servers, TopicPartition(topic, 1), records)
    expected = {
        partition: [_printed(partition, record) for record in records] for partition in (0, 1)
    }
    for version in VERSIONS:
        option = PRINTING_OPTION[version]
        printing = [
            word
            for part in ("timestamp", "partition", "offset", "headers", "key", "value")
            for word in (option, f"print.{part}=true")
        ]
        lines = _consume(version, servers, topic, 2 * len(records), "--from-beginning", *printing)
        for partition, wanted in expected.items():
            assert [line for line in lines if f"\tPartition:{partition}\t" in line] == wanted


def _files(data: Path) -> list[Path]:
    """All that the tool reads of all the partitions that hold something, logs first."""
    logs = sorted(path for path in data.glob("*-*/*.log") if path.stat().st_size)
    kinds = ("index", "timeindex", "snapshot")
    others = [path for kind in kinds for log in logs for path in log.parent.glob(f"*.{kind}")]
    return logs + sorted(set(others))


def _part_of(dumped: str, topic: str) -> str:
    """Return the output about the files of the topic's one partition."""
    parts = re.split(r"^(?=Dumping )", dumped, flags=re.M)
    return "".join(part for part in parts if f"/{topic}-0/" in part.partition("\n")[0])


def _assert_dumps(data: Path, topic: str, records: int) -> None:
    for version in VERSIONS:
        files = _files(data)
        assert {path.suffix for path in files} == {".log", ".index", ".timeindex", ".snapshot"}
        assert any(path.parent.name.startswith("__consumer_offsets-") for path in files)
        assert sum(path.parent.name == f"{topic}-0" for path in files) > 6
        dumped = dump(version, files, "--deep-iteration")
        offsets = [
            int(found) for found in re.findall(r"^\| offset: (\d+)", _part_of(dumped, topic), re.M)
        ]
        assert offsets == list(range(records))
        assert "isvalid: false" not in dumped


def test_dump_log_segments_reads_a_brokers_directory(tmp_path: Path) -> None:
    """After a clean stop, and after kill -9 and a recovery.

    The broker has stopped each time, because the tool complains about preallocated indexes without
    entries while their broker runs, even about Kafka's own.
    """
    data, topic = tmp_path / "data", "dumped"
    settings = {**SETTINGS, "log.segment.bytes": 60_000, "log.index.interval.bytes": 1_000}
    properties = ("batch.size=2000", "compression.type=none")
    with BrokerProcess(data, settings) as broker:
        servers = broker.bootstrap_servers
        # A producer warns of a topic that its own Metadata request creates, as on Kafka.
        _run(NEWEST_KAFKA, TOPICS, "--bootstrap-server", servers, "--create", "--topic", topic)
        _produce(NEWEST_KAFKA, servers, topic, *properties, records=RECORDS)
        _consume(NEWEST_KAFKA, servers, topic, 10, "--group", "g", "--from-beginning")
        assert broker.terminate() == 0
    _assert_dumps(data, topic, RECORDS)
    with BrokerProcess(data, settings) as broker:
        _produce(OLDEST_KAFKA, broker.bootstrap_servers, topic, *properties, records=RECORDS)
        broker.kill()
    with BrokerProcess(data, settings) as broker:
        group = _group(NEWEST_KAFKA, broker.bootstrap_servers, "g")
        assert group == [(topic, "0", "10", str(2 * RECORDS), str(2 * RECORDS - 10))]
        assert broker.terminate() == 0
    _assert_dumps(data, topic, 2 * RECORDS)
