"""The state of one partition's log, for all classes that work on the log."""

import logging
from collections.abc import Callable
from pathlib import Path

from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.log.errors import LogStorageError, remove_tracebacks
from klog_broker.log.log_config import LogConfig
from klog_broker.log.read.log_reader import SegmentList
from klog_broker.log.recovery.log_loading import LoadedLog
from klog_broker.log.segment.planned_append import AppendLimits
from klog_broker.log.segment.segment import Segment
from klog_broker.log.state.rolling import append_limits
from klog_broker.log.validation.record_checks import RecordChecks
from klog_broker.metrics.topic_counts import TopicCounts
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.system.descriptors import is_exhausted
from pyspark_klog.ids import LeaderEpoch, TopicPartition

_log = logging.getLogger("klog.log")


class LogState:
    """The log's start and end, its segments, and whether it can be used.

    The classes that work on the log change these fields in the loop's thread. But while the log is
    truncated or emptied (``is_being_cut``), a helper thread changes the files, the segments and the
    producer states, and a helper thread may close the log. No other thread may use the log
    meanwhile.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        path: Path,
        loaded: LoadedLog,
        *,
        log_directory: LogDirectory,
        config: LogConfig,
        checks: Callable[[], RecordChecks],
        chance: Chance,
        on_offline: Callable[[LogStorageError], None],
        counts: TopicCounts,
    ) -> None:
        self.topic_partition = topic_partition
        self.path = path
        self.log_directory = log_directory
        self.files = log_directory.files
        self.config = config
        self.checks = checks
        self.counts = counts
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.high_watermark
        self.segments = SegmentList(loaded.segments)
        self.active = loaded.segments[-1]
        self.epochs = loaded.epochs
        self.newest_epoch: LeaderEpoch = loaded.newest_epoch
        self.producers = loaded.states
        self.snapshots = loaded.snapshots
        self.is_being_cut = False
        self.cleaned_offset = loaded.cleaned_offset
        """The log cleaner has cleaned up to this offset; None if it has not cleaned the log since
        the log was made or last emptied."""
        self.is_being_cleaned = False
        self.cuts = 0
        """How often records were cut off at the end, or the whole log was emptied."""
        self._after_cut: list[Callable[[], None]] = []
        self._after_swap: list[Callable[[], None]] | None = None
        self.error: BaseException | None = None
        self._chance = chance
        self._on_offline = on_offline
        self.jitter_ms = 0
        self.choose_jitter()

    def choose_jitter(self) -> None:
        """Choose a random part of segment.jitter.ms.

        The jitter spreads the rolls of partitions that were created together.
        """
        limit_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        self.jitter_ms = self._chance.below(limit_ms)

    def set_segments(self, segments: tuple[Segment, ...]) -> None:
        """Make these the segments of the log; appends go to the last one."""
        self.segments = SegmentList(segments)
        self.active = segments[-1]

    def append_limits(self, now_ms: int) -> AppendLimits | None:
        """Return the limits for appends to the active segment; None if the segment must be rolled
        now. Raises OSError."""
        return append_limits(self.active, self.config, now_ms=now_ms, jitter_ms=self.jitter_ms)

    # --- truncating or emptying the log ----------------------------------------------------------
    def begin_cut(self) -> None:
        """Mark the log as being truncated or emptied.

        Until :meth:`end_cut` a helper thread changes the files, and no other thread may use the
        log.
        """
        self.is_being_cut = True
        self.cuts += 1

    def end_cut(self) -> None:
        """Call the callbacks that waited until the log was truncated or emptied."""
        waiting, self._after_cut = self._after_cut, []
        for callback in waiting:
            callback()

    def after_cut(self, callback: Callable[[], None]) -> None:
        """Call back once the running truncation or emptying of the log has ended."""
        self._after_cut.append(callback)

    # --- replacing segments by cleaned ones ------------------------------------------------------
    def begin_swap(self) -> None:
        """Mark that cleaned segments are replacing old ones: until :meth:`end_swap` segment files
        may have temporary names."""
        self._after_swap = []

    def end_swap(self) -> None:
        waiting, self._after_swap = self._after_swap or [], None
        for work in waiting:
            work()

    def when_in_place(self, work: Callable[[], None]) -> None:
        """Run work that changes segments: now, or if cleaned segments are just replacing old ones,
        after that replacement."""
        if self._after_swap is None:
            work()
        else:
            self._after_swap.append(work)

    # --- whether the log is online ---------------------------------------------------------------
    @property
    def is_offline(self) -> bool:
        return self.error is not None or self.log_directory.is_offline

    def check_usable(self) -> None:
        """Raise LogStorageError if the log is offline, but not if it is only being truncated or
        emptied."""
        if self.error is not None or self.log_directory.error is not None:
            self.check_online()

    def check_online(self) -> None:
        """Raise LogStorageError if the log is offline, or is being truncated or emptied."""
        if self.error is None and not self.is_being_cut and self.log_directory.error is None:
            return
        if self.error is not None:
            raise LogStorageError(f"{self.topic_partition} is offline after: {self.error}")
        if self.log_directory.is_offline:
            raise self.log_directory.storage_error()
        if self.is_being_cut:
            raise LogStorageError(f"{self.topic_partition} is being cut")

    def go_offline(self, error: BaseException) -> LogStorageError:
        """Take this log alone offline, because its state cannot be trusted any more.

        Returns the exception to raise.
        """
        if self.error is None:
            self.error = error
            _log.error("log=%s offline=%r", self.path, error, exc_info=error)
            remove_tracebacks(error)
        storage_error = LogStorageError(f"{self.topic_partition} is offline after: {error}")
        self._on_offline(storage_error)
        return storage_error

    def write_failed(self, error: OSError) -> LogStorageError:
        """Cut off the bytes of a failed write; returns the exception to raise. If the write failed
        because no file descriptor was free, the next write cuts off the bytes."""
        if not is_exhausted(error):
            self.cut_back()
        return self.log_directory.error_for(error, self.topic_partition)

    def cut_back(self) -> None:
        """Cut off bytes that a failed write left after the log's end.

        Raises LogStorageError if the truncation fails. If it fails only because no file descriptor
        is free, the next write tries again.
        """
        try:
            self.active.cut_back()
        except OSError as error:
            if not is_exhausted(error):
                raise self.log_directory.go_offline(error) from error
