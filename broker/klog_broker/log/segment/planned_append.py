"""The input and the result of a produce plan.

In a produce plan, the produce kernel (compiled code) checks the batches of an event-loop turn's
Produce requests, and plans their offsets and positions in the logs. The kernel knows a log only
from its PlanFacts and from the states of its producers. The log then writes the batches and commits
them (PartitionLog.write_planned and commit_planned).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from klog_broker.log.log_config import LogConfig
from klog_broker.log.producers.producer_state import ProducerBatch, ProducerEntry, ProducerHead
from klog_broker.log.producers.verification import VerificationGuard
from pyspark_klog.ids import TopicPartition

NO_BEGIN = -1

# How the produce kernel (compiled code that plans the appends of an event-loop turn) treats a
# request with acks=-1. NEVER: too few replicas are in sync, so the kernel leaves the request to the
# produce handler, which answers with the error. AT_ONCE: respond once the batch is appended. LATER:
# respond once the high watermark has passed the batch.
ACKS_ALL_NEVER = 0
ACKS_ALL_AT_ONCE = 1
ACKS_ALL_LATER = 2


class AppendLimits(NamedTuple):
    """The limits up to which batches can be appended to a segment before it must be rolled, and the
    state of the segment's indexes."""

    size_bytes: int  # the position of the next batch
    segment_bytes: int  # the largest size of the segment
    last_offset_limit: int
    timestamp_limit_ms: int  # a batch with a later timestamp rolls the segment
    # For an empty segment: the timestamp limit once it has a first batch is that batch's timestamp
    # plus longest_ms, or untimed_limit_ms if the first batch has no timestamp.
    longest_ms: int
    untimed_limit_ms: int
    bytes_since_index_entry: int
    index_interval_bytes: int
    index_rows: int  # the number of index entries that can be added
    max_timestamp_ms: int
    max_timestamp_offset: int


class RollLimits(NamedTuple):
    """Limits within which an append needs no new segment. The limits are valid until the log's
    settings differ from ``config``, its random part of segment.jitter.ms differs from
    ``jitter_ms``, or an index of the segment gets an entry."""

    config: LogConfig
    jitter_ms: int
    size_bytes: int  # the largest size of the segment after an append
    last_offset: int
    timestamp_ms: int


class PlanFacts(NamedTuple):
    """The state of a partition from which the produce kernel (compiled code) plans an event-loop
    turn's appends to the partition; valid until the next append or change of the settings."""

    next_offset: int
    leader_epoch: int
    log_start_offset: int
    max_message_bytes: int
    earliest_ms: int
    latest_ms: int
    key_required: bool
    limits: AppendLimits


class PlannedProducer(NamedTuple):
    """The last batches of one producer among the appends that the produce kernel (compiled code)
    has planned for one partition: at most five, as many as the producer state of a log holds."""

    producer_id: int
    producer_epoch: int
    batches: Sequence[ProducerBatch]
    transaction_begins_at: int
    """The offset of the batch that begins a transaction; NO_BEGIN if no batch does."""


class FirstBatch(NamedTuple):
    """A batch that may begin a transaction in its partition, which the transaction coordinator
    must confirm before the append (KIP-890)."""

    transactional_id: str
    head: ProducerHead
    api_version: int


PlannedIndexEntry = tuple[int, int, int, int]
"""The entries that one planned batch adds to the offset index and the time index: (last offset of
the batch, its position, largest timestamp in the segment so far, offset of that timestamp). A plain
tuple, because it is cheaper than a NamedTuple, and each Produce request can add one."""


class PlannedAppend(NamedTuple):
    """The changes that consecutive batches make to one partition's active segment. The produce
    kernel on a leader, or plan_follower_append on a follower, plans the changes before the batches
    are written; the log commits the changes afterwards."""

    first_offset: int
    end_offset: int
    size_bytes: int  # the size of all batches of this append
    # The first batch's largest timestamp. If the segment is empty, segment.ms counts from this
    # timestamp.
    first_timestamp_ms: int
    bytes_since_index_entry: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    index_entries: Sequence[PlannedIndexEntry]
    producers: Sequence[PlannedProducer]


class PlannedLog(Protocol):
    """The methods of PartitionLog that planning and carrying out a produce plan needs. (In a
    produce plan, compiled code lists the appends of an event-loop turn's Produce requests.)"""

    topic_partition: TopicPartition

    def plan_facts(self, now_ms: int) -> PlanFacts | None: ...

    def producer(self, producer_id: int) -> ProducerEntry | None: ...

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        first_sequence: int,
        *,
        supports_epoch_bump: bool,
        now_ms: int,
    ) -> VerificationGuard | None: ...

    def may_begin_transaction(self, head: ProducerHead, guard: VerificationGuard) -> bool: ...

    def write_planned(self, data: memoryview, index_rows: int) -> None: ...

    def cut_back_planned(self) -> None: ...

    def commit_planned(self, planned: PlannedAppend, now_ms: int) -> None: ...


class PlanTarget(NamedTuple):
    """A partition that this broker leads, to which the produce kernel (compiled code) may plan the
    appends of an event-loop turn's Produce requests."""

    log: PlannedLog
    acks_all: int  # how acks=-1 is treated: one of ACKS_ALL_...
