"""Decides which segments retention deletes: pure functions of facts about the segments.

A policy returns how many segments, from the oldest on, may be deleted. No policy counts an empty
segment, or one that ends above the high watermark.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from klog_broker.log.log_config import LogConfig


class RetentionSegmentFacts(NamedTuple):
    """The facts of a segment by which retention decides whether to delete the segment."""

    base_offset: int
    end_offset: int  # the next segment's base offset; for the last one the log's end
    size_bytes: int
    largest_timestamp_ms: int


class RetentionLogFacts(NamedTuple):
    """The facts of a log by which retention decides which segments to delete."""

    segments: Sequence[RetentionSegmentFacts]
    log_start_offset: int
    high_watermark: int
    now_ms: int
    config: LogConfig


RetentionPolicy = Callable[[RetentionLogFacts], int]


def by_log_start(log: RetentionLogFacts) -> int:
    """Count the oldest segments that end at or before the log start offset (DeleteRecords).

    The last segment of the log never counts.
    """
    return _leading(
        log, lambda segment: segment.end_offset <= log.log_start_offset, spare_last=True
    )


def by_time(log: RetentionLogFacts) -> int:
    """Count the oldest segments whose largest timestamps (of segments without timestamps: the times
    of the last write) are older than retention.ms."""
    retention_ms = log.config.retention_ms
    if retention_ms < 0:
        return 0
    return _leading(log, lambda segment: log.now_ms - segment.largest_timestamp_ms > retention_ms)


def by_size(log: RetentionLogFacts) -> int:
    """Count the oldest segments without which the log still has at least retention.bytes."""
    if log.config.retention_bytes < 0:
        return 0
    surplus = sum(segment.size_bytes for segment in log.segments) - log.config.retention_bytes
    count = 0
    for segment in log.segments:
        surplus -= segment.size_bytes
        if surplus < 0 or not _may_go(log, segment):
            break
        count += 1
    return count


DELETE_POLICIES: tuple[RetentionPolicy, ...] = (by_time, by_size, by_log_start)
KEEP_POLICIES: tuple[RetentionPolicy, ...] = (by_log_start,)


def deletable_segments(log: RetentionLogFacts) -> int:
    """Return how many segments, from the oldest on, may be deleted.

    Unless cleanup.policy contains delete, only the log start offset counts, not time and size.
    """
    return max(policy(log) for policy in _policies(log))


def why_deletable(log: RetentionLogFacts, count: int) -> str:
    """Return the settings, or log_start_offset, because of which ``count`` segments may be deleted,
    as a text for the log line."""
    return ",".join(_NAMES[policy] for policy in _policies(log) if policy(log) >= count)


def _policies(log: RetentionLogFacts) -> tuple[RetentionPolicy, ...]:
    return DELETE_POLICIES if log.config.delete else KEEP_POLICIES


_NAMES: dict[RetentionPolicy, str] = {
    by_time: "retention.ms",
    by_size: "retention.bytes",
    by_log_start: "log_start_offset",
}


def _may_go(log: RetentionLogFacts, segment: RetentionSegmentFacts) -> bool:
    # Keep segments with records above the high watermark. An empty segment has nothing to delete.
    return segment.end_offset <= log.high_watermark and segment.size_bytes > 0


def _leading(
    log: RetentionLogFacts,
    is_due: Callable[[RetentionSegmentFacts], bool],
    *,
    spare_last: bool = False,
) -> int:
    candidates = log.segments[:-1] if spare_last else log.segments
    count = 0
    for segment in candidates:
        if not is_due(segment) or not _may_go(log, segment):
            break
        count += 1
    return count
