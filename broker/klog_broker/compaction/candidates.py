"""Decides how much of a log may be cleaned, by the rules of Kafka's LogCleanerManager.

Records before the first dirty offset were cleaned in earlier rounds. A round may clean up to the
first uncleanable offset: the active segment, open transactions and segments younger than
min.compaction.lag.ms stay unchanged.

Unflushed records, which Kafka cleans, stay unchanged as well: if a round deleted a flushed record
in favour of an unflushed one with the same key, a power cut could lose both.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from klog_broker.log.log_config import LogConfig


class SegmentFacts(NamedTuple):
    """The offset, size and timestamps of a segment, from which `extent_of` computes the Extent: the
    part of the log that a cleaning round would clean."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    first_timestamp_ms: int
    """The timestamp of the segment's first batch; 0 or less if unknown."""


class LogFacts(NamedTuple):
    """The state of a log, from which `extent_of` computes the Extent: the part of the log that a
    cleaning round would clean. The last segment is the active one."""

    segments: Sequence[SegmentFacts]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    flushed_offset: int
    cleaned_offset: int | None
    """The offset up to which earlier rounds have cleaned the log; None if no round has, or if the
    log was emptied since."""


class Extent(NamedTuple):
    """The part of a log that a cleaning round would clean: its offsets and sizes."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """The base offset of the first segment that must stay unchanged; the round may clean the
    segments before that offset."""
    cleanable_bytes: int
    total_bytes: int
    is_overdue: bool
    """Whether the first batch of a dirty segment is older than max.compaction.lag.ms, by its
    timestamp."""

    @property
    def dirty_ratio(self) -> float:
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether a round should clean the log: there are dirty bytes to clean, and either the
        dirty ratio is above min.cleanable.dirty.ratio, or dirty records are overdue
        (`is_overdue`)."""
        if not self.cleanable_bytes:
            return False
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def extent_of(log: LogFacts, config: LogConfig, now_ms: int) -> Extent:
    """Return the offsets and bytes that a round which begins now would clean."""
    dirty = first_dirty_offset(log)
    active = log.segments[-1]
    closed = log.segments[:-1]
    dirty_segments = [
        each
        for each, following in zip(closed, log.segments[1:], strict=True)
        if following.base_offset > dirty
    ]
    limits = [active.base_offset, log.last_stable_offset, log.flushed_offset]
    if config.min_compaction_lag_ms > 0:
        limits += [
            each.base_offset
            for each in dirty_segments
            if each.largest_timestamp_ms > now_ms - config.min_compaction_lag_ms
        ]
    limit = min(limits)
    # Only records before the offset ``limit`` may be cleaned. The segment in whose range of offsets
    # ``limit`` lies is not cleaned at all, and neither are the segments behind it.
    uncleanable = active.base_offset
    for each, following in zip(closed, log.segments[1:], strict=True):
        if following.base_offset > limit:
            uncleanable = each.base_offset
            break
    dirty = min(dirty, uncleanable)
    return Extent(
        dirty,
        uncleanable,
        sum(each.size_bytes for each in dirty_segments if each.base_offset < uncleanable),
        sum(each.size_bytes for each in closed if each.base_offset < uncleanable),
        _is_overdue(dirty_segments, config, now_ms),
    )


def first_dirty_offset(log: LogFacts) -> int:
    """Return the offset at which the next cleaning round begins: ``cleaned_offset``, up to which
    earlier rounds have cleaned the log.

    If no round has cleaned the log, or ``cleaned_offset`` lies before the log's start or after its
    end, the round begins at the log's start.
    """
    cleaned = log.cleaned_offset
    if cleaned is None or not log.log_start_offset <= cleaned <= log.log_end_offset:
        return log.log_start_offset
    return cleaned


def _is_overdue(dirty: Iterable[SegmentFacts], config: LogConfig, now_ms: int) -> bool:
    latest_ms = now_ms - config.max_compaction_lag_ms
    return any(0 < each.first_timestamp_ms < latest_ms for each in dirty)
