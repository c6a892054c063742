"""The records of an `EventedProducer`: how they are written, and the reports on them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pyspark_klog.client.errors import ClientError, DeliveryFailed
from pyspark_klog.client.transport.backoff import Backoff
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.compression import Codec

ANY_PARTITION = -1
"""The partition of a record that the producer's settings choose a partition for."""


class OutRecord(NamedTuple):
    """A record to write. ``context`` comes back with the report on the record."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int
    context: object


class Purged(ClientError):
    """The records were purged; ``is_sent``: they may be written all the same."""

    def __init__(self, *, is_sent: bool) -> None:
        super().__init__("the records were purged")
        self.is_sent = is_sent


class PartitionMissing(DeliveryFailed):
    """The topic exists, and has no such partition."""


class Reports(Protocol):
    """Gets the outcome of the records, each of them once."""

    def on_written(
        self,
        partition: TopicPartition,
        records: Sequence[OutRecord],
        base_offset: int,
        append_time_ms: int,
    ) -> None:
        """The records have the offsets from ``base_offset`` on (-1: acks=0, so that they are not
        known); ``append_time_ms`` is their timestamp if the topic uses LogAppendTime, else -1."""

    def on_failed(
        self, partition: TopicPartition, records: Sequence[OutRecord], error: KlogError
    ) -> None:
        """The records are not written, or it is unknown whether they are (``error`` says so)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How records are written. ``choose`` returns the partition of a record with a key (or, with
    ``ignores_keys`` False and no key, is not called) for (topic, record, number of partitions)."""

    acks: int
    is_idempotent: bool
    max_in_flight: int
    batch_bytes: int
    linger_ms: int
    max_request_bytes: int
    retries: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    topic_patience_ms: int
    """How long a topic may be unknown to the brokers before its records fail."""
    retry: Backoff
    codec: Codec
    level: int | None
    choose: Callable[[str, OutRecord, int], int | None]
    """Chooses a partition for (topic, record, number of partitions); None: the sticky one."""
