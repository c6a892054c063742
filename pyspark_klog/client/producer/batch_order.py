"""The order of a producer's batches, and the outcome of each. Pure: no socket, no clock.

Batches of a partition wait in a queue and are sent in order, several at a time. A batch keeps its
sequence through all its attempts, so that a broker recognizes a repeated batch and refuses a gap
(KIP-98, KIP-360); the sequence changes only with the producer's identity (producer id and epoch),
or if an earlier batch is dropped in a transaction. After a failure nothing of that partition is
sent until all its requests are answered. Then sending begins again at the queue's head, one batch
at a time until the failed batches are written: a broker remembers a producer's last five batches,
so if newer batches were sent together with a repeated one, the broker could have forgotten the
repeated batch before it answers. A partition's first batch under a new identity is also sent alone,
because a broker accepts any sequence from an identity that it does not know.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from itertools import islice

from pyspark_klog.client.errors import DeliveryFailed
from pyspark_klog.client.producer.batches import (
    NO_IDENTITY,
    Batch,
    Identity,
    PartitionQueue,
    add_to_sequence,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_SEQUENCE, TopicPartition

_ONE_RECORDS_FAULT = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
)
"""Error codes that refuse a whole batch, although perhaps only one of its records is at fault."""


class Verdict(Enum):
    """How the producer handles a broker's response to a batch."""

    WRITTEN = auto()
    RETRY = auto()
    NEW_IDENTITY = auto()
    """The broker has lost the producer's state: send the batch again under a new identity (a new
    producer id and epoch)."""
    SPLIT = auto()
    SET_ASIDE = auto()
    """Drop the batch, but go on with the others: the topic refuses the batch's only record, and the
    caller wants such records to be left out (`BatchOrder.leaves_refused_out`)."""
    FAIL = auto()


