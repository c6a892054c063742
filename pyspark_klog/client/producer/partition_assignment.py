"""Gives records their partitions, once the partitions of their topic are known."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyspark_klog.client.cluster.evented_client import EventedClient
from pyspark_klog.client.errors import DeliveryFailed, TopicMissing
from pyspark_klog.client.producer.out_records import (
    ANY_PARTITION,
    OutRecord,
    PartitionMissing,
    ProducerSettings,
)
from pyspark_klog.client.producer.refusals import not_authorized
from pyspark_klog.client.producer.sticky_partition import StickyPartition
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition

Append = Callable[[TopicPartition, OutRecord, int], bool]
"""Appends a record with its size in bytes to its partition's records; returns whether a batch is
complete with it."""
Fail = Callable[[TopicPartition, Sequence[OutRecord], KlogError], None]


class _WaitingRecord(NamedTuple):
    """A record of a topic whose partitions are not known yet."""

    partition: int
    record: OutRecord
    size_bytes: int
    since_ms: int


class PartitionAssignment:
    """The records that wait for the metadata of their topics, and the sticky partition of each
    topic. ``append`` gets the records that have a partition, ``fail`` those that get none;
    ``unsent_count`` returns how many batches wait to be sent to a partition."""

    def __init__(
        self,
        client: EventedClient,
        settings: ProducerSettings,
        append: Append,
        unsent_count: Callable[[TopicPartition], int],
        fail: Fail,
        random: Callable[[], float],
    ) -> None:
        self._client = client
        self._settings = settings
        self._append = append
        self._unsent_count = unsent_count
        self._fail = fail
        self._random = random
        self._waiting: dict[str, list[_WaitingRecord]] = {}
        self._sticky: dict[str, StickyPartition] = {}

    def add(
        self, topic: str, partition: int, record: OutRecord, size_bytes: int, now_ms: int
    ) -> None:
        """Give a record its partition now, or after the next metadata of its topic."""
        if topic in self._waiting or not self._assign(topic, partition, record, size_bytes):
            waiting = self._waiting.setdefault(topic, [])
            waiting.append(_WaitingRecord(partition, record, size_bytes, now_ms))
            self._client.follow(topic)

    def on_metadata(self, now_ms: int) -> None:
        """Give the waiting records their partitions, if these are known now."""
        for topic in list(self._waiting):
            info = self._client.view.topics.get(topic)
            if info is None:
                continue
            if info.partitions:
                for each in self._waiting.pop(topic):
                    self._assign(topic, each.partition, each.record, each.size_bytes)
            elif (error := self._error_of(topic, info.error, now_ms)) is not None:
                self._fail_topic(topic, self._waiting.pop(topic), error)
            else:
                self._client.doubt(topic)

    def oldest_ms(self) -> int | None:
        """When the oldest waiting record was added; None if there is none."""
        return min((some[0].since_ms for some in self._waiting.values()), default=None)

    def fail_until(self, until_ms: int, error: KlogError) -> None:
        """Let the waiting records fail that were added at ``until_ms`` or before."""
        for topic, waiting in list(self._waiting.items()):
            late = [each for each in waiting if each.since_ms <= until_ms]
            if len(late) == len(waiting):
                del self._waiting[topic]
            else:
                self._waiting[topic] = waiting[len(late) :]
            self._fail_topic(topic, late, error)

    def fail_all(self, error: KlogError) -> None:
        """Let all waiting records fail."""
        waiting, self._waiting = self._waiting, {}
        for topic, some in waiting.items():
            self._fail_topic(topic, some, error)

    def _fail_topic(self, topic: str, some: list[_WaitingRecord], error: KlogError) -> None:
        for each in some:
            self._fail(TopicPartition(topic, each.partition), [each.record], error)

    def _error_of(self, topic: str, code: ErrorCode, now_ms: int) -> KlogError | None:
        """Return the error of a topic without partitions; None if it may get some in time."""
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return not_authorized(topic)
        if not code.retriable and code is not ErrorCode.NONE:
            return BrokerError(code, f"topic {topic}: {code.message}")
        patience_ms = self._settings.topic_patience_ms
        if now_ms - self._waiting[topic][0].since_ms < patience_ms:
            return None
        return TopicMissing(
            f"topic {topic} does not exist, or has no partitions yet, after {patience_ms} ms"
        )

    def _assign(self, topic: str, partition: int, record: OutRecord, size_bytes: int) -> bool:
        """Append a record to its partition, or let it fail. Return False if the partitions of its
        topic are not known."""
        info = self._client.view.topics.get(topic)
        if info is None or not info.partitions:
            return False
        count = len(info.partitions)
        if partition >= count:
            text = f"{topic} has no partition {partition}: its partitions are 0 to {count - 1}"
            self._fail(TopicPartition(topic, partition), [record], PartitionMissing(text))
            return True
        chosen: int | None = partition
        if partition == ANY_PARTITION:
            try:
                chosen = self._chosen(topic, record, count)
            except DeliveryFailed as error:
                self._fail(TopicPartition(topic, partition), [record], error)
                return True
        if chosen is not None:
            self._append(TopicPartition(topic, chosen), record, size_bytes)
            return True
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = StickyPartition(self._settings.batch_bytes, self._random)
            self._sticky[topic] = sticky
        place = TopicPartition(topic, sticky.choose(self._unsent_batches(topic), count))
        is_complete = self._append(place, record, size_bytes)
        sticky.add(size_bytes, is_batch_complete=is_complete)
        return True

    def _chosen(self, topic: str, record: OutRecord, count: int) -> int | None:
        """Return the partition that the settings choose, perhaps by a function of the program;
        None for the sticky one.

        :raises DeliveryFailed: if the function raises or returns no partition of the topic
        """
        try:
            chosen = self._settings.choose(topic, record, count)
        except Exception as error:
            text = f"the partitioner raised {type(error).__name__}: {error}"
            raise DeliveryFailed(text) from error
        if chosen is not None and not (isinstance(chosen, int) and 0 <= chosen < count):
            raise PartitionMissing(
                f"the partitioner returned {chosen!r} for {topic}; expected 0 to {count - 1}"
            )
        return chosen

    def _unsent_batches(self, topic: str) -> dict[int, int]:
        """Return for each partition with a leader how many batches wait to be sent to it."""
        view = self._client.view
        places = (TopicPartition(topic, number) for number in view.topics[topic].partitions)
        return {
            place.partition: self._unsent_count(place)
            for place in places
            if view.leader(place) is not None
        }
