"""Apache Kafka's own data directory, read as files while its broker runs, and after kill -9.

The broker's records, read with the same options, are the expected ones.
"""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.source.reader import BatchReader
from pyspark_klog.spark.source.segment_reader import SegmentReader
from pyspark_klog.storage import names
from pyspark_klog.storage.data_directory import read_checkpoint
from tests.support.eventually import eventually
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer

pytestmark = pytest.mark.parity("beyond: 11 segment files")

# The least that Kafka 4 takes.
_SEGMENT_BYTES = 1 << 20
_PROPERTIES = {
    "log.segment.bytes": str(_SEGMENT_BYTES),
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    "auto.create.topics.enable": "false",
}
_COMMITTED = {"kafka.isolation.level": "read_committed"}
_DEADLINE_S = 90


@pytest.fixture(scope="module", params=[OLDEST_KAFKA, NEWEST_KAFKA])
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    with KafkaServer(request.param, properties=_PROPERTIES, heap_mb=384) as server:
        yield server


def _create(kafka: KafkaServer, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    with Admin(kafka.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1, settings)])


def _producer(kafka: KafkaServer, **settings: Any) -> Producer:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5, **named})


def _table(reader: BatchReader) -> pa.Table | None:
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    if not batches:
        return None
    return pa.Table.from_batches(batches).sort_by(
        [("partition", "ascending"), ("offset", "ascending")]
    )


def _options(topic: str, **options: str) -> dict[str, str]:
    return {"subscribe": topic, "includeHeaders": "true", **options}


def _from_files(data: Path, topic: str, **options: str) -> pa.Table | None:
    return _table(
        SegmentReader(read_options(_options(topic, path=str(data), **options)).for_batch())
    )


def _from_broker(kafka: KafkaServer, topic: str, **options: str) -> pa.Table | None:
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    return _table(BatchReader(read_options(_options(topic, **servers, **options)).for_batch()))


def _same(kafka: KafkaServer, topic: str, **options: str) -> pa.Table:
    found = _from_files(kafka.log_dir, topic, **options)
    expected = _from_broker(kafka, topic, **options)
    assert found is not None and expected is not None
    assert found.equals(expected)
    return found


def _until_committed(kafka: KafkaServer, topic: str, ends: dict[int, int]) -> None:
    def is_there() -> bool:
        found = read_checkpoint(kafka.log_dir, names.HIGH_WATERMARK_CHECKPOINT) or {}
        return all(found.get(TopicPartition(topic, p), -1) >= end for p, end in ends.items())

    eventually(is_there, deadline_s=_DEADLINE_S, what=f"the checkpoint having {ends}")


def test_a_rolled_topic_in_every_codec(kafka: KafkaServer) -> None:
    _create(kafka, "rolled", 2)
    random = Random(1)
    count = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = _producer(kafka, compression_type=codec, batch_num_messages=50)
        for _ in range(3_000):
            producer.produce(
                "rolled",
                random.randbytes(random.randint(0, 900)) or None,
                random.choice([None, b"%d" % count]),
                partition=0,
                timestamp=1_700_000_000_000 + count * 7 - random.randint(0, 60_000),
                headers=[("h", b"%d" % count), ("null", None)],
            )
            producer.poll(0)
            count += 1
        assert producer.flush(60) == 0
    _until_committed(kafka, "rolled", {0: count})
    assert len(list((kafka.log_dir / "rolled-0").glob("*.log"))) >= 3
    assert _same(kafka, "rolled").num_rows == count
    for start, end in ((17, 5_000), (4_999, 5_001), (9_876, 14_321)):
        bounds = {
            "startingOffsets": json.dumps({"rolled": {"0": start, "1": -2}}),
            "endingOffsets": json.dumps({"rolled": {"0": end, "1": -1}}),
        }
        assert _same(kafka, "rolled", minPartitions="5", **bounds).num_rows == end - start
    for number in range(0, count, 1_777):
        at_ms = str(1_700_000_000_000 + number * 7)
        found = _same(
            kafka,
            "rolled",
            startingTimestamp=at_ms,
            startingOffsetsByTimestampStrategy="latest",
        )
        assert 0 < found.num_rows <= count


