"""The evented driver of a producer: collects records into batches, sends them, and reports what
became of each record.

All methods must be called in the loop's thread; none of them waits. Unlike the blocking driver it
goes on after a failed batch: only the records of that batch fail.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial

from pyspark_klog.client.cluster.evented_client import EventedClient
from pyspark_klog.client.errors import (
    LeaderUnknown,
    TimedOut,
    UnsupportedByBroker,
    error_code,
    is_retriable,
)
from pyspark_klog.client.producer.accumulator import Accumulator, RecordList
from pyspark_klog.client.producer.batch_order import BatchOrder, Verdict
from pyspark_klog.client.producer.batch_splitting import split_in_half
from pyspark_klog.client.producer.batches import Batch, Identity
from pyspark_klog.client.producer.out_records import OutRecord, ProducerSettings, Purged, Reports
from pyspark_klog.client.producer.partition_assignment import PartitionAssignment
from pyspark_klog.client.producer.refusals import no_identity, records_refused
from pyspark_klog.client.producer.requests import pair_responses, produce_request, versions
from pyspark_klog.client.transport.event_loop import EventLoop, LoopTimer
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pyspark_klog.protocol.apis.produce import PartitionProduceResponse, ProduceResponse
from pyspark_klog.records.builder import BatchBuilder

_MOST_REQUEST_BYTES = 4 << 20


class EventedProducer:
    """Writes records through ``client``, whose owner calls `on_metadata` after each response with
    metadata."""

    def __init__(
        self,
        client: EventedClient,
        settings: ProducerSettings,
        reports: Reports,
        *,
        loop: EventLoop,
        random: Callable[[], float],
    ) -> None:
        self._client = client
        self._settings = settings
        self._reports = reports
        self._loop = loop
        self._random = random
        self._accumulator: Accumulator[OutRecord] = Accumulator(
            batch_bytes=settings.batch_bytes, linger_ms=settings.linger_ms
        )
        self._order = BatchOrder(
            idempotent=settings.is_idempotent,
            max_in_flight=settings.max_in_flight,
            max_request_bytes=max(settings.max_request_bytes, _MOST_REQUEST_BYTES),
            max_attempts=settings.retries,
        )
        # A record that its topic refuses fails alone: its batch is split until it is alone.
        self._order.leaves_refused_out = True
        self._records: dict[int, RecordList[OutRecord]] = {}
        """The records of each batch in `_order`, by the id of the batch object."""
        self._assignment = PartitionAssignment(
            client, settings, self._append, self._order.unsent_count, reports.on_failed, random
        )
        self._in_flight: dict[int, int] = defaultdict(int)
        self._sent: dict[int, Batch] = {}
        self._flushes = 0
        self._is_scheduled = False
        self._asks_for_identity = False
        self._identity_failures = 0
        self._new_identities = 0
        self._fatal: KlogError | None = None
        self._timer: LoopTimer | None = None

    # --- records ---------------------------------------------------------------------------------
    def append(self, topic: str, partition: int, record: OutRecord, size_bytes: int) -> None:
        """Write a record to a partition, or to the one that the settings choose
        (`ANY_PARTITION`)."""
        if self._fatal is not None:
            self._reports.on_failed(TopicPartition(topic, partition), [record], self._fatal)
            return
        self._assignment.add(topic, partition, record, size_bytes, self._loop.now_ms())
        self._turn_soon()

    def _append(self, partition: TopicPartition, record: OutRecord, size_bytes: int) -> bool:
        return self._accumulator.append(partition, record, size_bytes, self._loop.now_ms())

    def begin_flush(self) -> None:
        """Send what waits for linger.ms; each call needs an `end_flush`."""
        self._flushes += 1
        self._turn_soon()

    def end_flush(self) -> None:
        """End one flush: records wait for linger.ms again after the last one."""
        self._flushes -= 1

    def purge(self, *, in_queue: bool, in_flight: bool) -> None:
        """Let the records fail that were not sent yet, and those that were sent and not
        answered."""
        if in_queue:
            error = Purged(is_sent=False)
            self._assignment.fail_all(error)
            for some in self._accumulator.drop():
                self._reports.on_failed(some.partition, some.records, error)
            for batch in self._order.unsent():
                self._order.drop_unsent(batch)
                self._report_failure(batch, Purged(is_sent=batch.may_be_written))
        if in_flight:
            for batch in self._sent.values():
                self._report_failure(batch, Purged(is_sent=True))
        self._turn_soon()

    def on_metadata(self) -> None:
        """Look for the partitions of records that wait for them, and for new leaders."""
        self._assignment.on_metadata(self._loop.now_ms())
        self._turn_soon()

    # --- turns -----------------------------------------------------------------------------------
    def _turn_soon(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_at_send(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        now_ms = self._loop.now_ms()
        self._expire(now_ms)
        for some in self._accumulator.take_ready(
            now_ms,
            may_take=lambda place: self._order.unsent_count(place) == 0,
            all_at_once=self._flushes > 0,
        ):
            self._add_batch(some)
        self._send_ready(now_ms)
        self._set_timer(now_ms)

    def _set_timer(self, now_ms: int) -> None:
        limit_ms = self._settings.delivery_timeout_ms
        times = [self._order.next_wakeup_ms(now_ms)]
        linger_ms = self._accumulator.next_ms()
        # Lists whose time has come, and that are still here, wait for a response.
        times.append(linger_ms if linger_ms is not None and linger_ms > now_ms else None)
        # Batches in flight are late only once they are answered.
        unsent = [batch.enqueued_ms for batch in self._order.unsent()]
        oldest = [
            *(self._accumulator.oldest_ms(), self._assignment.oldest_ms()),
            min(unsent, default=None),
        ]
        times += [None if at is None else at + limit_ms for at in oldest]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = [at for at in times if at is not None]
        if due:
            self._timer = self._loop.call_at(min(due), self._turn_soon)

    def _expire(self, now_ms: int) -> None:
        """Let the records fail that delivery.timeout.ms is over for, unless they are in flight."""
        until_ms = now_ms - self._settings.delivery_timeout_ms
        self._assignment.fail_until(until_ms, self._late())
        for some in self._accumulator.drop(lambda each: each.created_ms <= until_ms):
            self._reports.on_failed(some.partition, some.records, self._late())
        for batch in self._order.unsent():
            if batch.enqueued_ms <= until_ms:
                self._order.drop_unsent(batch)
                self._report_failure(batch, self._late())

    def _late(self) -> TimedOut:
        limit_ms = self._settings.delivery_timeout_ms
        return TimedOut(f"not acknowledged within {limit_ms} ms (delivery.timeout.ms)")

    # --- sending batches -------------------------------------------------------------------------
    def _add_batch(self, some: RecordList[OutRecord]) -> None:
        settings = self._settings
        builder = BatchBuilder(codec=settings.codec, compression_level=settings.level)
        for record in some.records:
            builder.append(record.key, record.value, record.timestamp_ms, record.headers)
        batch = Batch(
            some.partition, bytearray(builder.build()), len(some.records), some.created_ms
        )
        self._records[id(batch)] = some
        self._order.add(batch)

    def _send_ready(self, now_ms: int) -> None:
        if self._order.needs_identity and not self._order.is_idle:
            self._ask_for_identity()
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for place in self._order.ready(now_ms):
            info = self._client.view.leader(place)
            if info is not None:
                by_leader[info.leader].append(place)
                continue
            self._client.follow(place.topic)
            self._client.doubt(place.topic)
            self._order.delay(place, now_ms + self._wait_ms(1))
        for leader, places in by_leader.items():
            while self._in_flight[leader] < self._settings.max_in_flight:
                batches = self._order.drain_batches(places, now_ms)
                if not batches:
                    break
                self._send(leader, batches)

    def _send(self, leader: int, batches: list[Batch]) -> None:
        settings, is_idempotent = self._settings, self._order.idempotent
        self._in_flight[leader] += 1
        self._sent.update((id(batch), batch) for batch in batches)
        low, high = versions(self._client.view, batches, is_idempotent=is_idempotent)
        self._client.send_to_broker(
            leader,
            ProduceResponse,
            lambda version: produce_request(
                self._client.view,
                batches,
                version,
                acks=settings.acks,
                timeout_ms=settings.request_timeout_ms,
                is_idempotent=is_idempotent,
            ),
            partial(self._on_done, leader, batches),
            settings.request_timeout_ms,
            low=low,
            high=high,
            expects_response=settings.acks != 0,
        )

    def _wait_ms(self, failures: int) -> int:
        return self._settings.retry.wait_ms(failures, self._random)

    # --- responses -------------------------------------------------------------------------------
    def _on_done(
        self,
        leader: int,
        batches: list[Batch],
        response: ProduceResponse | None,
        error: KlogError | None,
    ) -> None:
        self._in_flight[leader] -= 1
        for batch in batches:
            del self._sent[id(batch)]
        pairs: list[tuple[Batch, PartitionProduceResponse]] = []
        if response is not None and self._settings.acks != 0:
            try:
                pairs = list(pair_responses(response, batches))
            except KlogError as unreadable:
                error = unreadable
        if error is not None:
            for batch in batches:
                self._on_error(batch, error)
        elif self._settings.acks == 0:
            for batch in batches:
                self._report_success(batch, -1, -1)
        for batch, row in pairs:
            self._settle(batch, row)
        self._turn_soon()

    def _on_error(self, batch: Batch, error: KlogError) -> None:
        """Send a batch again after a request without a response: it may be written."""
        if not is_retriable(error) or batch.attempts > self._settings.retries:
            self._order.drop_batch(batch)
            self._report_failure(batch, error)
            return
        self._client.doubt(batch.partition.topic)
        is_unwritten = isinstance(error, LeaderUnknown)
        at_ms = self._loop.now_ms() + self._wait_ms(batch.attempts)
        self._order.retry(batch, at_ms, is_unwritten=is_unwritten)

    def _settle(self, batch: Batch, row: PartitionProduceResponse) -> None:
        order, now_ms = self._order, self._loop.now_ms()
        code = error_code(row.error_code)
        verdict = order.verdict(batch, code)
        if verdict is Verdict.WRITTEN:
            self._new_identities = 0
            self._client.confirm(batch.partition.topic)
            self._report_success(batch, row.base_offset, row.log_append_time_ms)
        elif verdict is Verdict.SPLIT:
            self._split(batch)
        elif verdict is Verdict.NEW_IDENTITY:
            order.retry_with_new_identity(batch)
            if self._new_identities:
                order.delay(batch.partition, now_ms + self._wait_ms(self._new_identities))
            self._new_identities += 1
        elif verdict is Verdict.RETRY:
            self._client.doubt(batch.partition.topic)
            order.retry(batch, now_ms + self._wait_ms(batch.attempts))
        else:
            order.drop_batch(batch)
            self._report_failure(batch, records_refused(batch, code, row.error_message))

    def _split(self, batch: Batch) -> None:
        whole = self._records.pop(id(batch), None)
        at = 0
        for part in self._order.split(batch, split_in_half):
            if whole is not None:  # otherwise the records were purged
                some = RecordList[OutRecord](part.partition, part.enqueued_ms)
                some.records = whole.records[at : at + part.record_count]
                self._records[id(part)] = some
            at += part.record_count

    def _report_success(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        self._order.written(batch, base_offset)
        some = self._records.pop(id(batch), None)
        if some is not None:
            self._reports.on_written(batch.partition, some.records, base_offset, append_time_ms)

    def _report_failure(self, batch: Batch, error: KlogError) -> None:
        some = self._records.pop(id(batch), None)
        if some is not None:
            self._reports.on_failed(batch.partition, some.records, error)

    # --- producer id and epoch -------------------------------------------------------------------
    def _ask_for_identity(self) -> None:
        if self._asks_for_identity or self._fatal is not None:
            return
        self._asks_for_identity = True
        self._client.send_to_any(
            InitProducerIdResponse,
            lambda _: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
            self._on_identity,
            self._settings.request_timeout_ms,
        )

    def _on_identity(
        self, response: InitProducerIdResponse | None, error: KlogError | None
    ) -> None:
        self._asks_for_identity = False
        if response is not None:
            code = error_code(response.error_code)
            error = None if code is ErrorCode.NONE else no_identity(code)
        if isinstance(error, UnsupportedByBroker):
            self._order.disable_idempotence()
        elif error is not None and (is_retriable(error)):
            self._identity_failures += 1
            self._asks_for_identity = True
            wait_ms = self._wait_ms(self._identity_failures)
            self._loop.call_at(self._loop.now_ms() + wait_ms, self._may_ask_again)
            return
        elif error is not None:
            self._fail_all(error)
        else:
            assert response is not None
            self._identity_failures = 0
            self._order.set_identity(Identity(response.producer_id, response.producer_epoch))
        self._turn_soon()

    def _may_ask_again(self) -> None:
        self._asks_for_identity = False
        self._turn_soon()

    def _fail_all(self, error: KlogError) -> None:
        """The producer cannot write at all: let all records fail, those to come included."""
        self._fatal = error
        self._assignment.fail_all(error)
        for some in self._accumulator.drop():
            self._reports.on_failed(some.partition, some.records, error)
        for batch in self._order.unsent():
            self._order.drop_unsent(batch)
            self._report_failure(batch, error)
