"""A directory that Apache Kafka wrote, taken in by klog: topics with their ids, records, groups."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.metadata import TopicInfo
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer

pytestmark = pytest.mark.peers

TOPICS = {"flights": 3, "airports": 1}
RECORDS = 3_000
COMMITTED = 700
Found = dict[tuple[str, int], list[tuple[int, bytes | None]]]


@pytest.mark.parametrize("version", [OLDEST_KAFKA, NEWEST_KAFKA])
def test_kafkas_directory_is_taken_in(tmp_path: Path, version: str) -> None:
    killed, stopped = tmp_path / "killed", tmp_path / "stopped"
    with KafkaServer(version) as kafka:
        with Admin(kafka.bootstrap_servers) as admin:
            compacted = NewTopic("airports", 1, 1, {"cleanup.policy": "compact"})
            admin.create_topics([NewTopic("flights", 3, 1, {}), compacted])
            _produce(kafka.bootstrap_servers, RECORDS)
            topics = admin.describe_topics(list(TOPICS))
        _commit(kafka.bootstrap_servers)
        found = _read(kafka.bootstrap_servers)
        kafka.restart(meanwhile=lambda: shutil.copytree(kafka.log_dir, killed))
        os.kill(kafka.pid, signal.SIGTERM)
        marker = kafka.log_dir / ".kafka_cleanshutdown"
        eventually(marker.exists, deadline_s=60, what="Kafka's clean shutdown")
        # Kafka removes the lock while it is being copied.
        shutil.copytree(kafka.log_dir, stopped, ignore=shutil.ignore_patterns(".lock"))
    for data in (killed, stopped):
        _check_adopted(data, topics, found)


def _check_adopted(data: Path, topics: dict[str, TopicInfo], found: Found) -> None:
    command = [sys.executable, "-P", "-m", "klog_broker", "--port", "0", "--data", str(data)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 3
    assert "no file klog-metadata" in ended.stderr
    assert "__cluster_metadata-0" in ended.stderr
    for options in (["--adopt"], []):
        with BrokerProcess(data, options=options) as broker:
            servers = broker.bootstrap_servers
            with Admin(servers) as admin:
                ours = admin.describe_topics()
            for name, theirs in topics.items():
                assert ours[name].topic_id == theirs.topic_id
                assert len(ours[name].partitions) == TOPICS[name]
                # Clients that knew Kafka as the leader take this one for a newer one.
                for number, partition in theirs.partitions.items():
                    assert ours[name].partitions[number].leader_epoch > partition.leader_epoch
            # As KafkaServer has it, not klog's 50.
            assert len(ours["__consumer_offsets"].partitions) == 4
            assert set(ours) == {*TOPICS, "__consumer_offsets"}
            kept = _read(servers)
            assert {key: rows[: len(found[key])] for key, rows in kept.items()} == found
            assert _committed(servers) == COMMITTED
            _produce(servers, 10)
            after = _read(servers)
            assert sum(map(len, after.values())) == sum(map(len, kept.values())) + 10 * len(TOPICS)
    assert list((data / "__cluster_metadata-0").glob("*.log"))


def _produce(servers: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
    for number in range(count):
        for topic in TOPICS:
            producer.produce(topic, b"v" * 300 + str(number).encode(), str(number % 50))
        producer.poll(0)
    assert producer.flush(60) == 0


def _consumer(servers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "readers",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def _commit(servers: str) -> None:
    consumer = _consumer(servers)
    consumer.commit(offsets=[ConfluentPartition("flights", 1, COMMITTED)], asynchronous=False)
    consumer.close()


def _committed(servers: str) -> int:
    consumer = _consumer(servers)
    (partition,) = consumer.committed([ConfluentPartition("flights", 1)], timeout=30)
    consumer.close()
    return int(partition.offset)


def _read(servers: str) -> Found:
    """Offsets and values of every partition, up to its end."""
    consumer = _consumer(servers)
    found: Found = {(name, number): [] for name, n in TOPICS.items() for number in range(n)}
    consumer.assign([ConfluentPartition(name, number, 0) for name, number in found])
    open_ends = set(found)
    while open_ends:
        message = consumer.poll(30)
        assert message is not None, f"no end of {open_ends}"
        key = (str(message.topic()), int(message.partition() or 0))
        if message.error():
            open_ends.discard(key)
        else:
            found[key].append((int(message.offset() or 0), message.value()))
    consumer.close()
    return found
