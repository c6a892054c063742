"""Decides when a log begins a new segment: by the old one's size, offsets, indexes and age."""

from klog_broker.log.log_config import INT64_MAX, INT64_MIN, LogConfig
from klog_broker.log.segment.planned_append import AppendLimits, RollLimits
from klog_broker.log.segment.segment import Segment
from pyspark_klog.storage.indexes import MAX_RELATIVE_OFFSET


def should_roll(
    segment: Segment,
    config: LogConfig,
    *,
    size_bytes: int,
    max_timestamp_ms: int,
    last_offset: int,
    now_ms: int,
    jitter_ms: int,
) -> bool:
    """Whether an append of ``size_bytes`` that ends with ``last_offset`` needs a new segment."""
    if segment.size_bytes == 0:
        return False
    limits = segment.roll_limits
    if (
        limits is not None
        and limits.config is config
        and limits.jitter_ms == jitter_ms
        and segment.size_bytes + size_bytes <= limits.size_bytes
        and last_offset <= limits.last_offset
        and max_timestamp_ms <= limits.timestamp_ms
    ):
        return False
    if (
        segment.size_bytes > config.roll_bytes - size_bytes
        or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        or segment.offset_index.is_full
        or segment.time_index.is_full
    ):
        return True
    # The age of a segment counts from the timestamp of its first batch, if that batch has one.
    first_ms, longest_ms = segment.first_timestamp_ms, config.max_segment_ms - jitter_ms
    if first_ms < 0:
        return now_ms - segment.created_ms > longest_ms
    segment.roll_limits = RollLimits(
        config,
        jitter_ms,
        config.roll_bytes,
        segment.base_offset + MAX_RELATIVE_OFFSET,
        first_ms + longest_ms,
    )
    return max_timestamp_ms - first_ms > longest_ms


def append_limits(
    segment: Segment, config: LogConfig, *, now_ms: int, jitter_ms: int
) -> AppendLimits | None:
    """Return the limits within which appends need no new segment; None if the segment must be
    rolled now. Raises OSError.

    The compiled produce kernel plans many appends within these limits. For each such append
    :func:`should_roll` would return False, so the kernel need not call this function.
    """
    longest_ms = config.max_segment_ms - jitter_ms
    is_old = now_ms - segment.created_ms > longest_ms
    untimed_limit_ms = INT64_MIN if is_old else INT64_MAX
    timestamp_limit_ms = INT64_MAX
    if segment.size_bytes:
        first_ms = segment.first_timestamp_ms
        if first_ms >= 0:
            timestamp_limit_ms = min(first_ms + longest_ms, INT64_MAX)
        elif is_old:
            return None
    return AppendLimits(
        segment.size_bytes,
        config.roll_bytes,
        min(segment.base_offset + MAX_RELATIVE_OFFSET, INT64_MAX),
        timestamp_limit_ms,
        longest_ms,
        untimed_limit_ms,
        segment.bytes_since_index_entry,
        segment.index_interval_bytes,
        min(segment.offset_index.free_rows, segment.time_index.free_rows),
        *segment.max_timestamp,
    )
