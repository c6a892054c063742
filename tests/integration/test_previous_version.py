"""Data that the previous version stored is read by this version, and the reverse.

`tests/spark/test_previous_version.py` has the checkpoints of streams.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_klog.client.admin.groups import commit_offsets, committed_offsets
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.admin.transaction_descriptions import describe_transaction
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.fetcher import RangeFetcher
from pyspark_klog.client.consumer.offsets import LATEST, list_offsets
from pyspark_klog.client.group_offsets import CommittedOffset
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.record import Record
from pyspark_klog.records.record_sets import entries
from pyspark_klog.testing import Broker
from pyspark_klog.testing.ports import free_port
from pyspark_klog.testing.zookeeper import ZooKeeper
from tests.support.client.cases import client_of
from tests.support.client.transaction_cases import committed, producer_of, put, read_committed
from tests.support.eventually import eventually
from tests.support.previous_version.fixtures import Versions, previous, versions
from tests.support.previous_version.versions import Version

__all__ = ["previous", "versions"]

TOPIC = "orders"
CONFIGS: dict[str, str | None] = {
    "max.message.bytes": "123456",
    "retention.ms": "-1",
    "segment.bytes": "1048576",
}
RECORDS = TopicPartition(TOPIC, 0)
TRANSACTIONS = TopicPartition(TOPIC, 1)
GROUP = "readers"
POSITIONS = {RECORDS: CommittedOffset(3, 0, "read so far"), TRANSACTIONS: CommittedOffset(1)}
TRANSACTIONAL_ID = "copy-1"
FEW_PARTITIONS = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}
ENDS: dict[str, Callable[[Broker], None]] = {"stopped": Broker.stop, "killed": Broker.kill}


def write(client: BlockingClient, *, first: int) -> None:
    """One batch of two records in each codec, to `RECORDS`."""
    producer = Producer(client)
    for number, codec in enumerate(Codec, first):
        batch = BatchBuilder(codec=codec)
        batch.append(b"key", b"value %d" % number, 1_700_000_000_000 + number, [("h", b"\x00")])
        batch.append(None, None, 1_700_000_000_001 + number, [])
        producer.add(RECORDS, batch.build(), batch.record_count)
    producer.flush()


def written(*, first: int) -> list[tuple[bytes | None, bytes | None, int]]:
    """Key, value and timestamp of the records that `write` writes."""
    found: list[tuple[bytes | None, bytes | None, int]] = []
    for number in range(first, first + len(Codec)):
        found.append((b"key", b"value %d" % number, 1_700_000_000_000 + number))
        found.append((None, None, 1_700_000_000_001 + number))
    return found


def read(client: BlockingClient) -> list[Record]:
    """All records of `RECORDS`."""

    def on_lost(lost: Exception) -> None:
        raise lost

    end = list_offsets(client, {RECORDS: LATEST})[RECORDS].offset
    fetcher = RangeFetcher(client, RECORDS, 0, end, progress_timeout_ms=20_000, on_lost=on_lost)
    found: list[Record] = []
    for chunk in fetcher:
        for entry in entries(chunk.data, allow_partial=True):
            assert isinstance(entry, BatchView)
            found += entry.records()
    return found


def create_topic(servers: str, replicas: int) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(TOPIC, 2, replicas, CONFIGS)])


def check_stored(servers: str, expected: list[Record]) -> None:
    """Records, settings of the topic, positions of the group, and the transaction that is open."""
    with client_of(servers) as client, Admin(servers) as admin:
        assert read(client) == expected
        settings = admin.describe_configs(TOPIC)
        assert {name: settings[name].value for name in CONFIGS} == CONFIGS
        assert committed_offsets(client, GROUP) == POSITIONS
        described = describe_transaction(client, TRANSACTIONAL_ID)
        assert (described.state, described.partitions) == ("Ongoing", {TRANSACTIONS})
    assert read_committed(servers, TRANSACTIONS) == ["committed"]


@pytest.mark.parametrize("end", ENDS)
def test_a_data_directory_is_read_by_the_other_version(
    versions: Versions, end: str, tmp_path: Path
) -> None:
    def broker_of(version: Version, port: int = 0) -> Broker:
        return Broker(
            data=tmp_path / "data",
            port=port,
            python=version.python,
            producer_id_expiration_ms=2**31 - 1,
            **FEW_PARTITIONS,
        )

    first, second = len(Codec), 2 * len(Codec)
    with broker_of(versions.writer) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, 1)
        with client_of(servers) as client:
            write(client, first=first)
            commit_offsets(client, GROUP, POSITIONS)
            stored = read(client)
        assert [(r.key, r.value, r.timestamp_ms) for r in stored] == written(first=first)
        with producer_of(servers, TRANSACTIONAL_ID) as producer:
            producer.begin_transaction()
            put(producer, TRANSACTIONS, "committed")
            producer.commit_transaction()
            assert committed(servers, TRANSACTIONS) == ["committed"]
            producer.begin_transaction()
            put(producer, TRANSACTIONS, "before")
            producer.flush()
            ENDS[end](broker)
            with broker_of(versions.reader, int(servers.rpartition(":")[2])):
                check_stored(servers, stored)
                # The earlier producer goes on with its id, its epoch and its sequences.
                put(producer, TRANSACTIONS, "after")
                producer.commit_transaction()
                assert committed(servers, TRANSACTIONS) == ["committed", "before", "after"]
                with client_of(servers) as client:
                    write(client, first=second)
                    more = [(r.key, r.value, r.timestamp_ms) for r in read(client)]
                assert more == [*written(first=first), *written(first=second)]


def test_a_cluster_changes_its_version_broker_by_broker(versions: Versions, tmp_path: Path) -> None:
    ports = {number: free_port(f"127.0.0.{number}") for number in (1, 2)}
    servers = ",".join(f"127.0.0.{number}:{port}" for number, port in ports.items())
    running: dict[int, Broker] = {}

    def start(zookeeper: ZooKeeper, number: int, version: Version) -> None:
        running[number] = Broker(
            data=tmp_path / f"broker-{number}",
            port=ports[number],
            python=version.python,
            broker_id=number,
            listeners=f"PLAINTEXT://127.0.0.{number}:{ports[number]}",
            zookeeper_connect=zookeeper.address,
            offsets_topic_replication_factor=2,
            transaction_state_log_replication_factor=2,
            transaction_state_log_min_isr=1,
            controlled_shutdown_retry_backoff_ms=200,
            **FEW_PARTITIONS,
        )
        running[number].start()

    def all_in_sync() -> bool:
        with Admin(servers) as admin:
            brokers = set(admin.describe_cluster().brokers)
            topics = admin.describe_topics().values()
            replicas = [set(p.in_sync) for topic in topics for p in topic.partitions.values()]
        return brokers == {1, 2} and all(each == {1, 2} for each in replicas)

    with ZooKeeper() as zookeeper:
        try:
            for number in ports:
                start(zookeeper, number, versions.writer)
            eventually(all_in_sync, 60, "the brokers to see each other")
            create_topic(servers, 2)
            with client_of(servers) as client:
                write(client, first=0)
                commit_offsets(client, GROUP, POSITIONS)
                stored = read(client)
            with producer_of(servers, TRANSACTIONAL_ID) as producer:
                producer.begin_transaction()
                put(producer, TRANSACTIONS, "committed")
                producer.commit_transaction()
                producer.begin_transaction()
                for number in ports:
                    put(producer, TRANSACTIONS, f"before broker {number}")
                    producer.flush()
                    running[number].stop()
                    start(zookeeper, number, versions.reader)
                    eventually(all_in_sync, 60, f"broker {number} to be in sync again")
                    check_stored(servers, stored)
                producer.commit_transaction()
            values = ["committed", "before broker 1", "before broker 2"]
            assert committed(servers, TRANSACTIONS) == values
        finally:
            for broker in running.values():
                broker.close()
