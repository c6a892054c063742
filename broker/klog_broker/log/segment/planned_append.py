"""Appends that were planned outside the log: a plan's input, and its outcome.

The produce kernel checks many batches at once and plans their places. It knows only these facts of
a log. The log writes the batches, and only then makes them count (PartitionLog.write_planned and
commit_planned).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from klog_broker.log.log_config import LogConfig
from klog_broker.log.producers.producer_state import ProducerBatch, ProducerEntry, ProducerHead
from klog_broker.log.producers.verification import VerificationGuard
from pyspark_klog.ids import TopicPartition

NO_BEGIN = -1

# What becomes of acks=-1: too few replicas are in sync, which the generic handler says; or the
# answer leaves as soon as the batch is appended; or once the watermark has passed the batch.
ACKS_ALL_NEVER = 0
ACKS_ALL_AT_ONCE = 1
ACKS_ALL_LATER = 2


class AppendRoom(NamedTuple):
    """What can be appended to a segment before it must be rolled, and the state of its indexes."""

    size_bytes: int  # the position of the next batch
    segment_bytes: int  # the largest size
    last_offset_limit: int
    timestamp_limit_ms: int  # a batch with a later timestamp rolls the segment
    # For an empty segment: the timestamp limit once it has a first batch is that batch's timestamp
    # plus longest_ms, or untimed_limit_ms if the first batch has no timestamp.
    longest_ms: int
    untimed_limit_ms: int
    bytes_since_index_entry: int
    index_interval_bytes: int
    index_rows: int  # how many index entries there is room for
    max_timestamp_ms: int
    max_timestamp_offset: int


class KnownRoom(NamedTuple):
    """Appends within these limits need no new segment, as long as the settings are these and the
    indexes get no entry."""

    config: LogConfig
    jitter_ms: int
    size_bytes: int  # of the segment, with the append
    last_offset: int
    timestamp_ms: int


class PlanFacts(NamedTuple):
    """The facts of a partition that a plan needs; they hold until the next append."""

    next_offset: int
    leader_epoch: int
    log_start_offset: int
    max_message_bytes: int
    earliest_ms: int
    latest_ms: int
    key_required: bool
    room: AppendRoom


class PlannedProducer(NamedTuple):
    """A producer's last batches in a plan, as many as a producer's window holds."""

    producer_id: int
    producer_epoch: int
    batches: Sequence[ProducerBatch]
    transaction_begins_at: int
    """The offset of its first batch, if that begins a transaction; else NO_BEGIN."""


class FirstBatch(NamedTuple):
    """A batch that may begin a transaction in its partition."""

    transactional_id: str
    head: ProducerHead
    api_version: int


PlannedIndexEntry = tuple[int, int, int, int]
"""An entry for the offset index, and the largest timestamp at that batch: last offset, position,
timestamp, that timestamp's offset. A plain tuple, because every request can have one."""


class PlannedAppend(NamedTuple):
    """A plan's outcome for one partition, to be committed once the batches are written."""

    first_offset: int
    end_offset: int
    size_bytes: int  # of all batches
    first_timestamp_ms: int  # the first batch's largest one; needed if the segment was empty
    bytes_since_index_entry: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    index_entries: Sequence[PlannedIndexEntry]
    producers: Sequence[PlannedProducer]


class PlannedLog(Protocol):
    """A log, as plans see it. See PartitionLog."""

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

    def may_begin(self, head: ProducerHead, guard: VerificationGuard) -> bool: ...

    def write_planned(self, data: memoryview, index_rows: int) -> None: ...

    def take_back_planned(self) -> None: ...

    def commit_planned(self, planned: PlannedAppend, now_ms: int) -> None: ...


class PlanTarget(NamedTuple):
    """A partition that appends may be planned for."""

    log: PlannedLog
    acks_all: int  # what becomes of acks=-1: one of ACKS_ALL_...
