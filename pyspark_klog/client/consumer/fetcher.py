"""Fetches the records of one partition between two offsets, ahead of their use.

While the caller works on the records of one response, the next request is already under way. After
a leader change the new leader is asked, and a lost connection is replaced; neither changes which
records are returned.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.retry_warnings import OperationFailures
from pyspark_klog.client.consumer.fetch_size import FetchSize
from pyspark_klog.client.consumer.lost_offsets import (
    OffsetsLost,
    is_passing_error,
    out_of_range,
    partition_deleted,
    topic_recreated,
)
from pyspark_klog.client.consumer.offsets import (
    EARLIEST,
    LATEST,
    first_local_offset,
    list_offsets,
)
from pyspark_klog.client.errors import (
    ClientError,
    LeaderUnknown,
    ReplyUnreadable,
    TimedOut,
    broker_error,
    error_code,
)
from pyspark_klog.client.transport.connection import Call
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import NO_TOPIC_ID, UUID, TopicPartition
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
"""A partition counts as deleted when fresh metadata has lacked it, or has named another topic id,
this many times in a row."""
_PATIENCE_WITH_REPLICA = 5
"""After this many responses in a row without records from a read replica, read the leader again."""


class FetchedData(NamedTuple):
    """The records in one Fetch response of a `RangeFetcher`, which reads a range of offsets of one
    partition."""

    data: memoryview
    """A record set as the broker sent it: its batches may begin before the requested offset and go
    beyond the end of the range of offsets to read, and the last batch may be incomplete."""
    aborted: list[tuple[int, int]]
    """Under read_committed the aborted transactions in the data: (producer id, first offset)."""


class RangeFetcher:
    """Iterates over the records of ``partition`` from offset ``start`` up to ``end`` (exclusive),
    in chunks: the records of one Fetch response each.

    Gaps in the offsets (compacted or aborted records, markers) cost no waiting.
    ``progress_timeout_ms`` is the longest time without any progress, and ``progress_bound`` is the
    option that limits it: messages name this option.

    ``on_lost`` is called with the error if the leader does not have the offset to read next, if the
    partition was deleted or created again, and if the offsets that the leader offers all stay
    before that offset for ``progress_timeout_ms``. If ``on_lost`` returns instead of raising,
    reading goes on at the log's first offset if this is after the offset to read next; otherwise
    the iteration ends.

    If ``topic_id`` is given and brokers have topic ids, another topic of the same name is not read.
    """

    def __init__(
        self,
        client: BlockingClient,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        progress_timeout_ms: int,
        on_lost: Callable[[OffsetsLost], None],
        topic_id: UUID = NO_TOPIC_ID,
        progress_bound: str | None = None,
    ) -> None:
        self.partition = partition
        self.position = start
        self.end = end
        self.fetched_bytes = 0
        """The size in bytes of all record sets that this reader has received, as brokers sent
        them."""
        self._client = client
        self._progress_timeout_ms = progress_timeout_ms
        self._on_lost = on_lost
        self._topic_id = topic_id
        self._read_committed = client.settings["isolation.level"] == "read_committed"
        self._most_bytes = client.settings.number("max.partition.fetch.bytes")
        self._size = FetchSize(self._most_bytes)
        self._asked_bytes = 0
        self._call: Call[FetchResponse] | None = None
        self._last_request: tuple[Link, int] | None = None
        """The connection of the last request, and the leader epoch that the request named."""
        self._is_at_replica = False
        """Whether the latest request went to a read replica and not to the leader."""
        self._empty_responses = 0
        self._trouble = OperationFailures(f"reading {partition}", progress_bound)
        self._visible_offsets: tuple[int, int] | None = None
        """The offsets that this reader can read at the leader (end exclusive), if the leader's last
        response shows that all of them are before `position`, the next offset to read; otherwise
        None."""
        self._is_held_back = False
        """Whether the leader has more offsets, hidden from this reader by an open transaction."""
        # The default of fetch.min.bytes is 0, so that the leader answers at once: the records of a
        # range exist already when the caller chooses the range.
        self._min_bytes = client.settings.number("fetch.min.bytes")

    def __iter__(self) -> Iterator[FetchedData]:
        client = self._client
        failures = absences = 0
        deadline_ms = client.now_ms() + self._progress_timeout_ms
        last: KlogError | None = None

        def until_ms() -> int:
            return deadline_ms

        while self.position < self.end:
            before, began_ms = self.position, client.now_ms()
            try:
                with client.retries.attribute_to(self._trouble, until_ms):
                    chunk = self._next_chunk(deadline_ms)
                failures, absences, last = 0, 0, None
            except KlogError as error:
                self._call = None
                self._leave_replica()
                if isinstance(error, TimedOut):
                    if client.now_ms() - began_ms > self._progress_timeout_ms // 2:
                        # The leader's last response is too old to tell which offsets are lost: a
                        # new leader's high watermark, for example, rises soon after its election.
                        self._visible_offsets = None
                    self._give_up(last, error)
                    return
                if not is_passing_error(error):
                    raise
                last = error
                chunk = None
                failures += 1
                absences = absences + 1 if self._is_absent(error) else 0
                if absences >= _GONE_AFTER:
                    self._on_lost(self._deleted_error())
                    return
                client.forget_topic(self.partition.topic)
                client.retries.on_failure(self._trouble, error, deadline_ms)
            if self.position > before:
                client.retries.on_success(self._trouble)
                deadline_ms = client.now_ms() + self._progress_timeout_ms
            if chunk is not None:
                yield chunk
                deadline_ms = client.now_ms() + self._progress_timeout_ms
            elif client.now_ms() >= deadline_ms:
                self._give_up(last)
                return
            elif failures or self._empty_responses:
                if not failures and self._visible_offsets is not None:
                    client.retries.on_failure(self._trouble, self._no_records_error(), deadline_ms)
                client.sleep_ms(client.wait_ms(failures or self._empty_responses))

    def _give_up(self, last: KlogError | None, timeout: TimedOut | None = None) -> None:
        """End the iteration after too long without progress: call ``on_lost`` if there is no error
        but the timeout, and the offsets that the leader offers are all before the next offset to
        read; otherwise raise TimedOut with the last error."""
        if last is None and self._visible_offsets is not None:
            earliest, latest = self._visible_offsets
            text = f"{self._timeout_text(None)}: {earliest} to {latest} {self._availability_text()}"
            stable_end = latest if self._is_held_back else None
            self._on_lost(
                OffsetsLost(
                    text,
                    self.partition,
                    self.position,
                    self._visible_offsets,
                    stable_end=stable_end,
                )
            )
            return
        raise TimedOut(self._timeout_text(last or timeout)) from (timeout or last)

    def _is_absent(self, error: KlogError) -> bool:
        """Whether brokers have answered that the partition does not exist, or that its topic has
        another id now. The failure of a connection is no such answer."""
        if not isinstance(error, BrokerError | LeaderUnknown):
            return False
        return self._is_recreated() or not self._client.view.has_partition(self.partition)

    def _is_recreated(self) -> bool:
        found = self._client.view.topic_id(self.partition.topic)
        return NO_TOPIC_ID not in (self._topic_id, found) and found != self._topic_id

    def _no_records_error(self) -> ClientError:
        assert self._visible_offsets is not None
        earliest, latest = self._visible_offsets
        return ClientError(
            f"the next offset to read is {self.position}, and {earliest} to {latest} "
            f"{self._availability_text()}"
        )

    def _availability_text(self) -> str:
        if self._is_held_back:
            return "are committed (ends exclusive)"
        return "are there (ends exclusive)"

    def _deleted_error(self) -> OffsetsLost:
        if self._is_recreated():
            now = self._client.view.topic_id(self.partition.topic)
            return topic_recreated(self.partition, self.position, self.end, self._topic_id, now)
        return partition_deleted(self.partition, self.position, self.end)

    def _timeout_text(self, last: KlogError | None) -> str:
        reason = f": {last}" if last else ", and the broker sent no more records"
        return (
            f"offsets {self.position} to {self.end} of {self.partition} could not be read within "
            f"{self._progress_timeout_ms} ms{reason}"
        )

    def _next_chunk(self, deadline_ms: int) -> FetchedData | None:
        if self._call is None:
            self._call = self._request(deadline_ms)
        call, self._call = self._call, None
        response = self._client.wait(
            call, deadline_ms + self._client.settings.number("fetch.max.wait.ms")
        )
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            raise broker_error(code, f"fetch from {self.partition}")
        self._visible_offsets = None
        if not response.responses and response.throttle_time_ms > 0:
            # A broker answers a reader above its quota with a response without partitions.
            self._empty_responses += 1
            return None
        row = self._own_row(response)
        code = error_code(row.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and self._is_at_replica:
            # The replica may lag behind; only the leader knows which offsets exist.
            self._leave_replica()
            return None
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._handle_out_of_range(deadline_ms)
            return None
        if code is not ErrorCode.NONE:
            raise broker_error(code, f"fetch from {self.partition}")
        if not row.records and row.preferred_read_replica >= 0:
            self._go_to_replica(row.preferred_read_replica)
            return None
        if not row.records:
            self._handle_empty_response(row, response.throttle_time_ms)
            return None
        self._empty_responses = 0
        return self._take_records(row, deadline_ms)

    # --- read replicas (KIP-392) and responses without records ------------------------------------
    def _go_to_replica(self, broker: int) -> None:
        """Read from the replica ``broker``, which a response without records has named as the read
        replica for this reader's rack.

        If the metadata lacks this broker, or if a replica and not the leader has named it, read
        from the leader.
        """
        client = self._client
        if broker in client.view.brokers and not self._is_at_replica:
            client.read_replicas.use_replica(self.partition, broker, self._replica_until_ms())
        else:
            client.read_replicas.use_leader(self.partition, self._replica_until_ms())
            client.forget_topic(self.partition.topic)

    def _leave_replica(self) -> None:
        if self._is_at_replica:
            self._is_at_replica = False
            self._client.read_replicas.use_leader(self.partition, self._replica_until_ms())

    def _replica_until_ms(self) -> int:
        return self._client.now_ms() + self._client.settings.number("metadata.max.age.ms")

    def _handle_empty_response(self, row: PartitionData, throttle_time_ms: int) -> None:
        """Handle a response without records: the rest of the range is a gap, or it has records that
        cannot be read yet.

        A leader returns at least one batch if it has any between the next offset to read and its
        high watermark (under read_committed: its last stable offset). So if this limit has reached
        the range's end, compaction has removed the rest of the range. Two exceptions: a
        reader that is throttled gets no records, and a leader whose records are only in a remote
        tier answers without records and without an error while the tier is slow or over its quota.
        """
        visible_end = row.last_stable_offset if self._read_committed else row.high_watermark
        if visible_end >= self.end and throttle_time_ms == 0:
            if self._is_at_replica:
                # Ask the leader again: only leaders know whether the next records to read are in a
                # remote tier.
                self._leave_replica()
                return
            if not self._is_in_remote_tier():
                self.position = self.end
                self._empty_responses = 0
                return
        self._empty_responses += 1
        if self._is_at_replica and self._empty_responses >= _PATIENCE_WITH_REPLICA:
            # The leader had the records of the range when the caller chose the range. The read
            # replica does not get them: perhaps it cannot reach the leader.
            self._leave_replica()
        elif visible_end <= self.position and not self._is_at_replica:
            self._visible_offsets = (max(row.log_start_offset, 0), visible_end)
            self._is_held_back = visible_end < row.high_watermark
            self._client.forget_topic(self.partition.topic)  # another broker may be the leader now

    def _is_in_remote_tier(self) -> bool:
        """Whether the next offset to read, for which the leader sent no records, lies before the
        first offset on the leader's own disks, so that only a remote tier can have its record."""
        assert self._last_request is not None
        link, epoch = self._last_request
        first_local = first_local_offset(self._client, link, self.partition, epoch)
        return first_local is not None and self.position < first_local

    def _own_row(self, response: FetchResponse) -> PartitionData:
        rows = [p for topic in response.responses for p in topic.partitions]
        if len(rows) != 1 or rows[0].partition_index != self.partition.partition:
            raise ReplyUnreadable(
                f"the response to a fetch of {self.partition} has {len(rows)} partitions; expected "
                "exactly 1, with the number of this partition"
            )
        return rows[0]

    def _take_records(self, row: PartitionData, deadline_ms: int) -> FetchedData | None:
        assert isinstance(row.records, bytes | memoryview)
        data = memoryview(row.records)
        next_offset = offset_after(data)
        if next_offset is None and self._asked_bytes < self._most_bytes:
            # Before version 3 of Fetch, brokers cut off a batch that is larger than the requested
            # size: request the largest size next.
            self._size.ask_most()
            return None
        if next_offset is None:
            raise ReplyUnreadable(
                f"{len(data)} bytes of {self.partition} at offset {self.position} hold no whole "
                "batch: raise max.partition.fetch.bytes above the broker's message.max.bytes"
            )
        if next_offset <= self.position:
            raise ReplyUnreadable(
                f"a fetch of {self.partition} at offset {self.position} was answered with batches "
                f"that end before this offset: the offset after them is {next_offset}"
            )
        self._size.learn(len(data), next_offset - self.position)
        self.position = next_offset
        self.fetched_bytes += len(data)
        self._prefetch(deadline_ms)
        aborted = row.aborted_transactions or () if self._read_committed else ()
        return FetchedData(data, [(a.producer_id, a.first_offset) for a in aborted])

    def _prefetch(self, deadline_ms: int) -> None:
        """Send the next Fetch request ahead of its use. If sending fails, `_next_chunk`, which
        takes the response, sends the request again and raises the error if this fails, too."""
        if self.position < self.end:
            with contextlib.suppress(KlogError):
                self._call = self._request(deadline_ms)

    def _request(self, deadline_ms: int) -> Call[FetchResponse]:
        client, settings = self._client, self._client.settings
        info = client.leader_of(self.partition, deadline_ms)
        replica = client.read_replicas.replica_of(self.partition, client.now_ms())
        self._is_at_replica = replica is not None
        link = client.link_to_broker(info.leader if replica is None else replica, deadline_ms)
        self._last_request = link, info.leader_epoch
        topic_id = self._topic_id
        if topic_id == NO_TOPIC_ID:
            topic_id = client.view.topic_id(self.partition.topic)
        by_id = topic_id != NO_TOPIC_ID
        low = 4 if self._read_committed else 2
        version = link.connection.version(ApiKey.FETCH, low, None if by_id else _NAMES_UNTIL)
        if version <= _NAMES_UNTIL and self._is_recreated():
            raise broker_error(ErrorCode.INCONSISTENT_TOPIC_ID, f"fetch from {self.partition}")
        self._asked_bytes = self._size.of(self.end - self.position)
        topic = FetchTopic(
            partitions=[
                FetchPartition(
                    partition=self.partition.partition,
                    current_leader_epoch=info.leader_epoch,
                    fetch_offset=self.position,
                    partition_max_bytes=self._asked_bytes,
                )
            ]
        )
        if version > _NAMES_UNTIL:
            topic.topic_id = topic_id
        else:
            topic.topic = self.partition.topic
        request = FetchRequest(
            max_wait_ms=settings.number("fetch.max.wait.ms"),
            min_bytes=self._min_bytes,
            max_bytes=settings.number("fetch.max.bytes"),
            isolation_level=int(self._read_committed),
            topics=[topic],
        )
        if client.read_replicas.sends_rack(self.partition, client.now_ms()):
            request.rack_id = settings.text("client.rack")
        wait_ms = settings.number("fetch.max.wait.ms")
        return client.send(link, request, FetchResponse, version, timeout_ms=wait_ms)

    def _handle_out_of_range(self, deadline_ms: int) -> None:
        """Handle OFFSET_OUT_OF_RANGE: call ``on_lost``. If ``on_lost`` returns, go on at the log's
        first offset if the next offset to read is before it; otherwise skip the rest of the range
        of offsets to read.

        First ask another broker for the leader: an old leader that has not noticed its replacement
        lacks records that the new leader has.
        """
        self._client.forget_topic(self.partition.topic)
        self._client.mark_doubtful()
        earliest = self._offset_of(EARLIEST, deadline_ms)
        latest = self._offset_of(LATEST, deadline_ms)
        if earliest <= self.position < latest:
            # The log has the offset now, so the log changed between the Fetch and the ListOffsets
            # requests, perhaps as a new leader caught up: retry.
            raise broker_error(
                ErrorCode.OFFSET_NOT_AVAILABLE, f"fetch from {self.partition} at {self.position}"
            )
        self._on_lost(out_of_range(self.partition, self.position, self.end, (earliest, latest)))
        self.position = earliest if self.position < earliest else self.end

    def _offset_of(self, timestamp: int, deadline_ms: int) -> int:
        found = list_offsets(
            self._client,
            {self.partition: timestamp},
            read_committed=self._read_committed,
            deadline_ms=deadline_ms,
        )
        return found[self.partition].offset
