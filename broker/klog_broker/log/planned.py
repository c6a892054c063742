"""Appends that were planned outside of the log: what a plan must know, and what it comes to.

The produce kernel checks many batches at once and says where they would lie. It knows of a log only
what is here; the log writes, and only then makes the plan count (PartitionLog.write_planned and
commit_planned).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from klog_broker.log.producer_state import ProducerBatch, ProducerEntry
from pyspark_klog.ids import TopicPartition


class AppendRoom(NamedTuple):
    """What can be appended to a segment before it has to be rolled, and what its indexes go by."""

    size_bytes: int  # where the next batch will lie
    segment_bytes: int  # not to be passed
    last_offset_limit: int
    timestamp_limit_ms: int  # a batch with a later one rolls the segment
    # The same once a first batch lies in the segment: so long after its timestamp, or, if it has
    # none, up to a limit that is known now.
    longest_ms: int
    untimed_limit_ms: int
    bytes_since_index_entry: int
    index_interval_bytes: int
    index_rows: int  # entries for which there is room
    max_timestamp_ms: int
    max_timestamp_offset: int


class PlanFacts(NamedTuple):
    """What a plan must know of a partition; it holds until the next append."""

    next_offset: int
    leader_epoch: int
    log_start_offset: int
    max_message_bytes: int
    earliest_ms: int
    latest_ms: int
    key_required: bool
    room: AppendRoom


class PlannedProducer(NamedTuple):
    """The batches of one producer in a plan: the last ones of them, as many as its window holds."""

    producer_id: int
    producer_epoch: int
    batches: Sequence[ProducerBatch]


PlannedIndexEntry = tuple[int, int, int, int]
"""An entry for the offset index and the largest timestamp as it was then: last offset, position,
timestamp, its offset. A plain tuple, for there can be one for every request."""


class PlannedAppend(NamedTuple):
    """What a plan comes to for one partition, once its batches are written."""

    first_offset: int
    end_offset: int
    size_bytes: int  # of the batches
    first_timestamp_ms: int  # the largest of the first batch; of use if the segment was empty
    bytes_since_index_entry: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    index_entries: Sequence[PlannedIndexEntry]
    producers: Sequence[PlannedProducer]


class PlannedLog(Protocol):
    """A log, as far as a plan is concerned. See PartitionLog."""

    topic_partition: TopicPartition

    def plan_facts(self, now_ms: int) -> PlanFacts | None: ...

    def producer(self, producer_id: int) -> ProducerEntry | None: ...

    def write_planned(self, data: memoryview, index_rows: int) -> None: ...

    def take_back_planned(self) -> None: ...

    def commit_planned(self, planned: PlannedAppend, now_ms: int) -> None: ...


class PlanTarget(NamedTuple):
    """A partition that appends may be planned for."""

    log: PlannedLog
    acks_all: bool  # whether acks=-1 is satisfied by this broker's append
