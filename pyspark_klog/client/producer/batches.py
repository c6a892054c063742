"""A producer's batches and the queue of one partition. Pure; `batch_order.py` decides with them."""

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
"""The transaction.version from which partitions and offsets join a transaction by being sent."""


class InTransaction(NamedTuple):
    """The transaction that batches belong to, and its version (the feature transaction.version)."""

    transactional_id: str
    version: int


@dataclass(slots=True)
class Batch:
    """A v2 batch on its way. ``data`` gets its producer fields just before it is sent."""

    partition: TopicPartition
    data: bytearray | memoryview
    record_count: int
    enqueued_ms: int
    sequence: int = NO_SEQUENCE
    identity: Identity = NO_IDENTITY
    topic_id: UUID = NO_TOPIC_ID
    """The id by which the last request named the topic, if it named it by id."""
    in_flight: bool = False
    attempts: int = 0
    may_be_written: bool = False
    """Whether an attempt under the same sequence failed: the broker may have the batch
    nevertheless."""
    begins_anew: bool = False
    """Whether a sequence before this batch is missing, so that it can be written only under another
    identity or, in a transaction, under another sequence."""
    base_offset: int = -1


@dataclass(slots=True)
class PartitionQueue:
    """One partition: batches in order, those in flight first."""

    batches: deque[Batch] = field(default_factory=deque)
    next_sequence: int = 0
    in_flight: int = 0
    must_drain: bool = False
    not_before_ms: int = 0
    is_known: bool = False
    """Whether the broker has a batch of this identity."""
    renumber_from: int = NO_SEQUENCE
    """The missing sequence, which the first batch that begins anew gets once nothing is in
    flight."""

    @property
    def is_unsettled(self) -> bool:
        """Whether a batch may be written already; only sending it again unchanged can tell."""
        return any(b.may_be_written and not b.begins_anew for b in self.batches)

    @property
    def first_unsent(self) -> Batch:
        """The batch to send next; there must be one."""
        return next(b for b in self.batches if not b.in_flight)

    def renumber(self) -> None:
        """Let the batches behind a missing sequence have new ones, from the missing one on."""
        self.next_sequence, self.renumber_from = self.renumber_from, NO_SEQUENCE
        for batch in self.batches:
            if batch.begins_anew:
                batch.sequence = NO_SEQUENCE
                batch.may_be_written = batch.begins_anew = False


def plus(sequence: int, count: int) -> int:
    """Sequences go from 0 to 2^31 - 1 and begin again at 0."""
    return (sequence + count) & _SEQUENCE_MASK


class SetAside(NamedTuple):
    """A batch of one record that its topic does not take, and why."""

    partition: TopicPartition
    data: bytearray | memoryview
    code: ErrorCode
    text: str
