"""Finds the partitions of a source, and their first and last offsets, by asking brokers."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.offsets import EARLIEST as EARLIEST_TIME
from pyspark_klog.client.consumer.offsets import LATEST as LATEST_TIME
from pyspark_klog.client.consumer.offsets import NOT_FOUND, list_offsets
from pyspark_klog.client.errors import (
    LeaderUnknown,
    TimedOut,
    TopicMissing,
    broker_error,
    is_retriable,
)
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import NO_TOPIC_ID, UUID, TopicPartition
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.java_regex import compile_java
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.planning import losses

_log = logging.getLogger(__name__)

_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics that the option subscribePattern never matches, even if a broker does not say that they
are internal."""

T = TypeVar("T")


class Discovery:
    """Asks brokers for the partitions and offsets of one source; caches nothing besides what the
    client caches."""

    def __init__(self, client: BlockingClient, options: Options) -> None:
        self._client = client
        self._options = options
        pattern = options.topic_pattern
        self._pattern = None if pattern is None else compile_java(pattern)
        self._trouble = client.retries.failures_of(
            "asking for topics and offsets", "default.api.timeout.ms, fetchOffset.numRetries times"
        )

    # --- finding partitions ----------------------------------------------------------------------
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions to read; none if the option subscribePattern matches no topic.

        :raises TopicMissing: if a topic or partition is missing in all fetchOffset.numRetries tries
        """
        return self._attempts(self._find_all)

    def existing_partitions(
        self, known: Collection[TopicPartition] | None = None
    ) -> frozenset[TopicPartition]:
        """The partitions to read that exist now; a deleted topic has none.

        A broker with old metadata may lack a topic for a moment. While one of ``known`` (None: of
        the partitions or topics that the options name) is missing, brokers are asked again, up to
        fetchOffset.numRetries times; after that it counts as deleted.
        """

        def attempt() -> frozenset[TopicPartition]:
            self._refresh()
            return frozenset(p for t in self._topics() for p in self._of_topic(t))

        for number in range(1, self._options.offset_attempts + 1):
            found = self._attempts(attempt)
            if number == self._options.offset_attempts or not self._lacks(found, known):
                return found
            _log.info(
                "attempt=%d brokers do not know all topics or partitions: asking again", number
            )
            self._client.mark_doubtful()
            self._client.sleep_ms(self._options.offset_retry_interval_ms)
        raise AssertionError("fetchOffset.numRetries >= 1: the last attempt returns or raises")

    def _lacks(
        self, found: frozenset[TopicPartition], known: Collection[TopicPartition] | None
    ) -> bool:
        expected = self._options.assigned if known is None else known
        if expected is not None:
            return not found.issuperset(expected)
        return not {p.topic for p in found}.issuperset(self._options.topics)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """The ids of ``topics`` in the client's metadata; brokers before Kafka 2.8 give no ids."""
        ids = {topic: self._client.view.topic_id(topic) for topic in topics}
        return {topic: found for topic, found in ids.items() if found != NO_TOPIC_ID}

    def recreated_topics(self, known: Mapping[str, UUID]) -> dict[str, UUID]:
        """The topics whose ids differ from the ``known`` ones, with their new ids: they were
        deleted and created again.

        A broker with old metadata may give an old id for a moment, so brokers are asked again, up
        to fetchOffset.numRetries times. No request is sent while all ids are the known ones.
        """
        for number in range(1, self._options.offset_attempts + 1):
            found = {t: i for t, i in self.topic_ids(known).items() if i != known[t]}
            if not found or number == self._options.offset_attempts:
                return found
            _log.info(
                "attempt=%d topics=%s have other topic ids than this query knows: asking brokers "
                "again, since their metadata may be old",
                number,
                sorted(found),
            )
            self._client.mark_doubtful()
            self._client.sleep_ms(self._options.offset_retry_interval_ms)
            self._attempts(self._refresh)
        raise AssertionError("fetchOffset.numRetries >= 1: the last attempt returns or raises")

    def other_checkpoint(self, position: Collection[TopicPartition]) -> losses.Loss | None:
        """The loss if the options select none of the partitions of ``position``, which comes from a
        checkpoint (probably another query's); None if the options select one of them."""
        if not position or any(self._selects(partition) for partition in position):
            return None
        options = self._options
        value = options.topic_pattern or ", ".join(options.topics)
        if options.assigned is not None:
            value = ", ".join(map(str, sorted(options.assigned)))
        return losses.other_checkpoint(position, self._selecting_option(), value)

    def absence(self, partition: TopicPartition, until: str) -> losses.Loss:
        """Why a partition that was read before cannot be read any more, and what to do.

        ``until`` says how far it was read.
        """
        topic = partition.topic
        self._attempts(lambda: self._client.refresh([topic]))
        info = self._client.view.topics[topic]
        if info.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return losses.not_authorized(partition, until)
        if not info.partitions:
            return losses.topic_deleted(partition, until)
        if partition.partition not in info.partitions:
            return losses.fewer_partitions(partition, until)
        if not self._selects(partition):
            return losses.not_selected(partition, until, self._selecting_option())
        return losses.found_too_late(partition, until)

    def _selecting_option(self) -> str:
        if self._options.assigned is not None:
            return "assign"
        return "subscribe" if self._pattern is None else "subscribePattern"

    def _selects(self, partition: TopicPartition) -> bool:
        """Whether the options select this partition by its name, be it deleted or not."""
        if self._options.assigned is not None:
            return partition in self._options.assigned
        if self._pattern is None:
            return partition.topic in self._options.topics
        return self._pattern.search(partition.topic) is not None

    def partition_counts(self) -> dict[str, int]:
        """The number of partitions of each topic, including partitions that are not read."""
        topics = self._client.view.topics
        return {name: len(topics[name].partitions) for name in self._topics() if name in topics}

    def _topics(self) -> tuple[str, ...]:
        """The topics to read; with option subscribePattern the topics whose names matched when
        `_refresh` last asked brokers for the topics.

        A pattern may match anywhere in a name, as in Spark's connector (findFirstIn).
        """
        if self._options.assigned is not None:
            return tuple(sorted({p.topic for p in self._options.assigned}))
        if self._pattern is None:
            return self._options.topics
        return tuple(
            name
            for name, topic in sorted(self._client.view.topics.items())
            if not topic.is_internal and name not in _INTERNAL and self._pattern.search(name)
        )

    def _refresh(self) -> None:
        self._client.refresh(self._topics() if self._pattern is None else None)

    def _of_topic(self, topic: str) -> list[TopicPartition]:
        info = self._client.view.topics[topic]
        assigned = self._options.assigned
        if info.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            # A topic with LEADER_NOT_AVAILABLE and partitions is usable: its leaders are looked up
            # later, when offsets are asked for.
            if not info.error.retriable:
                raise broker_error(info.error, f"topic {topic}")
            if not info.partitions or any(
                p.topic == topic and p.partition not in info.partitions for p in assigned or ()
            ):
                raise LeaderUnknown(f"topic {topic} lacks partitions: {info.error.name}")
        found = [TopicPartition(topic, number) for number in info.partitions]
        return found if assigned is None else [p for p in found if p in assigned]

    def _find_all(self) -> frozenset[TopicPartition]:
        self._refresh()
        found: list[TopicPartition] = []
        for topic in self._topics():
            of_topic = self._of_topic(topic)
            if not of_topic and self._client.view.topics[topic].error is not ErrorCode.NONE:
                raise TopicMissing(f"topic {topic} does not exist; {self._advice()}")
            found += of_topic
        if self._options.assigned is not None:
            missing = sorted(self._options.assigned.difference(found))
            if missing:
                names = ", ".join(map(str, missing))
                raise TopicMissing(
                    f"assign names partitions that do not exist: {names}; {self._advice()}"
                )
        return frozenset(found)

    def _advice(self) -> str:
        option = "subscribe" if self._options.assigned is None else "assign"
        return (
            f"create it, or check option {option} (brokers are asked "
            f"up to {self._options.offset_attempts} times, as fetchOffset.numRetries says)"
        )

    def _attempts(
        self,
        attempt: Callable[[], T],
        passing: tuple[type[KlogError], ...] = (TopicMissing, TimedOut),
    ) -> T:
        """Call ``attempt`` until it succeeds, up to fetchOffset.numRetries times.

        Only retriable errors, and errors of a type in ``passing``, lead to another attempt. Each
        attempt may take the whole of default.api.timeout.ms, as in Spark's connector.
        """
        client, attempts = self._client, self._options.offset_attempts
        interval_ms = self._options.offset_retry_interval_ms
        until_ms = client.now_ms() + (attempts - 1) * interval_ms
        until_ms += attempts * self._options.client.number("default.api.timeout.ms")
        for number in range(1, attempts + 1):
            try:
                with client.retries.attribute_to(self._trouble, lambda: until_ms):
                    found = attempt()
                client.retries.on_success(self._trouble)
                return found
            except KlogError as error:
                may_come = isinstance(error, passing) or is_retriable(error)
                if not may_come or number == attempts:
                    raise
                _log.info("attempt=%d to find topics or offsets failed: %s", number, error)
                client.retries.on_failure(self._trouble, error, until_ms)
            client.sleep_ms(interval_ms)
        raise AssertionError("fetchOffset.numRetries >= 1: the last attempt returns or raises")

    # --- looking up offsets ----------------------------------------------------------------------
    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The first offset of each partition."""
        return self._offsets(dict.fromkeys(partitions, EARLIEST_TIME))

    def latest(
        self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int]
    ) -> Offsets:
        """The end of each partition: the last stable offset under read_committed.

        A leader that was just elected may lag behind, and a replaced leader may not know that it
        was replaced. So if an end is below the offset that ``known`` has for the partition (where
        the next micro-batch begins), other brokers are asked for the leader, up to
        fetchOffset.numRetries times; after that the end is taken as it is.
        """
        wanted = list(partitions)
        for number in range(1, self._options.offset_attempts + 1):
            found = self._offsets(dict.fromkeys(wanted, LATEST_TIME))
            behind = [p for p, offset in found.items() if offset < known.get(p, 0)]
            if not behind or number == self._options.offset_attempts:
                return found
            _log.info(
                "attempt=%d partition=%s ends before an offset that existed", number, behind[0]
            )
            for topic in {partition.topic for partition in behind}:
                self._client.forget_topic(topic)
            self._client.mark_doubtful()
            self._client.sleep_ms(self._options.offset_retry_interval_ms)
        raise AssertionError("fetchOffset.numRetries >= 1: the last attempt returns or raises")

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The high watermark of each partition, whether or not transactions are open below it."""
        return self._offsets(dict.fromkeys(partitions, LATEST_TIME), read_committed=False)

    def open_transactions(
        self, start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str]:
        """A sentence about the open transaction in each partition whose end (in ``ends``) is before
        its ``start``, at which the read begins, only because of that transaction: the high
        watermark is at ``start`` or after it."""
        behind = [p for p, end in ends.items() if end < start.get(p, 0)]
        if not behind or not self._options.read_committed:
            return {}
        from pyspark_klog.spark.planning.open_transactions import open_transactions

        highs = self.high_watermarks(behind)
        held_back = {p: ends[p] for p in behind if highs[p] >= start[p]}
        return open_transactions(self._client, held_back)

    def at_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> Offsets:
        """The first offset in each partition whose record is not older than the timestamp that
        ``timestamps_ms`` has for the partition; partitions without such a record are left out."""
        found = self._offsets(timestamps_ms)
        return {partition: offset for partition, offset in found.items() if offset != NOT_FOUND}

    def committed(self, group_id: str, partitions: Iterable[TopicPartition]) -> Offsets:
        """The offsets that consumer group ``group_id`` has committed; partitions without such an
        offset are left out."""
        from pyspark_klog.client.admin.groups import committed_offsets

        found = committed_offsets(self._client, group_id, partitions)
        return {partition: at.offset for partition, at in found.items()}

    def _offsets(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool | None = None
    ) -> Offsets:
        if not times:
            return {}
        committed = self._options.read_committed if read_committed is None else read_committed
        found = self._attempts(
            lambda: list_offsets(self._client, times, read_committed=committed), (TimedOut,)
        )
        return {partition: at.offset for partition, at in found.items()}
