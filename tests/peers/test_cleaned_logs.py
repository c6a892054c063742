"""Logs that Apache Kafka's cleaner has cleaned: klog serves the same, and its tools take them."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from klog_broker.cli.commands import command
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.source.reader import BatchReader
from pyspark_klog.spark.source.segment_reader import SegmentReader
from tests.support.broker_process import BrokerProcess
from tests.support.compaction import cleaner_input
from tests.support.compaction import cleaner_oracle as oracle
from tests.support.eventually import eventually
from tests.support.kafka.directories import decoder_option, kafkas_dump, log_files
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer
from tests.support.raw_client import RawClient
from tests.support.raw_requests import create_topic

pytestmark = pytest.mark.peers

OFFSETS = "__consumer_offsets"
GROUPS = ("steady", "moved", "gone")
PARTITIONS = 40
SETTINGS = {**cleaner_input.BROKER_SETTINGS, "offsets.topic.segment.bytes": str(1 << 20)}
Offsets = dict[tuple[str, int], int]


@dataclass
class Cleaned:
    """The records that Kafka served, and its directory, which no broker uses any more."""

    version: str
    data: Path
    served: dict[str, oracle.Served]
    offsets: dict[str, Offsets]


@pytest.fixture(scope="module", params=[OLDEST_KAFKA, NEWEST_KAFKA])
def cleaned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cleaned]:
    version, data = request.param, tmp_path_factory.mktemp("cleaned") / "data"
    with KafkaServer(version, properties=SETTINGS) as kafka:
        address = ("127.0.0.1", kafka.port)
        cleaner_input.create_topics(kafka.bootstrap_servers)
        for number in range(4):
            with RawClient(address) as client:
                cleaner_input.set_cleaning(client, cleaner_input.HELD_OFF)
                with_producers = number < 2
                writer = cleaner_input.Writer(client, 7, version)
                writer.write(number, 100 if with_producers else 40, with_producers=with_producers)
                cleaner_input.set_cleaning(client, cleaner_input.EAGER)
                oracle.until_cleaned(client, kafka.log_dir)
            if number == 0:
                kafka.restart()  # for another leader epoch
        with RawClient(address) as client:
            _commit(client, kafka)
            served = _served(client)
            offsets = {group: _offsets(client, group) for group in GROUPS}
        kafka.shut_down()
        shutil.copytree(kafka.log_dir, data)
    yield Cleaned(version, data, served, offsets)


def _served(client: RawClient) -> dict[str, oracle.Served]:
    return {topic: oracle.served(client, topic, last_epoch=0) for topic in cleaner_input.TOPICS}


def _commit(client: RawClient, kafka: KafkaServer) -> None:
    """More than a segment of offsets, so that those before the last are cleaned away."""
    create_topic(client, "many", PARTITIONS)
    for group in GROUPS:
        request = FindCoordinatorRequest(key=group, key_type=0)
        eventually(lambda r=request: client.call(r, 3).error_code == 0, 30)
    for number in range(12):
        for group in GROUPS[: 2 if number else 3]:
            eventually(lambda g=group, n=number: _commit_offsets(client, g, n), 30)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for done in admin.delete_consumer_groups(["gone"]).values():
        done.result()
    for number in range(12, 18):
        assert _commit_offsets(client, "moved", number)
    cleaner_input.set_cleaning(client, cleaner_input.EAGER, [OFFSETS])
    oracle.until_cleaned(client, kafka.log_dir, [OFFSETS])


def _commit_offsets(client: RawClient, group: str, number: int) -> bool:
    rows = [
        OffsetCommitRequestPartition(
            partition_index=each,
            committed_offset=number * 100 + each,
            committed_metadata="m" * 2_000,
        )
        for each in range(PARTITIONS)
    ]
    topics = [OffsetCommitRequestTopic(name="many", partitions=rows)]
    answer = client.call(OffsetCommitRequest(group_id=group, topics=topics), 7)
    return {row.error_code for row in answer.topics[0].partitions} == {0}


def _offsets(client: RawClient, group: str) -> Offsets:
    """All that the coordinator knows of the group."""
    found: Offsets = {}

    def is_loaded() -> bool:
        answer = client.call(OffsetFetchRequest(group_id=group, topics=None), 7)
        assert answer.error_code == 0, answer
        for topic in answer.topics:
            for row in topic.partitions:
                found[topic.name, row.partition_index] = row.committed_offset
        return True

    eventually(is_loaded, 30)
    return found


def test_klog_serves_what_kafka_served(cleaned: Cleaned, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(cleaned.data, data)
    for options in (["--adopt"], []):
        settings = {"log.cleaner.enable": "false"}
        broker = BrokerProcess(data, settings, options=options)
        with broker, RawClient(broker.address) as client:
            if options:
                assert _served(client) == cleaned.served
            for group in GROUPS:
                assert _offsets(client, group) == cleaned.offsets[group]
            for topic, served in cleaned.served.items():
                for level, rows in zip(("uncommitted", "committed"), served.rows, strict=True):
                    found = _consumed(broker.bootstrap_servers, topic, f"read_{level}")
                    assert found == [(row[0], row[2], row[3]) for row in rows]
            _check_connector(broker.bootstrap_servers, cleaned.served)
    assert len(cleaned.offsets["moved"]) == len(cleaned.offsets["steady"]) == PARTITIONS
    assert not cleaned.offsets["gone"]


def _consumed(
    servers: str, topic: str, isolation: str
) -> list[tuple[int, bytes | None, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "readers",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break
        found.append((int(message.offset() or 0), message.key(), message.value()))
    consumer.close()
    return found  # type: ignore[return-value]


def _check_connector(servers: str, served: dict[str, oracle.Served]) -> None:
    for topic, expected in served.items():
        for isolation, rows in zip(("uncommitted", "committed"), expected.rows, strict=True):
            options = {
                "subscribe": topic,
                "kafka.bootstrap.servers": servers,
                "kafka.isolation.level": f"read_{isolation}",
                "maxRecordsPerPartition": "97",
            }
            assert _rows(BatchReader(read_options(options).for_batch())) == _keys(rows)


def _keys(rows: list[oracle.Row]) -> list[tuple[object, ...]]:
    return [row[:4] for row in rows]


def _rows(reader: BatchReader) -> list[tuple[object, ...]]:
    """Return the rows of all tasks, in order."""
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    table = pa.Table.from_batches(batches)
    times = table["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    columns = (table["offset"], times, table["key"], table["value"])
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def test_segment_files_give_what_kafka_served(cleaned: Cleaned) -> None:
    for topic, served in cleaned.served.items():
        for isolation, rows in zip(("uncommitted", "committed"), served.rows, strict=True):
            options = {
                "subscribe": topic,
                "path": str(cleaned.data),
                "kafka.isolation.level": f"read_{isolation}",
                "maxRecordsPerPartition": "97",
            }
            assert _rows(SegmentReader(read_options(options).for_batch())) == _keys(rows)
            times = [(at, found) for (lvl, at), found in served.offsets.items() if lvl and at > 0]
            for at_ms, (offset, _) in times[::17]:
                if offset < 0:
                    continue
                begin = {**options, "startingTimestamp": str(at_ms)}
                found = _rows(SegmentReader(read_options(begin).for_batch()))
                assert found == _keys([row for row in rows if row[0] >= offset])


def test_verify_and_dump_log_understand_the_files(cleaned: Cleaned) -> None:
    result = CliRunner().invoke(command, ["verify", str(cleaned.data)])
    assert result.exit_code == 0, result.output
    for name in (*cleaner_input.TOPICS, OFFSETS):
        folder = cleaned.data / f"{name}-0"
        files = log_files(folder)
        expected = kafkas_dump(cleaned.version, files, *decoder_option(folder))
        names = ",".join(map(str, files))
        arguments = ["dump-log", "--print-data-log", "--files", names]
        result = CliRunner().invoke(command, arguments)
        assert (result.output, result.exit_code) == (expected, 0), name
