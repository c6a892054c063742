"""A topic and an exactly-once sink of its own, on any broker, as tests look at them."""

from pyspark_klog.client.admin.groups import (
    CommittedOffset,
    commit_offsets,
    committed_offsets,
)
from pyspark_klog.client.admin.sink_progress import ProgressRow
from pyspark_klog.client.consumer.offsets import LATEST, list_offsets
from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.ids import TopicPartition
from tests.support.client.cases import client_of, new_topic
from tests.support.client.transaction_cases import committed, new_id, stable_offset
from tests.support.eventually import eventually
from tests.support.spark.sink_workers import QUERY, Worker


class World:
    """A topic of one partition, and a sink of its own."""

    def __init__(self, servers: str, **configs: str) -> None:
        self.servers = servers
        self.topic = new_topic(servers, 1, **configs)
        self.partition = TopicPartition(self.topic, 0)
        self.prefix = new_id()

    def worker(self, **options: str | int) -> Worker:
        return Worker(
            self.servers, **{"topic": self.topic, "exactlyOncePrefix": self.prefix, **options}
        )

    @property
    def committed(self) -> list[str]:
        return committed(self.servers, self.partition)

    def group(self, index: int = 0) -> str:
        return f"{self.prefix}.{QUERY}.sink.{index}"

    def row(self, index: int = 0) -> ProgressRow | None:
        found = stable_offset(self.servers, self.group(index), self.partition)
        return None if found is None else ProgressRow.from_offset(found)

    def is_at(self, batch_id: int) -> None:
        """Wait until the batch's row is visible: Kafka decides a commit before it shows the row."""
        row = self.row()
        assert row is not None
        assert row.batch_id == batch_id

    def row_now(self) -> ProgressRow | None:
        """The row that is there while a transaction is open."""
        with client_of(self.servers) as client:
            found = committed_offsets(client, self.group(), [self.partition])
        return ProgressRow.from_offset(found[self.partition]) if found else None

    def store(self, group: str, position: CommittedOffset, topic: str | None = None) -> None:
        with client_of(self.servers) as client:
            commit_offsets(client, group, {TopicPartition(topic or self.topic, 0): position})

    def fence_producer(self, index: int = 0) -> None:
        """Fence the producer that has the id, as an attempt that dies then, or a driver, does."""
        with client_of(self.servers) as client:
            TransactionalProducer(client, self.group(index)).init_transactions()

    def sent(self) -> None:
        """Wait until a record is in the log."""
        with client_of(self.servers) as client:
            ends = {self.partition: LATEST}
            eventually(
                lambda: list_offsets(client, ends)[self.partition].offset > 0, 30, "a record"
            )
