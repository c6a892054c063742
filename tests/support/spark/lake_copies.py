"""Topics and their copies in a lake, as DataFrames of Spark's tests."""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyspark_klog
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.builder import BatchBuilder
from tests.support.lake import Lake
from tests.support.spark.session import spark_session
from tests.support.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BASE_MS = 4_000_000_000_000
"""A time after the tests, because brokers find the marker of an aborted transaction, whose time is
the time of writing, when the source asks for the first record of a time; the table has no markers.
"""
HOUR_MS = 3_600_000


def put_in_transaction(servers: str, topic: str, values: Sequence[bytes], *, commit: bool) -> None:
    """Append records to partition 0 in a transaction, which is committed or aborted."""
    with BlockingClient({"bootstrap.servers": servers}) as client:
        producer = TransactionalProducer(client, f"lake-{uuid.uuid4().hex}")
        producer.init_transactions()
        producer.begin_transaction()
        builder = BatchBuilder()
        for value in values:
            builder.append(None, value, 1_000)
        producer.add(TopicPartition(topic, 0), builder.build(), builder.record_count)
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


class CopiedTopic:
    """A topic of two partitions: three files of each partition in a table of each format, and
    records behind them. Hour by hour a copy follows; partition 1 has older records in its third
    hour, and partition 0 an aborted transaction in its table and another one behind it."""

    def __init__(self, topics: Topics, lake: Lake) -> None:
        self.topics, self.lake = topics, lake
        self.topic = topics.create(2)
        for hour in range(4):
            for partition in range(2):
                at_ms = BASE_MS + (hour - (3 if (hour, partition) == (2, 1) else 0)) * HOUR_MS
                rows = [(b"k%d" % n, b"%d-%d-%d" % (hour, partition, n)) for n in range(5)]
                topics.put(self.topic, rows, partition, at_ms=at_ms, headers=partition == 0)
            if hour % 2:
                put_in_transaction(topics.servers, self.topic, [b"aborted"], commit=False)
            if hour < 3:
                lake.copy(topics.servers, self.topic)

    def union(self, kind: str, **options: Any) -> "DataFrame":
        """The DataFrame of table and topic."""
        return union(self.topics, self.lake, kind, self.topic, **options)

    def table(self, kind: str, **options: Any) -> "DataFrame":
        """The DataFrame of the table alone."""
        return table(self.lake, kind, self.topic, **options)

    def source(self, **options: Any) -> "DataFrame":
        """The DataFrame of the source."""
        return self.topics.batch(
            subscribe=self.topic, kafka__isolation__level="read_committed", **options
        )


def union(topics: Topics, lake: Lake, kind: str, topic: str, **options: Any) -> "DataFrame":
    """The DataFrame of a table and its topic. Option names take two underscores for a dot."""
    address, catalog = lake.address(kind, topic), lake.catalog(kind)
    columns = options.pop("columns", None)
    return pyspark_klog.lake(
        spark_session(),
        address,
        topic=topic,
        columns=columns,
        catalog=catalog,
        **topics.options(**options),
    )


def table(lake: Lake, kind: str, topic: str, **options: Any) -> "DataFrame":
    """The DataFrame of a topic's table alone."""
    return pyspark_klog.lake(
        spark_session(), lake.address(kind, topic), catalog=lake.catalog(kind), **options
    )
