"""A producer's batches, and the queue of one partition's batches. Pure; `batch_order.py` decides
when to send which batch."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_SEQUENCE, NO_TOPIC_ID, UUID, TopicPartition

_SEQUENCE_MASK = 2**31 - 1


class Identity(NamedTuple):
    """A producer's id and epoch, by which a broker recognises an idempotent producer."""

    producer_id: int
    producer_epoch: int


NO_IDENTITY = Identity(-1, -1)
ADDS_IMPLICITLY = 2
"""From this transaction.version on a Produce request adds its partitions to the transaction, and a
TxnOffsetCommit request its group, without AddPartitionsToTxn and AddOffsetsToTxn (KIP-890)."""


class InTransaction(NamedTuple):
    """The transaction that batches belong to, and its transaction.version."""

    transactional_id: str
    version: int


@dataclass(slots=True)
class Batch:
    """A v2 batch to send. ``data`` gets its producer id, epoch and sequence just before sending."""

    partition: TopicPartition
    data: bytearray | memoryview
    record_count: int
    enqueued_ms: int
    sequence: int = NO_SEQUENCE
    identity: Identity = NO_IDENTITY
    topic_id: UUID = NO_TOPIC_ID
    """The topic id in the last request with the batch; all zero if the request named the topic."""
    in_flight: bool = False
    attempts: int = 0
    may_be_written: bool = False
    """Whether an attempt to send the batch with its present sequence failed: the broker may have
    written the batch nevertheless."""
    needs_new_sequence: bool = False
    """Whether a sequence before this batch is missing, or the broker has lost the producer's state,
    so that the batch can be written only under another identity or, in a transaction, under another
    sequence."""
    base_offset: int = -1


@dataclass(slots=True)
class PartitionQueue:
    """The batches of one partition in order, in flight or not."""

    batches: deque[Batch] = field(default_factory=deque)
    next_sequence: int = 0
    in_flight: int = 0
    must_drain: bool = False
    not_before_ms: int = 0
    is_known: bool = False
    """Whether the leader has written a batch to this partition under the producer's present
    identity."""
    renumber_from: int = NO_SEQUENCE
    """The sequence of a batch that was dropped in a transaction; NO_SEQUENCE if there is none. The
    batches with ``needs_new_sequence`` are numbered from this sequence on, once nothing is in
    flight."""

    @property
    def is_unsettled(self) -> bool:
        """Whether a failed attempt may have written one of the queue's batches; only the response
        to the same batch, sent again unchanged, shows whether the attempt has written it."""
        return any(b.may_be_written and not b.needs_new_sequence for b in self.batches)

    @property
    def first_unsent(self) -> Batch:
        """The batch to send next; there must be one."""
        return next(b for b in self.batches if not b.in_flight)

    def renumber(self) -> None:
        """Let the batches after a dropped batch get new sequences when they are sent, from the
        dropped batch's sequence (`renumber_from`) on."""
        self.next_sequence, self.renumber_from = self.renumber_from, NO_SEQUENCE
        for batch in self.batches:
            if batch.needs_new_sequence:
                batch.sequence = NO_SEQUENCE
                batch.may_be_written = batch.needs_new_sequence = False


def add_to_sequence(sequence: int, count: int) -> int:
    """The sequence ``count`` after ``sequence``; sequences wrap around from 2^31 - 1 to 0."""
    return (sequence + count) & _SEQUENCE_MASK


class RefusedRecord(NamedTuple):
    """A batch of one record that its topic refuses, with the broker's reason."""

    partition: TopicPartition
    data: bytearray | memoryview
    code: ErrorCode
    text: str
