"""Producers with the real client's sequences and retries: idempotent or not, with any acks."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pyspark_klog.client.producer.batch_order import BatchOrder, Verdict
from pyspark_klog.client.producer.batches import Batch, Identity
from pyspark_klog.client.transport.connection import Call
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.record import Header
from tests.simulation.checks.records import value_of
from tests.simulation.clients.base import WAKING, Client, Lost, Script, check_code
from tests.simulation.world import Violation

TIMEOUT_MS = 3_000
EXPECTED = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
)
NAMED = 12  # from version 13 on topics go by id


class Producer(Client):
    """Writes numbered records to partitions, and reports the acknowledged ones."""

    is_transactional = False
    most_records = 2_000
    pauses_ms: tuple[int, ...] = (10, 60, 200)
    _expected = EXPECTED
    _no_identity: tuple[ErrorCode, ...] = ()
    """Errors that InitProducerId may return for a while."""

    def __init__(
        self,
        *given: Any,
        partitions: list[TopicPartition],
        idempotent: bool,
        large: list[TopicPartition],
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        world = self.world
        self._partitions = partitions
        self._idempotent = idempotent
        self._large = large
        """The partitions for large records: one or two records, since they are slow."""
        self._large_left = 2 if large else 0
        self._timestamps_ms: dict[int, int] = {}
        self._acks = -1 if idempotent else world.random.choice((0, 1, -1))
        self._codec = world.random.choice((Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP))
        self._pause_ms = world.random.choice(self.pauses_ms)
        self._version = world.random.choice((None, None, 3, 7, 9))
        self._core = self._new_core()
        self._numbers: dict[int, list[int]] = {}
        """The record numbers of each batch, by the id of the batch object."""
        self._next = 0
        self._calls: list[tuple[Call[ProduceResponse], list[Batch], int]] = []

    def script(self) -> Script:
        self._take_back()
        yield from self.connect()
        while not self._is_through():
            if self._wants_more():
                self._make_batches()
            if self._core.needs_identity:
                yield from self._find_identity()
            self._send()
            until_ms = self.world.now_ms + self.world.between(1, self._pause_ms)
            yield max(until_ms - self.world.now_ms, 1)
            self._take_answers()

    def _is_through(self) -> bool:
        """Whether nothing is left to do over this connection."""
        return self.must_end and self._core.is_idle

    def _ready(self, now_ms: int) -> list[TopicPartition]:
        """The partitions whose batches can be sent now over this connection."""
        return self._core.ready(now_ms)

    def _may_time_out(self, sent_ms: int) -> bool:
        return self.machine.last_trouble_ms >= sent_ms

    def _new_core(self) -> BatchOrder:
        return BatchOrder(
            idempotent=self._idempotent,
            max_in_flight=5 if self._idempotent else 1,
            max_request_bytes=100_000,
            max_attempts=1_000,
            transactional=self.is_transactional,
        )

    # --- records ---------------------------------------------------------------------------------
    def _wants_more(self) -> bool:
        is_behind = self._core.pending_bytes >= 20_000
        return not (self.must_end or is_behind or self._next >= self.most_records)

    def _make_batches(self) -> None:
        world = self.world
        for _ in range(world.between(1, 3)):
            is_large = self._large_left > 0 and world.chance(0.05)
            self._large_left -= is_large
            partition = world.random.choice(self._large if is_large else self._partitions)
            self._make_batch(partition, is_large=is_large)

    def _make_batch(self, partition: TopicPartition, *, is_large: bool = False) -> list[int]:
        """Add a batch of new records; return their numbers."""
        world = self.world
        builder = BatchBuilder(codec=self._codec)
        count = 1 if is_large else world.between(1, 5)
        numbers = list(range(self._next, self._next + count))
        self._next = numbers[-1] + 1
        timestamp_ms = world.clock.now_ms()
        for number in numbers:
            most = (1_000_000, 3_000_000) if is_large else (0, 120)
            padding = b"x" * world.between(*most)
            self._append(builder, partition, value_of(self.name, number), padding, timestamp_ms)
        batch = Batch(partition, bytearray(builder.build()), len(numbers), world.now_ms)
        self._numbers[id(batch)] = numbers
        self._timestamps_ms[id(batch)] = timestamp_ms
        self._core.add(batch)
        return numbers

    def _append(
        self,
        builder: BatchBuilder,
        partition: TopicPartition,
        name: bytes,
        padding: bytes,
        timestamp_ms: int,
    ) -> None:
        """Append a record; in a compacted topic it has a key, and perhaps no value."""
        keys = self.history.records.keys_of(partition)
        if not keys:
            builder.append(None, name + padding, timestamp_ms)
            return
        key = b"k%d" % self.world.between(1, keys)
        if self.world.chance(0.2):
            builder.append(key, None, timestamp_ms, [Header("name", name)])
        else:
            builder.append(key, name + padding, timestamp_ms)

    def _find_identity(self) -> Generator[Any, Any, None]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        reply = yield from self.call_broker(request, InitProducerIdResponse)
        code = check_code(self, reply.error_code, *self._no_identity)
        if code is not ErrorCode.NONE:
            yield from self.sleep(100)
            return
        if reply.producer_id in self.history.producer_ids:
            raise Violation("a producer id is given once", f"{reply.producer_id} again")
        self.history.producer_ids.add(reply.producer_id)
        self.note(f"identity {reply.producer_id}")
        self._core.set_identity(Identity(reply.producer_id, reply.producer_epoch))

    # --- requests --------------------------------------------------------------------------------
    def _send(self) -> None:
        core, now_ms = self._core, self.world.now_ms
        low, high = self._versions()
        while self.in_flight < (5 if self._idempotent else 1):
            batches = core.drain_batches(self._ready(now_ms), now_ms)
            if not batches:
                return
            request = self._new_request()
            topics: dict[str, TopicProduceData] = {}
            for batch in batches:
                topic = batch.partition.topic
                row = topics.get(topic)
                if row is None:
                    row = topics[topic] = TopicProduceData(name=topic)
                    request.topic_data.append(row)
                data = PartitionProduceData(
                    index=batch.partition.partition, records=self._bytes_of(batch)
                )
                row.partition_data.append(data)
                numbers = self._numbers[id(batch)]
                self.history.records.is_sending(
                    batch.partition,
                    self.name,
                    numbers,
                    self._idempotent,
                    self._timestamps_ms[id(batch)],
                )
            call = self.send(
                request,
                ProduceResponse,
                low=low,
                high=high,
                waits_ms=TIMEOUT_MS,
                expects_response=self._acks != 0,
            )
            self._calls.append((call, batches, now_ms))

    def _new_request(self) -> ProduceRequest:
        return ProduceRequest(acks=self._acks, timeout_ms=TIMEOUT_MS)

    def _versions(self) -> tuple[int, int]:
        return 3, min(self._version or NAMED, NAMED)

    def _bytes_of(self, batch: Batch) -> bytes:
        if self._idempotent:
            identity = batch.identity
            BatchView(batch.data).set_producer_state(
                identity.producer_id,
                identity.producer_epoch,
                batch.sequence,
                is_transactional=self.is_transactional,
            )
        return bytes(batch.data)

    # --- answers ---------------------------------------------------------------------------------
    def _take_answers(self) -> None:
        waiting, is_lost = [], False
        for call, batches, sent_ms in self._calls:
            if not call.is_done:
                waiting.append((call, batches, sent_ms))
            elif call.error is not None:
                is_lost = True
                self._lose_batches(batches)
            elif not call.expects_response:
                for batch in batches:
                    self._core.written(batch, -1)
            else:
                self._take_response(call.result(), batches, sent_ms)
        self._calls = waiting
        if is_lost or not self.is_connected:
            raise Lost

    def _take_response(self, reply: ProduceResponse, batches: list[Batch], sent_ms: int) -> None:
        rows: dict[TopicPartition, PartitionProduceResponse] = {}
        for topic in reply.responses:
            for row in topic.partition_responses:
                rows[TopicPartition(topic.name, row.index)] = row
        for batch in batches:
            row = rows[batch.partition]
            code = check_code(self, row.error_code, *self._expected)
            if code is ErrorCode.REQUEST_TIMED_OUT and not self._may_time_out(sent_ms):
                raise Violation(WAKING, f"{self.name}: {batch.partition} was not answered in time")
            verdict = self._core.verdict(batch, code)
            numbers = self._numbers[id(batch)]
            self.note(f"{batch.partition} {numbers[0]} {code.name} at {row.base_offset}")
            if verdict is Verdict.WRITTEN:
                self._core.written(batch, row.base_offset)
                self._acknowledged(batch.partition, row.base_offset, numbers)
            elif verdict is Verdict.NEW_IDENTITY:
                self._core.retry_with_new_identity(batch)
            elif verdict is Verdict.RETRY:
                self._core.retry(batch, self.world.now_ms + self.world.between(1, 100))
            else:
                self._fail(batch, code)

    def _acknowledged(self, partition: TopicPartition, offset: int, numbers: list[int]) -> None:
        self.history.records.was_acknowledged(partition, offset, self.name, numbers)
        self.machine.has_told("acknowledged")

    def _fail(self, batch: Batch, code: ErrorCode) -> None:
        """A batch was refused, and must not be sent again."""
        raise Violation("errors are expected ones", f"{self.name}: {batch.partition} {code.name}")

    def _lose_batches(self, batches: list[Batch]) -> None:
        for batch in batches:
            self._core.retry(batch, self.world.now_ms + self.world.between(1, 100))

    def _take_back(self) -> None:
        """Retry the batches that the last connection left without a response."""
        for call, batches, sent_ms in self._calls:
            if call.response is not None and call.expects_response:
                self._take_response(call.result(), batches, sent_ms)
            else:
                self._lose_batches(batches)
        self._calls = []
