"""Reads many partitions continuously, with one request to each leader at a time.

While the caller works on the records of one response, the next request is under way. There are no
fetch sessions: every request names its partitions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.lost_offsets import is_passing_error
from pyspark_klog.client.consumer.offsets import EARLIEST, LATEST, list_offsets
from pyspark_klog.client.errors import (
    LeaderUnknown,
    ReplyUnreadable,
    TimedOut,
    TopicMissing,
    broker_error,
    error_code,
)
from pyspark_klog.client.transport.connection import Call
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import NO_TOPIC_ID, TopicPartition
from pyspark_klog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.record_sets import offset_after

_NAMES_UNTIL = 12
"""The last version of Fetch that names topics; later versions use topic ids."""
_GONE_AFTER = 5
"""A partition counts as deleted when fresh metadata has lacked it this many times in a row."""


class Fetched(NamedTuple):
    """The records of one partition in a Fetch response."""

    partition: TopicPartition
    start: int
    """The requested offset; batches may begin before it."""
    data: memoryview
    """A record set as the broker sent it; the last batch may be incomplete."""
    aborted: list[tuple[int, int]]
    """Under read_committed the aborted transactions in the data: (producer id, first offset)."""
    next_offset: int
    """The offset after the last whole batch, where the next request goes on."""


class OutOfRange(NamedTuple):
    """The leader does not have the requested offset."""

    partition: TopicPartition
    offset: int
    earliest: int
    latest: int
    """The end of the offsets that this reader can read, exclusive: the high watermark, or under
    read_committed the last stable offset."""


@dataclass(slots=True)
class _PartitionState:
    """The next offset to read of a partition (``position``), and the state of the partition's Fetch
    requests and retries."""

    position: int
    is_asked: bool = False
    awaited_leader: int | None = None
    """The leader that has to answer its request under way before it can be sent another one, with
    this partition; None if the partition waits for no such response."""
    failures: int = 0
    absences: int = 0
    not_before_ms: int = 0
    failing_since_ms: int | None = None
    last_response_ms: int | None = None
    """When the partition's leader last answered without an error."""


def _raise_trouble(trouble: TimedOut) -> None:
    raise trouble


