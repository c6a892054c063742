"""The blocking driver of a producer: sends batches and waits for their acknowledgements.

Callers hand over encoded batches (v2, one partition each). A batch is sent without linger: at once,
unless it has to wait, for example for earlier batches of its partition or for a leader. `flush`
waits until all batches are acknowledged (with acks=0: sent). All work is done in the caller's
thread.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import (
    DeliveryFailed,
    LeaderUnknown,
    TimedOut,
    UnsupportedByBroker,
    broker_error,
    error_code,
    is_retriable,
)
from pyspark_klog.client.producer.batch_order import BatchOrder, Verdict
from pyspark_klog.client.producer.batch_splitting import split_in_half
from pyspark_klog.client.producer.batches import (
    NO_IDENTITY,
    Batch,
    Identity,
    InTransaction,
    RefusedRecord,
)
from pyspark_klog.client.producer.producer_setup import request_producer_id, wait_for_topic
from pyspark_klog.client.producer.refusals import records_refused
from pyspark_klog.client.producer.requests import pair_responses, send_batches
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.transport.backoff import concurrent_wait_ms
from pyspark_klog.client.transport.connection import Call
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.produce import PartitionProduceResponse, ProduceResponse
from pyspark_klog.records.buffer_pool import BufferPool

_log = logging.getLogger(__name__)


_MOST_REQUEST_BYTES = 4 << 20
"""The size limit of a request with several batches, in bytes, if the user does not set
max.request.size. `RowEncoder` limits a single batch to max.request.size in either case."""
_KEPT_PIECES = 8
_MOST_KEPT_BYTES = 8 << 20
_ACKS = {"all": -1, "1": 1, "0": 0}


class Producer:
    """Writes batches through ``client``, which it does not close.

    Once `add`, `add_all`, `flush` or `handle_responses_until` has raised a `KlogError`, the
    producer can't be used any more (but see `TransactionalProducer`), and some of its records may
    be written.
    """

    is_transactional = False
    """Whether batches have to be encoded as parts of a transaction."""

    def __init__(self, client: BlockingClient) -> None:
        settings = client.settings
        self._client = client
        self._acks = _ACKS[settings.text("acks")]
        self._max_in_flight = settings.number("max.in.flight.requests.per.connection")
        self._buffer_bytes = settings.number("buffer.memory")
        self._delivery_timeout_ms = settings.number("delivery.timeout.ms")
        self._request_timeout_ms = settings.number("request.timeout.ms")
        self._core = BatchOrder(
            idempotent=settings.flag("enable.idempotence"),
            max_in_flight=self._max_in_flight,
            max_request_bytes=_request_bytes(settings),
            max_attempts=settings.number("retries"),
            transactional=self.is_transactional,
        )
        self._transaction: InTransaction | None = None
        self.memory = BufferPool(_KEPT_PIECES, _MOST_KEPT_BYTES)
        """Memory to encode batches in; reused once they are acknowledged."""
        self._calls: list[tuple[Call[ProduceResponse], list[Batch]]] = []
        self._failure: KlogError | None = None
        self._on_refused_record: Callable[[RefusedRecord], None] | None = None
        self._on_written: Callable[[Batch], None] = _ignore_written
        self._refused_bytes: dict[str, tuple[int, int]] = {}
        self._new_identities = 0
        self._left_ms: int | None = None
        self._absence_ms = 0
        self._trouble = client.retries.failures_of("writing records", "delivery.timeout.ms")
        self._unheard: dict[int, Link] = {}
        """With acks=0, by the leader's id: the connection on which records were last sent to that
        leader. A broker reports an error of acks=0 only by closing this connection, so the leaders
        are looked up again once the leader has another connection."""
        self._troubled: set[TopicPartition] = set()
        """Partitions to which an attempt to send a batch failed, and of which no batch has been
        acknowledged since."""

    def on_refused_record(self, receiver: Callable[[RefusedRecord], None] | None) -> None:
        """From now on pass each record that its topic refuses (as too large or as invalid) to
        ``receiver``, and write the other records. With None, which is the default, the producer
        fails at a refused record: with DeliveryFailed, in a transaction with
        TransactionMustAbort. The producer fails even with a receiver if a record is refused as
        larger than a segment, and in a transaction if an earlier attempt may have written the
        refused record.

        `add`, `add_all`, `flush` and `handle_responses_until` call the receiver, which must not
        call them. With acks=0 the receiver is never called, because brokers send no response.
        """
        self._on_refused_record = receiver
        self._core.leaves_refused_out = receiver is not None

    def on_written(self, receiver: Callable[[Batch], None]) -> None:
        """From now on call ``receiver`` with each acknowledged batch (with acks=0: each sent one).
        `add`, `add_all`, `flush` and `handle_responses_until` call the receiver, which must not
        call them."""
        self._on_written = receiver

    def size_factor(self, topic: str) -> float:
        """The factor by which callers multiply the size limit of a topic's batches. The factor is 1
        until the topic refuses a batch of several records as too large; then half the ratio of the
        smallest such batch's size to the largest one's, so at most 0.5."""
        least, most = self._refused_bytes.get(topic, (2, 1))
        return least / (2 * most)

    @property
    def written_records(self) -> int:
        """The number of records that brokers have acknowledged; with acks=0 that were sent."""
        return self._core.written_records

    @property
    def is_idempotent(self) -> bool:
        """Whether brokers recognise repeated batches."""
        return self._core.idempotent

    # --- partitions of topics --------------------------------------------------------------------
    def partition_count(self, topic: str) -> int:
        """A topic's number of partitions; asks for it (`wait_for_topic`) if the client has no
        metadata of the topic, or only old metadata.

        :raises TopicMissing: if the topic is still unknown after max.block.ms
        """
        client = self._client
        known = client.view.topics.get(topic)
        if client.is_fresh(topic) and known is not None and known.partitions:
            return len(known.partitions)
        return wait_for_topic(client, topic)

    def newest_partition_count(self, topic: str) -> int:
        """A topic's number of partitions, from metadata that is requested now."""
        self._client.forget_topic(topic)
        return self.partition_count(topic)

    # --- queueing and flushing batches -----------------------------------------------------------
    def expected_sequences(self, topic: str, partition_count: int) -> tuple[Identity, list[int]]:
        """The producer id and epoch, and each partition's sequence, to encode new batches with.

        A batch that was encoded with other numbers is corrected before it is sent, at the cost of
        a second CRC. The list of sequences is empty if the producer is not idempotent, or while it
        needs a new producer id.
        """
        return self._core.expected_sequences(
            TopicPartition(topic, p) for p in range(partition_count)
        )

    def add(
        self, partition: TopicPartition, data: bytes | bytearray | memoryview, record_count: int
    ) -> None:
        """Queue one v2 batch, then send the queued batches as `add_all` does."""
        self.add_all([(partition, data, record_count)])

    def add_all(
        self, batches: Iterable[tuple[TopicPartition, bytes | bytearray | memoryview, int]]
    ) -> None:
        """Queue v2 batches with their numbers of records, waiting while buffer.memory is full, then
        send the queued batches that may be sent now: others wait, for example for earlier batches
        of their partition, for a leader or for the time of a retry.

        A writable buffer is not copied: it belongs to the producer until `flush` returns.

        :raises DeliveryFailed: if any batch was refused, or not acknowledged in time
        """
        self._check()
        self._exclude_absence()
        core = self._core
        for partition, data, record_count in batches:
            while core.pending_bytes and core.pending_bytes + len(data) > self._buffer_bytes:
                self._turn(wait=True)
            is_own = isinstance(data, bytearray) or not memoryview(data).readonly
            own = data if is_own and not isinstance(data, bytes) else bytearray(data)
            core.add(Batch(partition, own, record_count, self._active_time_ms()))
        self._turn(wait=False)
        self._left_ms = self._client.now_ms()

    def flush(self) -> None:
        """Wait until every batch is acknowledged (with acks=0: until it is sent) or was passed to
        the receiver of refused records (`on_refused_record`).

        :raises DeliveryFailed: if any batch was refused, or not acknowledged in time
        """
        self._check()
        self._exclude_absence()
        while not self._core.is_idle:
            self._turn(wait=True)
        self._left_ms = self._client.now_ms()
        self._troubled.clear()
        self._client.retries.on_success(self._trouble)

    def handle_responses_until(self, until_ms: int) -> None:
        """Handle responses and send queued batches until ``until_ms`` of the client's clock, for
        callers that have no batches to add for a while.

        :raises DeliveryFailed: if any batch was refused, or not acknowledged in time
        """
        self._check()
        self._exclude_absence()
        while (now_ms := self._client.now_ms()) < until_ms:
            if self._core.is_idle:
                self._client.sleep_ms(until_ms - now_ms)
            else:
                self._turn(wait=True, until_ms=until_ms)
        self._left_ms = self._client.now_ms()

    def _exclude_absence(self) -> None:
        """Exclude the time since the last call of this producer from the age of its batches, which
        delivery.timeout.ms limits: between calls the producer can send nothing."""
        if self._left_ms is not None:
            self._absence_ms += self._client.now_ms() - self._left_ms

    def _active_time_ms(self) -> int:
        """The present time, in ms, of the clock that measures the age of batches: it stands still
        between the calls of this producer."""
        return self._client.now_ms() - self._absence_ms

    def _check(self) -> None:
        if self._failure is not None:
            raise DeliveryFailed(f"this producer failed before: {self._failure}")

    def _turn(self, *, wait: bool, until_ms: int | None = None) -> None:
        """Send the batches that may be sent, then handle the responses that came. With ``wait``, if
        there is no response yet, first wait for one or until a paused partition may be sent to
        again, but not beyond ``until_ms``."""
        client = self._client
        try:
            with client.retries.attribute_to(self._trouble, self._gives_up_at_ms):
                if self._core.needs_identity:
                    self._find_identity()
                self._send_ready()
                now_ms = client.now_ms()
                may_wait = wait and not any(call.is_done for call, _ in self._calls)
                wait_until_ms = self._wait_until_ms(now_ms) if may_wait else now_ms
                client.links.poll(
                    wait_until_ms if until_ms is None else min(wait_until_ms, until_ms)
                )
                self._take_responses()
            self._check_age()
        except KlogError as error:
            self._failure = error
            raise

    def _wait_until_ms(self, now_ms: int) -> int:
        until_ms = now_ms + self._request_timeout_ms
        wakeup_ms = self._core.next_wakeup_ms(now_ms)
        if wakeup_ms is not None:
            until_ms = min(until_ms, wakeup_ms)
        return until_ms if self._calls or wakeup_ms is not None else now_ms

    def _gives_up_at_ms(self) -> int:
        """The time of the client's clock, in ms, at which the oldest batch reaches
        delivery.timeout.ms; without batches delivery.timeout.ms from now."""
        oldest_ms = self._core.oldest_ms()
        waited_ms = 0 if oldest_ms is None else self._active_time_ms() - oldest_ms
        return self._client.now_ms() + self._delivery_timeout_ms - waited_ms

    def _failed(self, partition: TopicPartition, error: KlogError) -> None:
        """Note a failed attempt to send a batch of this partition, and log a warning if one is due:
        warnings of repeated failures get rarer."""
        self._troubled.add(partition)
        self._client.retries.on_failure(self._trouble, error, self._gives_up_at_ms())

    def _check_age(self) -> None:
        oldest_ms = self._core.oldest_ms()
        if oldest_ms is None:
            return
        if self._active_time_ms() - oldest_ms >= self._delivery_timeout_ms:
            names = ", ".join(str(p) for p in sorted(self._core.waiting())[:5])
            raise DeliveryFailed(
                f"records were not acknowledged within {self._delivery_timeout_ms} ms "
                f"(delivery.timeout.ms); unacknowledged records exist for {names}"
            )

    # --- producer id and epoch -------------------------------------------------------------------
    def _find_identity(self) -> None:
        identity = request_producer_id(self._client, self._delivery_timeout_ms)
        if identity != NO_IDENTITY:
            self._core.set_identity(identity)
            return
        if self._client.settings.is_given("enable.idempotence"):
            raise UnsupportedByBroker("enable.idempotence=true needs a Kafka broker from 0.11 on")
        _log.warning("the broker is older than Kafka 0.11: retries may write records twice")
        self._core.disable_idempotence()

    # --- sending Produce requests ----------------------------------------------------------------
    def _send_ready(self) -> None:
        client = self._client
        now_ms = client.now_ms()
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in self._core.ready(now_ms):
            try:
                leader = client.leader_of(partition, now_ms + self._request_timeout_ms)
                by_leader[leader.leader].append(partition)
            except (LeaderUnknown, TimedOut) as error:
                _log.info("partition=%s: records wait for a leader: %s", partition, error)
                self._failed(partition, error)
                self._core.delay(partition, now_ms + client.wait_ms(1))
        for leader_id, partitions in by_leader.items():
            try:
                self._send_to(leader_id, partitions)
            except KlogError as error:
                if not is_retriable(error) and not isinstance(error, TimedOut):
                    raise
                _log.info("broker=%d accepts no records now: %s", leader_id, error)
                for partition in partitions:
                    self._failed(partition, error)
                    client.forget_topic(partition.topic)
                    self._core.delay(partition, client.now_ms() + client.wait_ms(1))

    def _send_to(self, leader_id: int, partitions: list[TopicPartition]) -> None:
        client = self._client
        link = client.link_to_broker(leader_id, client.now_ms() + self._request_timeout_ms)
        if self._acks == 0 and self._unheard.setdefault(leader_id, link) is not link:
            # The connection of the last batches is closed, perhaps by the leader. With acks=0 that
            # is the only sign of a leader that was replaced: ask for the leaders again before
            # sending more.
            self._unheard[leader_id] = link
            for partition in partitions:
                client.forget_topic(partition.topic)
            return
        while link.connection.in_flight < self._max_in_flight:
            batches = self._core.drain_batches(partitions, client.now_ms())
            if not batches:
                return
            try:
                call = send_batches(
                    client,
                    link,
                    batches,
                    acks=self._acks,
                    timeout_ms=self._request_timeout_ms,
                    is_idempotent=self._core.idempotent,
                    transaction=self._transaction,
                )
            except KlogError as error:
                self._lost(batches, error)
                if not is_retriable(error):
                    raise
                return
            self._calls.append((call, batches))

    # --- handling Produce responses --------------------------------------------------------------
    def _take_responses(self) -> None:
        waiting: list[tuple[Call[ProduceResponse], list[Batch]]] = []
        for call, batches in self._calls:
            if not call.is_done:
                waiting.append((call, batches))
            elif call.error is not None:
                self._lost(batches, call.error)
            elif not call.expects_response:
                for batch in batches:
                    self._written(batch, -1)
            elif call.response is not None:
                self._take_response(call.response, batches)
        self._calls = waiting

    def _take_response(self, response: ProduceResponse, batches: list[Batch]) -> None:
        for batch, row in pair_responses(response, batches):
            self._settle(batch, row)

    def _settle(self, batch: Batch, row: PartitionProduceResponse) -> None:
        code = error_code(row.error_code)
        verdict = self._core.verdict(batch, code)
        if verdict in (Verdict.WRITTEN, Verdict.SET_ASIDE):
            self._new_identities = 0
        if verdict is Verdict.WRITTEN:
            self._written(batch, row.base_offset)
            if self._trouble.is_open:
                self._troubled.discard(batch.partition)
                if not self._troubled:
                    self._client.retries.on_success(self._trouble)
            return
        _log.info(
            "partition=%s attempt=%d to write a batch failed: %s",
            batch.partition,
            batch.attempts,
            code.name,
        )
        if verdict is Verdict.SPLIT:
            if code is ErrorCode.MESSAGE_TOO_LARGE:
                self._note_refused(batch)
            self._core.split(batch, split_in_half)
        elif verdict is Verdict.SET_ASIDE and self._on_refused_record is not None:
            self._core.drop_batch(batch)
            text = str(records_refused(batch, code, row.error_message))
            self._on_refused_record(RefusedRecord(batch.partition, batch.data, code, text))
        elif verdict is Verdict.NEW_IDENTITY:
            self._retry_with_new_identity(batch)
        elif verdict is Verdict.RETRY and code is ErrorCode.CONCURRENT_TRANSACTIONS:
            wait_ms = concurrent_wait_ms(batch.attempts)
            self._core.retry(batch, self._client.now_ms() + wait_ms, is_unwritten=True)
        elif verdict is Verdict.RETRY:
            self._failed(batch.partition, broker_error(code, f"partition {batch.partition}"))
            self._client.forget_topic(batch.partition.topic)
            self._retry(batch)
        else:
            raise records_refused(batch, code, row.error_message)

    def _written(self, batch: Batch, base_offset: int) -> None:
        self._core.written(batch, base_offset)
        self._on_written(batch)

    def _note_refused(self, batch: Batch) -> None:
        size, topic = len(batch.data), batch.partition.topic
        least, most = self._refused_bytes.get(topic, (size, size))
        self._refused_bytes[topic] = min(least, size), max(most, size)

    def _lost(self, batches: list[Batch], error: KlogError) -> None:
        """Queue batches to be sent again, unchanged, because it is unknown whether they were
        written.

        :raises DeliveryFailed: if a batch was sent more often than ``retries`` allows
        """
        for batch in batches:
            self._client.forget_topic(batch.partition.topic)
            if batch.attempts > self._client.settings.number("retries"):
                raise DeliveryFailed(
                    f"records for {batch.partition} were not acknowledged: {error}"
                ) from error
            self._failed(batch.partition, error)
            self._retry(batch)

    def _retry(self, batch: Batch) -> None:
        now_ms = self._client.now_ms()
        self._core.retry(batch, now_ms + self._client.wait_ms(batch.attempts))

    def _retry_with_new_identity(self, batch: Batch) -> None:
        """Send the batch again under a new identity (producer id and epoch). If no batch has been
        written, or passed to the receiver of refused records, since this method was called last,
        wait first, longer each time."""
        self._core.retry_with_new_identity(batch)
        if self._new_identities:
            wait_ms = self._client.wait_ms(self._new_identities)
            self._core.delay(batch.partition, self._client.now_ms() + wait_ms)
        self._new_identities += 1


def _ignore_written(batch: Batch) -> None:
    """Do nothing: the receiver of written batches until `Producer.on_written` sets another one."""


def _request_bytes(settings: ClientSettings) -> int:
    given = settings.number("max.request.size")
    return given if settings.is_given("max.request.size") else max(given, _MOST_REQUEST_BYTES)
