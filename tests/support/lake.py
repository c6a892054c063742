"""Lake tables for tests: where they are, how they are filled, and the rows that they have."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.offsets import EARLIEST, list_offsets
from pyspark_klog.ids import TopicPartition
from pyspark_klog.lake_tables.copier import CopySettings, TopicCopier
from pyspark_klog.lake_tables.locations import parse_table, table_name
from pyspark_klog.lake_tables.opening import open_table
from pyspark_klog.lake_tables.table import LakeTable
from pyspark_klog.lake_tables.writer import LakeWriter, RollTimes

ICEBERG, DELTA = "iceberg", "delta"
KINDS = (ICEBERG, DELTA)
Row = tuple[int, int, bytes | None]
"""Partition, offset and value."""


@dataclass(frozen=True)
class Lake:
    """An Iceberg catalog in SQLite, and a folder of Delta tables, both in ``folder``."""

    folder: Path

    def catalog(self, kind: str) -> dict[str, str]:
        """The properties of the catalog; Delta needs none."""
        if kind == DELTA:
            return {}
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/warehouse",
        }

    def place(self, kind: str) -> str:
        """The value of --to."""
        return f"delta:{self.folder}/delta" if kind == DELTA else "iceberg:lake.klog"

    def address(self, kind: str, topic: str) -> str:
        """The address of a topic's table."""
        separator = "/" if kind == DELTA else "."
        return f"{self.place(kind)}{separator}{table_name(topic)}"

    def table(self, kind: str, topic: str) -> LakeTable:
        """A topic's table; each call opens the table again."""
        place, name = parse_table(self.address(kind, topic))
        return open_table(place, name, self.catalog(kind))

    def copy(self, servers: str, topic: str, *kinds: str) -> None:
        """Copy all committed records that the tables do not have yet, a file for a partition; by
        default in both formats."""
        for kind in kinds or KINDS:
            with committed_client(servers) as client:
                copy_all(client, copier(client, topic, self.table(kind, topic)))

    def stored(self, kind: str, topic: str) -> Any:
        """A topic's table as any program loads it: pyiceberg's Table, or a DeltaTable."""
        if kind == DELTA:
            from deltalake import DeltaTable

            return DeltaTable(str(self.folder / "delta" / table_name(topic)))
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("lake", **self.catalog(kind))
        return catalog.load_table(f"klog.{table_name(topic)}")


def committed_client(servers: str, now_ms: Callable[[], int] | None = None) -> BlockingClient:
    """A client as the copier needs it."""
    settings = {"bootstrap.servers": servers, "isolation.level": "read_committed"}
    return BlockingClient(settings) if now_ms is None else BlockingClient(settings, now_ms=now_ms)


def from_earliest(
    client: BlockingClient, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """The first offset of each partition."""
    found = list_offsets(client, dict.fromkeys(partitions, EARLIEST), read_committed=True)
    return {each: at.offset for each, at in found.items()}


def copier(client: BlockingClient, topic: str, table: LakeTable, **more: Any) -> TopicCopier:
    """A copier that begins at the first records; ``more`` are settings and callbacks."""
    steps = {name: more.pop(name) for name in ("on_step", "on_copied") if name in more}
    return TopicCopier(client, topic, table, CopySettings(**more), from_earliest, **steps)


def copy_all(client: BlockingClient, each: TopicCopier) -> None:
    """Copy all that is committed now."""
    LakeWriter(client, [each], RollTimes(1, 1)).copy_all()


def produce(
    servers: str,
    topic: str,
    values: Sequence[str],
    partitions: int = 2,
    timestamp_ms: int = 0,
) -> None:
    """Write values to the partitions in turn; with ``timestamp_ms`` 0 their time is now."""
    producer = Producer({"bootstrap.servers": servers})
    for number, value in enumerate(values):
        partition = number % partitions
        producer.produce(topic, value.encode(), partition=partition, timestamp=timestamp_ms)
    assert producer.flush(30) == 0


class Transactions:
    """A transactional producer that aborts every third transaction."""

    def __init__(self, servers: str, topic: str, partitions: int = 2) -> None:
        self._producer = Producer(
            {"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0}
        )
        self._producer.init_transactions(30)
        self._topic, self._partitions = topic, partitions
        self._number = 0

    def run(self, count: int, records: int = 10) -> None:
        """Write ``count`` transactions of ``records`` records."""
        for _ in range(count):
            self._number += 1
            is_aborted = self._number % 3 == 0
            self._producer.begin_transaction()
            for at in range(records):
                value = f"{'aborted' if is_aborted else 'committed'} {self._number} {at}"
                self._producer.produce(self._topic, value.encode(), partition=at % self._partitions)
            self._producer.flush(30)
            if is_aborted:
                self._producer.abort_transaction(30)
            else:
                self._producer.commit_transaction(30)


def topic_rows(servers: str, topic: str, partitions: int = 2) -> Counter[Row]:
    """The committed records of a topic, as librdkafka reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "lake-judge",
            "enable.auto.commit": "false",
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
        }
    )
    consumer.assign([Position(topic, each, 0) for each in range(partitions)])
    found: Counter[Row] = Counter()
    ended = 0
    while ended < partitions:
        message = consumer.poll(30)
        assert message is not None, "the topic could not be read within 30 s"
        if message.error():
            ended += 1
            continue
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        found[(partition, offset, message.value())] += 1
    consumer.close()
    return found


def read_table(table: LakeTable) -> pa.Table:
    """All rows of a table's newest version, by pyarrow."""
    table.load()
    files = [pq.read_table(urlparse(each.path).path) for each in table.files()]
    return pa.concat_tables(files) if files else table.schema.empty_table()


def table_rows(table: LakeTable) -> Counter[Row]:
    """The rows of a table's newest version."""
    columns = read_table(table).select(["partition", "offset", "value"]).to_pydict()
    return Counter(zip(columns["partition"], columns["offset"], columns["value"], strict=True))