class BatchOrder:
    """All batches of one producer.

    ``max_in_flight`` limits the unanswered batches of one partition. A transactional producer keeps
    the identity of its transactional id: no new one is requested after a failure.
    """

    def __init__(
        self,
        *,
        idempotent: bool,
        max_in_flight: int,
        max_request_bytes: int,
        max_attempts: int,
        transactional: bool = False,
    ) -> None:
        self.idempotent = idempotent
        self._transactional = transactional
        self.identity = NO_IDENTITY
        self.pending_bytes = 0
        self.written_records = 0
        self.leaves_refused_out = False
        """Whether records that a topic refuses are left out and the other records of their batch
        are written; if False, a refused record makes the producer fail."""
        self._max_in_flight = max_in_flight
        self._max_request_bytes = max_request_bytes
        self._max_attempts = max_attempts
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._in_flight = 0
        self._wants_identity = idempotent and not transactional

    # --- adding batches, and the state of the batches in the queues ------------------------------
    def add(self, batch: Batch) -> None:
        """Queue a batch after the others of its partition."""
        self._queues.setdefault(batch.partition, PartitionQueue()).batches.append(batch)
        self.pending_bytes += len(batch.data)

    @property
    def is_idle(self) -> bool:
        """Whether no batch is left to be written."""
        return self.pending_bytes == 0

    @property
    def in_flight(self) -> int:
        """The number of batches that were sent and not answered."""
        return self._in_flight

    @property
    def needs_identity(self) -> bool:
        """Whether `set_identity` has to be called, with a new producer id and epoch, before
        another batch is sent.

        False while a batch is in flight, or while a failed attempt may have written its batch after
        all: under a new identity that batch could be written twice (KIP-360).
        """
        if not self._wants_identity or self._in_flight:
            return False
        return not any(queue.is_unsettled for queue in self._queues.values())

    def oldest_ms(self) -> int | None:
        """When the oldest queued batch was added (`Batch.enqueued_ms`); None without batches."""
        heads = [q.batches[0].enqueued_ms for q in self._queues.values() if q.batches]
        return min(heads, default=None)

    def waiting(self) -> list[TopicPartition]:
        """Partitions with batches that are not written yet."""
        return [partition for partition, queue in self._queues.items() if queue.batches]

    def unsent_count(self, partition: TopicPartition) -> int:
        """The number of a partition's batches that are not in flight."""
        queue = self._queues.get(partition)
        return 0 if queue is None else len(queue.batches) - queue.in_flight

    def unsent(self) -> list[Batch]:
        """All batches that are not in flight, those of a partition in their order."""
        return [b for queue in self._queues.values() for b in queue.batches if not b.in_flight]

    def next_wakeup_ms(self, now_ms: int) -> int | None:
        """When the next partition that is paused after a failure may be sent to again; None if no
        partition with batches is paused."""
        times = [
            q.not_before_ms for q in self._queues.values() if q.batches and q.not_before_ms > now_ms
        ]
        return min(times, default=None)

    # --- choosing batches to send ----------------------------------------------------------------
    def set_identity(self, identity: Identity) -> None:
        """Send under a new identity (producer id and epoch) from now on: each partition's sequence
        begins at 0."""
        self.identity = identity
        self._wants_identity = False
        for queue in self._queues.values():
            queue.next_sequence, queue.renumber_from = 0, NO_SEQUENCE
            queue.is_known = False
            for batch in queue.batches:
                batch.sequence = NO_SEQUENCE
                batch.may_be_written = batch.needs_new_sequence = False

    def expected_sequences(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[Identity, list[int]]:
        """The identity (producer id and epoch) and the sequence that the next batch of each
        partition is likely to get.

        Without an identity there are no sequences. A failure may change identity and sequences.
        """
        if not self.idempotent or self._wants_identity:
            return NO_IDENTITY, []
        return self.identity, [self._expected_sequence(each) for each in partitions]

    def _expected_sequence(self, partition: TopicPartition) -> int:
        queue = self._queues.get(partition)
        if queue is None:
            return 0
        waiting = sum(b.record_count for b in queue.batches if b.sequence == NO_SEQUENCE)
        return add_to_sequence(queue.next_sequence, waiting)

    def ready(self, now_ms: int) -> list[TopicPartition]:
        """Partitions to which a queued batch may be sent now."""
        return [p for p, queue in self._queues.items() if self._sendable(queue, now_ms)]

    def _sendable(self, queue: PartitionQueue, now_ms: int) -> bool:
        return (
            len(queue.batches) > queue.in_flight
            and (not self._wants_identity or self._may_settle(queue))
            and queue.in_flight < self._most_in_flight(queue)
            and not (queue.in_flight and (queue.must_drain or queue.batches[0].may_be_written))
            and queue.not_before_ms <= now_ms
        )

    def _most_in_flight(self, queue: PartitionQueue) -> int:
        # A broker accepts any sequence from a producer that it does not know. So if the first two
        # batches were sent at once and the first one was refused, as too large for example, the
        # second one would be written before it.
        return self._max_in_flight if queue.is_known or not self.idempotent else 1

    @staticmethod
    def _may_settle(queue: PartitionQueue) -> bool:
        """Whether to send this partition's next batch under the old producer id and epoch, although
        a new identity is wanted. An earlier attempt may have written a batch of this partition, and
        only the response to that batch, sent again unchanged, shows whether it did."""
        return queue.is_unsettled and not queue.first_unsent.needs_new_sequence

    def drain_batches(self, partitions: Iterable[TopicPartition], now_ms: int) -> list[Batch]:
        """Take batches for one request: at most one a partition, up to the request's size limit,
        which the first batch alone may exceed.

        The batches are in flight from now on. Hand each back with `written`, `retry`,
        `retry_with_new_identity`, `drop_batch` or `split`.
        """
        taken: list[Batch] = []
        room = self._max_request_bytes
        for partition in partitions:
            queue = self._queues[partition]
            if not self._sendable(queue, now_ms):
                continue
            if queue.must_drain:
                queue.must_drain = False
                if queue.renumber_from != NO_SEQUENCE:
                    queue.renumber()
            batch = queue.first_unsent
            if taken and len(batch.data) > room:
                continue
            room -= len(batch.data)
            if self.idempotent and batch.sequence == NO_SEQUENCE:
                batch.sequence = queue.next_sequence
                batch.identity = self.identity
                queue.next_sequence = add_to_sequence(queue.next_sequence, batch.record_count)
            batch.in_flight = True
            batch.attempts += 1
            queue.in_flight += 1
            self._in_flight += 1
            taken.append(batch)
        return taken

    # --- handling responses ----------------------------------------------------------------------
    def verdict(self, batch: Batch, code: ErrorCode) -> Verdict:
        """How to handle a broker's response, ``code``, to a batch in flight."""
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            return Verdict.WRITTEN
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            return Verdict.SPLIT
        if self.leaves_refused_out and code in _ONE_RECORDS_FAULT:
            if batch.record_count > 1:
                return Verdict.SPLIT
            # In a transaction, the batch after a dropped batch gets the dropped batch's sequence.
            # If an earlier attempt has written the dropped batch after all, the broker takes the
            # next batch for a repetition of the dropped one. Fail if that is possible.
            is_unsure = self._transactional and batch.may_be_written
            return Verdict.FAIL if is_unsure else Verdict.SET_ASIDE
        if batch.attempts > self._max_attempts:
            return Verdict.FAIL
        if self._transactional:
            return self._verdict_in_transaction(batch, code)
        if self.idempotent and code is ErrorCode.UNKNOWN_PRODUCER_ID:
            return Verdict.NEW_IDENTITY
        if self.idempotent and code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # After a batch has failed, the broker refuses the batches behind it with this code:
            # retry them. If it refuses the queue's first batch, it has lost the producer's state.
            is_head = self._queues[batch.partition].batches[0] is batch
            return Verdict.NEW_IDENTITY if is_head else Verdict.RETRY
        # Retry after UNKNOWN_TOPIC_OR_PARTITION as well: a topic that was just created is not yet
        # known to every broker.
        if code.retriable or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return Verdict.RETRY
        return Verdict.FAIL

    def _verdict_in_transaction(self, batch: Batch, code: ErrorCode) -> Verdict:
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            is_head = self._queues[batch.partition].batches[0] is batch
            return Verdict.FAIL if is_head and not batch.needs_new_sequence else Verdict.RETRY
        may_pass = code.retriable or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Verdict.RETRY if may_pass else Verdict.FAIL

    def written(self, batch: Batch, base_offset: int) -> None:
        """Remove a batch, which the broker has written, from its queue."""
        queue = self._take_from_flight(batch)
        del queue.batches[_place(queue, batch)]
        queue.is_known = True
        batch.base_offset = base_offset
        self.pending_bytes -= len(batch.data)
        self.written_records += batch.record_count

    def retry(self, batch: Batch, not_before_ms: int, *, is_unwritten: bool = False) -> None:
        """Send the batch again, at ``not_before_ms`` or later. ``is_unwritten`` says that this
        attempt has certainly written nothing."""
        queue = self._take_from_flight(batch)
        if not is_unwritten:
            batch.may_be_written = True
        queue.must_drain = True
        queue.not_before_ms = max(queue.not_before_ms, not_before_ms)

    def retry_with_new_identity(self, batch: Batch) -> None:
        """Send the batch again under a new identity (producer id and epoch), once `needs_identity`
        is true and the caller has passed the new identity to `set_identity`."""
        queue = self._take_from_flight(batch)
        queue.must_drain = True
        self._want_identity(queue.batches)

    def drop_batch(self, batch: Batch) -> None:
        """Drop the batch: it is never sent again.

        Its sequence stays missing, so the batches after it are sent under a new identity (producer
        id and epoch). In a transaction, which keeps its identity, they get new sequences, which
        begin at the missing one. No broker has written these batches before: a broker that knows
        the producer refuses batches after a gap, and a broker that does not know the producer gets
        the first batch alone.
        """
        queue = self._take_from_flight(batch)
        queue.must_drain = True
        self._remove(queue, batch)

    def drop_unsent(self, batch: Batch) -> None:
        """Drop a batch that is not in flight, because its time is over: it is never sent again.

        If it was never sent, it has no sequence, and nothing changes for the batches after it;
        otherwise they are sent as after `drop_batch`. An earlier attempt may still be written.
        """
        assert not batch.in_flight
        self._remove(self._queues[batch.partition], batch)

    def _remove(self, queue: PartitionQueue, batch: Batch) -> None:
        place = _place(queue, batch)
        del queue.batches[place]
        self.pending_bytes -= len(batch.data)
        if batch.sequence == NO_SEQUENCE:
            return
        behind = islice(queue.batches, place, None)
        if self._transactional:
            if not batch.needs_new_sequence:
                queue.renumber_from = batch.sequence
            for each in behind:
                each.needs_new_sequence = True
        elif self.idempotent:
            self._want_identity(behind)

    def split(
        self, batch: Batch, cut: Callable[[bytearray | memoryview], list[tuple[bytearray, int]]]
    ) -> list[Batch]:
        """Replace a batch that a topic has refused by the smaller batches, as (data, record count),
        that ``cut`` makes of its data; return them.

        The parts take over the batch's sequences, so that those of later batches stay valid.
        """
        queue = self._take_from_flight(batch)
        queue.must_drain = True
        parts = cut(batch.data)
        if len(parts) < 2 or sum(count for _, count in parts) != batch.record_count:
            raise DeliveryFailed(f"a batch of {batch.record_count} records could not be split")
        place = _place(queue, batch)
        del queue.batches[place]
        self.pending_bytes -= len(batch.data)
        sequence = batch.sequence
        made: list[Batch] = []
        for index, (data, count) in enumerate(parts):
            part = Batch(batch.partition, data, count, batch.enqueued_ms, sequence, batch.identity)
            part.needs_new_sequence = batch.needs_new_sequence
            queue.batches.insert(place + index, part)
            made.append(part)
            self.pending_bytes += len(data)
            if sequence != NO_SEQUENCE:
                sequence = add_to_sequence(sequence, count)
        return made

    def delay(self, partition: TopicPartition, not_before_ms: int) -> None:
        """Send nothing to the partition before ``not_before_ms``, for example because it has no
        leader now."""
        queue = self._queues[partition]
        queue.not_before_ms = max(queue.not_before_ms, not_before_ms)

    def drop_all(self) -> None:
        """Drop every batch, because the transaction is aborted. No request may be under way.

        If any batch was sent, the broker's sequences are unknown: then call `set_identity`.
        """
        for queue in self._queues.values():
            queue.batches.clear()
            queue.in_flight = 0
            queue.must_drain, queue.not_before_ms = False, 0
            queue.renumber_from = NO_SEQUENCE
        self.pending_bytes = self._in_flight = 0

    def disable_idempotence(self) -> None:
        """Send batches without sequences, because the broker is too old for idempotence."""
        self.idempotent = False
        self._wants_identity = False

    def _want_identity(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            batch.needs_new_sequence = True
        self._wants_identity = True

    def _take_from_flight(self, batch: Batch) -> PartitionQueue:
        queue = self._queues[batch.partition]
        batch.in_flight = False
        queue.in_flight -= 1
        self._in_flight -= 1
        return queue


def _place(queue: PartitionQueue, batch: Batch) -> int:
    """The index of this very batch, as two batches with the same records are equal."""
    return next(at for at, each in enumerate(queue.batches) if each is batch)
