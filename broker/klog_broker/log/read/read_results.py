"""What the log answers: plain values that handlers turn into responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from klog_broker.runtime.disk.files import ReadRegion
from pyspark_klog.ids import LeaderEpoch, Offset

if TYPE_CHECKING:
    from klog_broker.log.segment.segment import Segment

# ListOffsets: timestamps with a meaning of their own (KIP-32, 734, 405, 1005, 1023).
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6


class AppendInfo(NamedTuple):
    """The outcome of an append, for the reply to the producer.

    The reply may leave when ``log.flushed_offset >= required_flush_offset`` (None: at once). The
    flush for it has begun.
    """

    first_offset: Offset
    last_offset: Offset
    log_append_time_ms: int  # -1 under create time
    log_start_offset: Offset
    required_flush_offset: Offset | None
    is_duplicate: bool  # nothing was appended: this is the first append's answer again
    record_count: int
    size_bytes: int  # as stored; 0 for a duplicate


class ReadInfo(NamedTuple):
    """``region`` holds whole batches, except that max_bytes may cut the last one; None if empty.

    The region starts with the batch that contains the requested offset, so its first records can
    lie before that offset.
    """

    region: ReadRegion | None
    high_watermark: Offset
    log_start_offset: Offset
    segment: Segment | None  # in which the region lies


class TimestampOffset(NamedTuple):
    """An answer to ListOffsets; timestamp_ms and leader_epoch are -1 if unknown."""

    timestamp_ms: int
    offset: Offset
    leader_epoch: LeaderEpoch


class EpochEndOffset(NamedTuple):
    """An answer to OffsetForLeaderEpoch; (-1, -1) if the epoch is unknown."""

    leader_epoch: LeaderEpoch
    end_offset: Offset
