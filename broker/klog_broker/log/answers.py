"""What the log answers: plain values that handlers turn into responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from klog_broker.runtime.files import ReadRegion
from pyspark_klog.ids import LeaderEpoch, Offset

if TYPE_CHECKING:
    from klog_broker.log.segment import Segment

# ListOffsets: timestamps that are questions of their own (KIP-32, 734, 405, 1005, 1023).
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6


class AppendInfo(NamedTuple):
    """What an append came to, for the reply to the producer.

    The reply may leave when ``log.flushed_offset >= required_flush_offset`` (None: at once). The
    flush for it has begun.
    """

    first_offset: Offset
    last_offset: Offset
    log_append_time_ms: int  # -1 under create time
    log_start_offset: Offset
    required_flush_offset: Offset | None
    is_duplicate: bool  # nothing was appended: the first append's answer again
    record_count: int
    size_bytes: int  # as stored; 0 for a duplicate


class ReadInfo(NamedTuple):
    """``region`` holds whole batches, but for the last which max_bytes may cut; None if empty.

    It starts with the batch that contains the offset asked for, so that its first records can lie
    before it.
    """

    region: ReadRegion | None
    high_watermark: Offset
    log_start_offset: Offset
    segment: Segment | None  # in which the region lies


class TimestampOffset(NamedTuple):
    """An answer to ListOffsets; timestamp_ms and leader_epoch are -1 where there is none."""

    timestamp_ms: int
    offset: Offset
    leader_epoch: LeaderEpoch


class EpochEndOffset(NamedTuple):
    """An answer to OffsetForLeaderEpoch; (-1, -1) where the epoch is unknown."""

    leader_epoch: LeaderEpoch
    end_offset: Offset