class ContinuousReader:
    """Reads partitions continuously, from the given offsets on.

    ``on_out_of_range`` is called if the leader does not have the offset to read next: the function
    returns the offset to go on at, or raises. ``on_trouble`` is called with an error whenever the
    requests for a partition have failed for ``trouble_timeout_ms``. By default the function raises
    that error, which ends the reading; if it returns, the partition is requested again.
    """

    def __init__(
        self,
        client: BlockingClient,
        positions: Mapping[TopicPartition, int],
        *,
        trouble_timeout_ms: int,
        on_out_of_range: Callable[[OutOfRange], int],
        on_trouble: Callable[[TimedOut], None] = _raise_trouble,
    ) -> None:
        settings = client.settings
        self._client = client
        self._partitions = {each: _PartitionState(offset) for each, offset in positions.items()}
        self._trouble_timeout_ms = trouble_timeout_ms
        self._on_out_of_range = on_out_of_range
        self._on_trouble = on_trouble
        self._read_committed = settings["isolation.level"] == "read_committed"
        self._max_wait_ms = settings.number("fetch.max.wait.ms")
        self._max_bytes = settings.number("fetch.max.bytes")
        self._partition_bytes = settings.number("max.partition.fetch.bytes")
        # Ask for at least 1 byte. klog's default of fetch.min.bytes is 0, which suits readers of
        # existing records: at a log's end a broker answers a request for 0 bytes at once, without
        # records, and this reader would send one request after the other without a pause.
        self._min_bytes = max(settings.number("fetch.min.bytes"), 1)
        self._calls: dict[int, tuple[Call[FetchResponse], list[TopicPartition]]] = {}
        """The request under way to each leader, and its partitions."""

    def poll(self, until_ms: int) -> list[Fetched]:
        """The next records; an empty list if none came until ``until_ms`` of the client's clock.

        :raises TopicMissing: if a partition does not exist any more
        :raises TimedOut: if requests for a partition have failed for ``trouble_timeout_ms`` and
            ``on_trouble`` raises the error, as it does by default
        :raises KlogError: for another error that a retry cannot cure
        """
        while True:
            self._send_requests()
            found = self._take_responses()
            now_ms = self._client.now_ms()
            if found:
                self._send_requests()
                return found
            if now_ms >= until_ms:
                return []
            self._wait(now_ms, until_ms)

    def has_responses_from_all_since(self, time_ms: int) -> bool:
        """Whether each partition's leader has answered since ``time_ms``, even without records."""
        return all(
            each.last_response_ms is not None and each.last_response_ms >= time_ms
            for each in self._partitions.values()
        )

    def _wait(self, now_ms: int, until_ms: int) -> None:
        """Wait for a response, or until the pause after a partition's failure is over, but not
        beyond ``until_ms``."""
        waiting = [
            each
            for each in self._partitions.values()
            if not each.is_asked and each.awaited_leader not in self._calls
        ]
        next_ms = min((each.not_before_ms for each in waiting), default=until_ms)
        deadline_ms = max(min(next_ms, until_ms), now_ms + 1)
        if self._calls:
            self._client.links.poll(deadline_ms)
        else:
            self._client.sleep_ms(deadline_ms - now_ms)

    # --- sending Fetch requests ------------------------------------------------------------------
    def _send_requests(self) -> None:
        now_ms = self._client.now_ms()
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition, reading in list(self._partitions.items()):
            if reading.is_asked or reading.not_before_ms > now_ms:
                continue
            try:
                info = self._client.leader_of(partition, now_ms + self._trouble_timeout_ms)
            except KlogError as error:
                self._failed([partition], error)
                continue
            is_busy = info.leader in self._calls
            reading.awaited_leader = info.leader if is_busy else None
            if not is_busy:
                by_leader[info.leader].append(partition)
        for leader, partitions in by_leader.items():
            try:
                self._calls[leader] = self._send(leader, partitions), partitions
            except KlogError as error:
                self._failed(partitions, error)
                continue
            for partition in partitions:
                self._partitions[partition].is_asked = True

    def _send(self, leader: int, partitions: list[TopicPartition]) -> Call[FetchResponse]:
        client = self._client
        link = client.link_to_broker(leader, client.now_ms() + self._trouble_timeout_ms)
        ids = {each.topic: client.view.topic_id(each.topic) for each in partitions}
        high = _NAMES_UNTIL if NO_TOPIC_ID in ids.values() else None
        version = link.connection.version(ApiKey.FETCH, 4 if self._read_committed else 2, high)
        topics: dict[str, FetchTopic] = {}
        for partition in partitions:
            row = topics.get(partition.topic)
            if row is None:
                row = topics[partition.topic] = FetchTopic()
                if version > _NAMES_UNTIL:
                    row.topic_id = ids[partition.topic]
                else:
                    row.topic = partition.topic
            info = client.view.leader(partition)
            assert info is not None
            row.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=info.leader_epoch,
                    fetch_offset=self._partitions[partition].position,
                    partition_max_bytes=self._partition_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=int(self._read_committed),
            topics=list(topics.values()),
        )
        return client.send(link, request, FetchResponse, version, timeout_ms=self._max_wait_ms)

    # --- handling Fetch responses ----------------------------------------------------------------
    def _take_responses(self) -> list[Fetched]:
        found: list[Fetched] = []
        for leader, (call, partitions) in list(self._calls.items()):
            if not call.is_done:
                continue
            del self._calls[leader]
            for partition in partitions:
                self._partitions[partition].is_asked = False
            try:
                response = call.result()
                code = error_code(response.error_code)
                if code is not ErrorCode.NONE:
                    raise broker_error(code, f"fetch from broker {leader}")
            except KlogError as error:
                self._failed(partitions, error)
                continue
            found += self._take_response(response, partitions)
        return found

    def _take_response(
        self, response: FetchResponse, partitions: Iterable[TopicPartition]
    ) -> Iterable[Fetched]:
        names = {self._client.view.topic_id(each.topic): each.topic for each in partitions}
        rows = {
            TopicPartition(topic.topic or names.get(topic.topic_id, ""), row.partition_index): row
            for topic in response.responses
            for row in topic.partitions
        }
        for partition in partitions:
            # A reader above its quota gets a response without any partition.
            row = rows.get(partition)
            if row is None:
                continue
            code = error_code(row.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._out_of_range(partition)
            elif code is not ErrorCode.NONE:
                self._failed([partition], broker_error(code, f"fetch from {partition}"))
            else:
                reading = self._partitions[partition]
                reading.failures = reading.absences = 0
                reading.failing_since_ms = None
                reading.last_response_ms = self._client.now_ms()
                if row.records:
                    yield self._fetched(partition, row)

    def _fetched(self, partition: TopicPartition, row: PartitionData) -> Fetched:
        assert isinstance(row.records, bytes | memoryview)
        # The next request names this partition last, because a broker fills its response in the
        # order of the request: the last partitions get no records once the response is full.
        reading = self._partitions.pop(partition)
        self._partitions[partition] = reading
        start, data = reading.position, memoryview(row.records)
        next_offset = offset_after(data)
        if next_offset is None:
            raise ReplyUnreadable(
                f"{len(data)} bytes of {partition} at offset {start} hold no whole batch: raise "
                "max.partition.fetch.bytes above the broker's message.max.bytes"
            )
        if next_offset <= start:
            raise ReplyUnreadable(
                f"a fetch of {partition} at offset {start} was answered with batches that end "
                f"before this offset: the offset after them is {next_offset}"
            )
        reading.position = next_offset
        aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
        return Fetched(partition, start, data, aborted if self._read_committed else [], next_offset)

    # --- failed partitions and offsets out of range ----------------------------------------------
    def _out_of_range(self, partition: TopicPartition) -> None:
        reading = self._partitions[partition]
        # Ask another broker for the leader: an old leader that has not noticed its replacement
        # lacks records that the new leader has.
        self._client.forget_topic(partition.topic)
        self._client.mark_doubtful()
        try:
            earliest, latest = (
                list_offsets(self._client, {partition: end}, read_committed=self._read_committed)[
                    partition
                ].offset
                for end in (EARLIEST, LATEST)
            )
        except KlogError as error:
            self._failed([partition], error)
            return
        if earliest <= reading.position <= latest:
            # The log has the offset now, so the log changed between the Fetch and the ListOffsets
            # requests, perhaps as a new leader caught up: retry.
            text = f"fetch from {partition} at {reading.position}"
            self._failed([partition], broker_error(ErrorCode.OFFSET_NOT_AVAILABLE, text))
            return
        lost = OutOfRange(partition, reading.position, earliest, latest)
        reading.position = self._on_out_of_range(lost)

    def _failed(self, partitions: Iterable[TopicPartition], error: KlogError) -> None:
        """Schedule a new Fetch of ``partitions`` after ``error``. Raise the error if a retry cannot
        help; call ``on_trouble`` if retries have failed for too long."""
        if not (isinstance(error, TimedOut) or is_passing_error(error)):
            raise error
        client = self._client
        now_ms = client.now_ms()
        for partition in partitions:
            reading = self._partitions[partition]
            reading.failures += 1
            is_absent = isinstance(error, LeaderUnknown) and not client.view.has_partition(
                partition
            )
            reading.absences = reading.absences + 1 if is_absent else 0
            if is_absent:
                # Ask another broker for the metadata next time: a broker that has just started may
                # not have received the topic's metadata yet.
                client.mark_doubtful()
            if reading.absences >= _GONE_AFTER:
                raise TopicMissing(
                    f"{partition} is gone: it, or its topic, does not exist any more"
                )
            if reading.failing_since_ms is None:
                reading.failing_since_ms = now_ms
            elif now_ms - reading.failing_since_ms >= self._trouble_timeout_ms:
                trouble = TimedOut(
                    f"{partition} could not be read from offset {reading.position} on within "
                    f"{self._trouble_timeout_ms} ms: {error}"
                )
                trouble.__cause__ = error
                self._on_trouble(trouble)
                reading.failing_since_ms = now_ms
            reading.not_before_ms = now_ms + client.wait_ms(reading.failures)
            client.forget_topic(partition.topic)
