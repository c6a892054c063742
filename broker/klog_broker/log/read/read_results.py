"""Results of a log's methods: plain values from which handlers build responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from klog_broker.runtime.disk.files import ReadRegion
from pyspark_klog.ids import LeaderEpoch, Offset

if TYPE_CHECKING:
    from klog_broker.log.segment.segment import Segment

# Special timestamps of ListOffsets requests (KIP-32, 734, 405, 1005, 1023).
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6


class AppendInfo(NamedTuple):
    """The result of an append, for the response to the producer.

    Unless ``required_flush_offset`` is None, the response must wait until ``log.flushed_offset``
    has reached this offset; the log starts the required flush itself. With acks=all the response
    also waits for the high watermark.
    """

    first_offset: Offset
    last_offset: Offset
    log_append_time_ms: int  # -1 for CreateTime
    log_start_offset: Offset
    required_flush_offset: Offset | None
    is_duplicate: bool  # nothing was appended: the offsets are of the batch stored earlier
    record_count: int
    size_bytes: int  # the stored size; 0 for a duplicate


class ReadInfo(NamedTuple):
    """The result of a read. ``region``, a byte range of a .log file, contains whole batches, but
    max_bytes may cut the last one; None if there are no batches to read.

    The region starts with the first batch that ends at or after the requested offset, so its first
    records can be before that offset.
    """

    region: ReadRegion | None
    high_watermark: Offset
    log_start_offset: Offset
    segment: Segment | None  # the segment that contains the region


class TimestampOffset(NamedTuple):
    """The result of ListOffsets for one partition; timestamp_ms and leader_epoch are -1 if
    unknown."""

    timestamp_ms: int
    offset: Offset
    leader_epoch: LeaderEpoch


class EpochEndOffset(NamedTuple):
    """The result of OffsetForLeaderEpoch for one partition; (-1, -1) if the requested epoch is
    newer than all epochs of the log."""

    leader_epoch: LeaderEpoch
    end_offset: Offset
