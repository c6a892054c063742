"""How much of a log is to be cleaned, and which log comes first: Kafka's rules (LogCleanerManager).

What lies before the first dirty offset was cleaned in rounds before. Up to the first uncleanable
offset a round may go: the active segment, undecided transactions and young segments stay as they
are. So does what a power cut may take (Kafka cleans by that, too): a flushed record must not go for
a later one that is not.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from klog_broker.log.log_config import LogConfig


class SegmentFacts(NamedTuple):
    """What is to be known of a segment."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    first_timestamp_ms: int
    """Of its first batch; not above 0 if it has none."""


class LogFacts(NamedTuple):
    """What is to be known of a log. The last segment is the active one."""

    segments: Sequence[SegmentFacts]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    flushed_offset: int
    cleaned_offset: int | None
    """Where the last round ended; None before the first one."""


class Extent(NamedTuple):
    """What a round would do to a log."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """A segment's base offset."""
    cleanable_bytes: int
    total_bytes: int
    is_overdue: bool
    """Records have been dirty for longer than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether there is enough to be cleaned."""
        if not self.cleanable_bytes:
            return False
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def extent_of(log: LogFacts, config: LogConfig, now_ms: int) -> Extent:
    """What a round that begins now would do."""
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
    # A segment that reaches past the limit is left alone as a whole.
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
    """Where the next round begins. What the checkpoint says counts as far as the log has it."""
    cleaned = log.cleaned_offset
    if cleaned is None or not log.log_start_offset <= cleaned <= log.log_end_offset:
        return log.log_start_offset
    return cleaned


def _is_overdue(dirty: Iterable[SegmentFacts], config: LogConfig, now_ms: int) -> bool:
    latest_ms = now_ms - config.max_compaction_lag_ms
    return any(0 < each.first_timestamp_ms < latest_ms for each in dirty)