def test_transactions(kafka: KafkaServer) -> None:
    """Two producers at a time, aborts in several segments, and at last one that stays open."""
    _create(kafka, "transactions")
    random = Random(2)
    plain = _producer(kafka)
    producers = [_producer(kafka, transactional_id=f"id-{n}") for n in range(3)]
    for producer in producers:
        producer.init_transactions(60)
    sent: dict[bytes, list[int]] = {b"committed": [], b"aborted": [], b"plain": [], b"open": []}

    def put(producer: Producer, fate: bytes, count: int) -> None:
        for _ in range(count):
            number = sum(map(len, sent.values()))
            sent[fate].append(number)
            value = b"%d:" % number + random.randbytes(4_000)
            producer.produce("transactions", value, fate, partition=0)
        assert producer.flush(60) == 0

    for _ in range(25):
        fates = [random.choice([b"committed", b"aborted"]) for _ in range(2)]
        for producer in producers[:2]:
            producer.begin_transaction()
        for _ in range(3):
            for producer, fate in zip(producers[:2], fates, strict=True):
                put(producer, fate, random.randint(1, 5))
            put(plain, b"plain", 2)
        for producer, fate in zip(producers[:2], fates, strict=True):
            if fate == b"aborted":
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
    directory = kafka.log_dir / "transactions-0"
    assert len(list(directory.glob("*.log"))) >= 3
    assert any(path.stat().st_size for path in directory.glob("*.txnindex"))

    producers[2].begin_transaction()
    put(producers[2], b"open", 3)
    put(plain, b"plain", 3)
    whole = _from_broker(kafka, "transactions")
    assert whole is not None
    _until_committed(kafka, "transactions", {0: whole["offset"][-1].as_py() + 1})
    found = _same(kafka, "transactions", **_COMMITTED)
    assert _numbers(found) == sorted(sent[b"committed"] + sent[b"plain"][:-3])
    assert _numbers(_same(kafka, "transactions")) == list(range(whole.num_rows))
    _same(kafka, "transactions", maxRecordsPerPartition="37", **_COMMITTED)

    producers[2].abort_transaction(60)
    put(plain, b"plain", 1)
    rest = sorted(sent[b"committed"] + sent[b"plain"])

    def is_stable() -> bool:
        read = _from_files(kafka.log_dir, "transactions", **_COMMITTED)
        return read is not None and _numbers(read) == rest

    eventually(is_stable, deadline_s=_DEADLINE_S, what="the open transaction having ended")
    _same(kafka, "transactions", **_COMMITTED)


def _numbers(table: pa.Table) -> list[int]:
    return [int(value.partition(b":")[0]) for value in table["value"].to_pylist()]


def test_records_that_were_deleted(kafka: KafkaServer) -> None:
    """DeleteRecords in the middle of a batch, before the segment can go."""
    _create(kafka, "cut")
    producer = _producer(kafka, batch_num_messages=1_000, linger_ms=50)
    for number in range(1_000):
        producer.produce("cut", b"%d:" % number, partition=0)
    assert producer.flush(60) == 0
    cut = ConfluentPartition("cut", 0, 333)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_records([cut])[cut].result(60)

    def is_cut() -> bool:
        found = read_checkpoint(kafka.log_dir, names.LOG_START_OFFSET_CHECKPOINT) or {}
        return found.get(TopicPartition("cut", 0)) == 333

    eventually(is_cut, deadline_s=_DEADLINE_S, what="the checkpoint of the log's start")
    _until_committed(kafka, "cut", {0: 1_000})
    assert _numbers(_same(kafka, "cut")) == list(range(333, 1_000))
    start = {"startingOffsets": json.dumps({"cut": {"0": 0}}), "failOnDataLoss": "false"}
    assert _numbers(_same(kafka, "cut", **start)) == list(range(333, 1_000))


def test_a_compacted_topic_while_it_is_cleaned(kafka: KafkaServer) -> None:
    """The cleaner replaces and merges segments under the reader: nobody's last value is missed."""
    _create(
        kafka,
        "compacted",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="1000",
        segment_ms="1000",
    )
    random = Random(3)
    producer = _producer(kafka)
    last: dict[bytes, int] = {}
    directory = kafka.log_dir / "compacted-0"
    read = 0
    deadline = time.monotonic() + _DEADLINE_S
    number = 0
    while time.monotonic() < deadline:
        for _ in range(800):
            key = b"%d" % random.randint(0, 99)
            producer.produce("compacted", b"%d:" % number + bytes(700), key, partition=0)
            last[key] = number
            number += 1
        assert producer.flush(60) == 0
        _until_committed(kafka, "compacted", {0: number})
        table = _from_files(kafka.log_dir, "compacted")
        assert table is not None
        found = dict(zip(table["key"].to_pylist(), _numbers(table), strict=True))
        assert found == last
        read += 1
        if read >= 8 and _is_cleaned(directory, number):
            break
    assert _is_cleaned(directory, number)

    def is_same() -> bool:
        files, broker = _from_files(kafka.log_dir, "compacted"), _from_broker(kafka, "compacted")
        return files is not None and broker is not None and files.equals(broker)

    eventually(is_same, deadline_s=_DEADLINE_S, what="files and broker agreeing")


def _is_cleaned(directory: Path, written: int) -> bool:
    size = 0
    for path in directory.glob("*.log"):
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size < written * 700 // 2


@pytest.mark.parametrize("version", [OLDEST_KAFKA, NEWEST_KAFKA])
def test_files_after_kill_9(version: str) -> None:
    """A copy of a disk may lack the checkpoint: all whole batches are read."""
    with KafkaServer(version, properties=_PROPERTIES, heap_mb=320) as kafka:
        _create(kafka, "killed")
        producer = _producer(kafka)
        for number in range(5_000):
            producer.produce("killed", b"%d:" % number + bytes(500), partition=0)
        assert producer.flush(60) == 0
        expected = _from_broker(kafka, "killed")
        os.kill(kafka.pid, signal.SIGKILL)
        eventually(
            lambda: _is_gone(kafka.port), deadline_s=_DEADLINE_S, what="the broker having ended"
        )
        (kafka.log_dir / names.HIGH_WATERMARK_CHECKPOINT).unlink()
        found = _from_files(kafka.log_dir, "killed", stopped="true")
        assert found is not None and expected is not None and found.equals(expected)


def _is_gone(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return False
    return True
