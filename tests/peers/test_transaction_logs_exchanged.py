"""Logs in the middle of transactions are taken over: from Kafka to klog, and from klog to Kafka.

Each broker serves the other one's log, to readers of committed records and to others, and builds
the same transaction index from the same batches.
"""

import os
import shutil
import signal
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from klog_broker.log.log_config import LogConfig
from klog_broker.runtime.disk.files import RealFiles
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.ids import TopicId, TopicPartition
from pyspark_klog.storage.transaction_index import AbortedEntry, decode_transaction_index
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.kafka.dump_log_segments import dump
from tests.support.log.harness import open_manager
from tests.support.log.transactional_log import append_end_marker, write
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer

pytestmark = pytest.mark.peers

TOPIC = "moved"
PARTITION = ConfluentPartition(TOPIC, 0)
FOREVER = {"retention.ms": "-1", "segment.bytes": str(1 << 20)}
CLEAN = ".kafka_cleanshutdown"
Seen = tuple[list[bytes], int, list[bytes], int, str]


@pytest.mark.parametrize("version", [OLDEST_KAFKA, NEWEST_KAFKA])
def test_from_kafka_to_klog(tmp_path: Path, version: str) -> None:
    killed, stopped = tmp_path / "killed", tmp_path / "stopped"
    with KafkaServer(version) as kafka:
        with Admin(kafka.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1, FOREVER)])
        # Held here, so that the last one stays open.
        producers = _write_on_kafka(kafka.bootstrap_servers)
        seen = _seen(kafka, kafka.bootstrap_servers)
        kafka.restart(meanwhile=lambda: shutil.copytree(kafka.log_dir, killed))
        os.kill(kafka.pid, signal.SIGTERM)
        marker = kafka.log_dir / CLEAN
        eventually(marker.exists, deadline_s=60, what="Kafka's clean shutdown")
        shutil.copytree(kafka.log_dir, stopped)
        del producers
        committed, stable, everything, end_offset, _ = seen
        assert 0 < len(committed) < len(everything)
        assert stable < end_offset
        indexes = _indexes(killed)
        assert sum(map(len, indexes)) > 5
        # A start after a kill builds the transaction indexes from the batches.
        for path in (killed / f"{TOPIC}-0").glob("*.txnindex"):
            path.unlink()
        (killed / "recovery-point-offset-checkpoint").unlink()
        for data in (killed, stopped):
            with BrokerProcess(data, options=["--adopt"]) as broker:
                assert _seen(kafka, broker.bootstrap_servers) == seen
                assert _indexes(data) == indexes
                _send(Producer({"bootstrap.servers": broker.bootstrap_servers}), b"later", 3)
            with BrokerProcess(data) as broker:
                found = _seen(kafka, broker.bootstrap_servers)
                assert found[:2] == (committed, stable), "behind the open transaction"
                assert found[2][: len(everything)] == everything
                assert len(found[2]) == len(everything) + 3


@pytest.mark.parametrize("version", [OLDEST_KAFKA, NEWEST_KAFKA])
@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_from_klog_to_kafka(tmp_path: Path, version: str, ending: str) -> None:
    with KafkaServer(version) as kafka:
        with Admin(kafka.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1, FOREVER)])
            topic_id = admin.describe_topics([TOPIC])[TOPIC].topic_id
        folder, committed = _write_on_klog(tmp_path, TopicId(topic_id))
        files = sorted(folder.iterdir())
        for suffix in (".log", ".txnindex", ".snapshot"):
            dump(version, [each for each in files if each.suffix == suffix])
        indexes = _indexes(tmp_path)
        assert sum(map(len, indexes)) > 5
        os.kill(kafka.pid, signal.SIGTERM)
        marker = kafka.log_dir / CLEAN
        eventually(marker.exists, deadline_s=60, what="Kafka's clean shutdown")

        def put_in_place() -> None:
            shutil.rmtree(kafka.log_dir / folder.name)
            shutil.copytree(folder, kafka.log_dir / folder.name)
            if ending == "killed":
                marker.unlink()
                for path in (kafka.log_dir / folder.name).glob("*.txnindex"):
                    path.unlink()

        kafka.restart(meanwhile=put_in_place)
        found = _seen(kafka, kafka.bootstrap_servers)
        assert found[0] == committed
        assert _indexes(kafka.log_dir) == indexes


