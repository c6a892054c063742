"""Topics for Spark's tests: filled without Spark, and read as plain rows."""

import itertools
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.record import Header
from tests.support.eventually import eventually
from tests.support.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

_numbers = itertools.count(1)

Rows = Sequence[tuple[bytes | None, bytes | None]]


class Topics:
    """Makes, fills and reads topics of one broker."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._client = BlockingClient({"bootstrap.servers": servers})
        self.admin = Admin(client=self._client)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def create(self, partitions: int = 1, name: str | None = None) -> str:
        """A new topic that keeps records of any age."""
        topic = name or f"spark-{next(_numbers)}-{uuid.uuid4().hex[:6]}"
        self.admin.create_topics([NewTopic(topic, partitions, 1, {"retention.ms": "-1"})])
        return topic

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until no broker shows it (Kafka takes a moment)."""
        self.admin.delete_topics([topic])
        eventually(
            lambda: topic not in self.admin.list_topics(),
            deadline_s=60,
            what=f"topic {topic} being gone",
        )

    def grow(self, topic: str, partitions: int) -> None:
        """Let a topic have that many partitions, more than it has now."""
        self.admin.create_partitions(topic, partitions)

    def put(
        self,
        topic: str,
        rows: Rows,
        partition: int = 0,
        *,
        at_ms: int = 1_000,
        headers: bool = True,
    ) -> None:
        """Append records, a header `h` on each unless it is said otherwise."""
        builder = BatchBuilder()
        for number, (key, value) in enumerate(rows):
            builder.append(key, value, at_ms + number, [Header("h", b"1")] if headers else ())
        producer = Producer(self._client)
        producer.add(TopicPartition(topic, partition), builder.build(), builder.record_count)
        producer.flush()

    def put_numbers(self, topic: str, numbers: Sequence[int], partition: int = 0) -> None:
        """Append records whose values are numbers."""
        self.put(topic, [(None, b"%d" % number) for number in numbers], partition)

    # --- Spark -----------------------------------------------------------------------------------
    def batch(self, **options: Any) -> "DataFrame":
        """The batch source."""
        reader = spark_session().read.format("klog")
        return reader.options(**self.options(**options)).load()

    def stream(self, **options: Any) -> "DataFrame":
        """The stream source."""
        reader = spark_session().readStream.format("klog")
        return reader.options(**self.options(**options)).load()

    def options(self, **options: Any) -> dict[str, str]:
        """Options as Spark takes them; double underscores in names stand for dots."""
        named = {name.replace("__", "."): str(value) for name, value in options.items()}
        return {"kafka.bootstrap.servers": self.servers, **named}

    def numbers(self, topic: str) -> list[int]:
        """The values of a topic of numbers, in order."""
        rows = self.batch(subscribe=topic).selectExpr("int(string(value)) as n").collect()
        return sorted(row.n for row in rows)


def run(query: "StreamingQuery", timeout_s: int = 120) -> "StreamingQuery":
    """Wait for a query that ends by itself; raises what it failed with."""
    if not query.awaitTermination(timeout_s):
        query.stop()
        raise AssertionError(f"the query did not end within {timeout_s} s: {query.lastProgress}")
    return query


def input_rows(query: "StreamingQuery") -> list[int]:
    """Rows of each batch, batches of the start and idle ones included."""
    return [progress.numInputRows for progress in query.recentProgress]