def _write_on_kafka(servers: str) -> list[Producer]:
    """Two producers at a time, commits and aborts in several segments, and one that stays open."""
    random = Random(5)
    settings = {"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0}
    plain = Producer(settings)
    producers = [Producer({**settings, "transactional.id": f"id-{n}"}) for n in range(3)]
    for producer in producers:
        producer.init_transactions(60)
    for number in range(20):
        for producer in producers[:2]:
            producer.begin_transaction()
        for _ in range(2):
            for producer in producers[:2]:
                _send(producer, b"%d" % number, random.randint(1, 5))
            _send(plain, b"plain", 2)
        for producer in producers[:2]:
            if random.random() < 0.5:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
    producers[2].begin_transaction()
    _send(producers[2], b"open", 3)
    _send(plain, b"plain", 3)
    return [plain, *producers]


def _write_on_klog(data: Path, topic_id: TopicId) -> tuple[Path, list[bytes]]:
    """The same by klog's log: its folder, and what a reader of committed records sees of it."""
    random = Random(6)
    config = LogConfig(segment_bytes=30_000, segment_index_bytes=4_000, index_interval_bytes=600)
    manager = open_manager(RealFiles(), config=config, directory=data)
    log = manager.create(TopicPartition(TOPIC, 0), topic_id, config)
    log.flush()
    sequences = [0] * 5
    written: list[tuple[int, bytes]] = []
    fates: dict[int, bool] = {}

    def put(producer_id: int, count: int) -> None:
        value = b"%d-%d" % (producer_id, sequences[producer_id]) + bytes(random.randint(1, 3_000))
        is_transactional = producer_id > 0
        write(
            log,
            producer_id,
            sequences[producer_id],
            count,
            is_transactional=is_transactional,
            value=value,
        )
        sequences[producer_id] += count
        written.extend([(producer_id * 1_000 + rounds, value)] * count)

    for rounds in range(20):
        fates[rounds] = True
        for _ in range(2):
            for producer_id in range(3):
                put(producer_id, random.randint(1, 3))
        for producer_id in (1, 2):
            fates[producer_id * 1_000 + rounds] = random.random() < 0.5
            append_end_marker(log, producer_id, commit=fates[producer_id * 1_000 + rounds])
    rounds = 999
    fates[rounds] = False
    put(4, 2)
    put(0, 2)
    assert len(log.segments) >= 4
    manager.close()
    return log.path, [value for key, value in written if fates.get(key)]


def _send(producer: Producer, text: bytes, count: int) -> None:
    for _ in range(count):
        producer.produce(TOPIC, text + b":" + bytes(8_000), partition=0)
    assert producer.flush(60) == 0


def _seen(kafka: KafkaServer, servers: str) -> Seen:
    """Return the partition as clients see it: committed records, all records, its producers."""
    described = kafka.run_tool(
        "org.apache.kafka.tools.TransactionsCommand",
        *("--bootstrap-server", servers, "describe-producers", "--topic", TOPIC),
        *("--partition", "0"),
    )
    assert described.returncode == 0, described.stderr
    rows = sorted(line.split() for line in described.stdout.splitlines()[1:])
    return (
        *_read(servers, "read_committed"),
        *_read(servers, "read_uncommitted"),
        repr(rows),
    )


def _read(servers: str, level: str) -> tuple[list[bytes], int]:
    """All values up to the end that a consumer of this isolation level has, and that end."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "readers",
            "isolation.level": level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # A small limit gives several responses, each with its own list of aborted transactions.
            "fetch.message.max.bytes": 50_000,
        }
    )
    consumer.assign([ConfluentPartition(TOPIC, 0, 0)])
    values: list[bytes] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"no end of {level} after {len(values)} values"
        if message.error():
            break
        values.append(message.value() or b"")
    consumer.close()
    return values, message.offset() or 0


def _indexes(data: Path) -> list[list[AbortedEntry]]:
    """The rows of each segment, those of empty files and of none alike."""
    folder = data / f"{TOPIC}-0"
    found = []
    for log in sorted(folder.glob("*.log")):
        path = log.with_suffix(".txnindex")
        found.append(list(decode_transaction_index(path.read_bytes())) if path.exists() else [])
    return found
