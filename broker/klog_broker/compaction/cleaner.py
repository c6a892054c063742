"""The log cleaner: picks the dirtiest log, has helper threads clean it (a round), then picks the
next log.

log.cleaner.threads limits how many rounds run at once. If a round fails, or the check whether a log
is due, the log is set aside and reported: it is not cleaned again until the broker restarts. After
errors that may pass, such as a full disk, the log is cleaned again later.
"""

import errno
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from klog_broker.compaction.candidates import Extent, LogFacts, SegmentFacts, extent_of
from klog_broker.compaction.settings import CleanerSettings
from klog_broker.compaction.throttle import Throttle
from klog_broker.log.errors import LogStorageError, ShortWrite
from klog_broker.log.log_config import INT64_MAX
from klog_broker.log.maintenance.segment_swap import SourcesChanged
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.segment.segment_renaming import remove_files
from klog_broker.metrics.cleaner import CleanerCounts
from klog_broker.runtime.event_loop.switching import short_switch_interval
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.descriptors import is_exhausted
from klog_broker.runtime.system.rate_limit import RateLimit
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import TopicPartition
from pyspark_klog.storage.transaction_index import AbortedEntry

if TYPE_CHECKING:
    from klog_broker.compaction.cleaning_round import CleaningRound, Job, Ready, Step

_log = logging.getLogger("klog.cleaner")
_LOGS_A_TURN = 50
_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
_NOT_CLEANED = "not cleaned, the log cleaner tries again later"


class Timers(Protocol):
    """The methods of the event loop that the cleaner calls."""

    def call_soon(self, callback: Callable[[], None]) -> object: ...

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> object: ...


class Cleaner:
    """Chooses logs and cleans each of them in a round; called only in the event loop's thread.

    ``prepare`` is called in a helper thread at the start of each round, until a round has completed
    its first step, and loads the cleaner's kernels (functions that numba compiles). If the broker
    is shutting down, ``prepare`` returns False, and no round begins.
    """

    def __init__(
        self,
        logs: LogManager,
        *,
        helpers: Helpers,
        timers: Timers,
        clock: Clock,
        chance: Chance,
        settings: CleanerSettings,
        prepare: Callable[[], bool] = lambda: True,
    ) -> None:
        self.set_aside: dict[PartitionLog, str] = {}
        """Logs that are not cleaned again until the broker restarts, each with the error that
        stopped its cleaning."""
        self.counts = CleanerCounts()
        self._logs = logs
        self._helpers = helpers
        self._timers = timers
        self._clock = clock
        self._chance = chance
        self._settings = settings
        self._prepare: Callable[[], bool] | None = prepare
        self._throttle = Throttle(settings.max_bytes_per_second)
        self._failed_checks = RateLimit()
        self._running: dict[TopicPartition, _Running] = {}
        self._paused: dict[object, _Running] = {}
        self._is_checking = False
        # The scheduled check of all logs (_check_all_logs); None if no check is scheduled.
        self._next_check: object | None = None
        self._is_stopped = False

    def start_checks(self) -> None:
        """Start to look for logs to clean."""
        if self._settings.enabled:
            self._check_all_logs()

    @property
    def is_enabled(self) -> bool:
        """Whether the cleaner works: log.cleaner.enable."""
        return self._settings.enabled

    def apply_settings(self, settings: CleanerSettings) -> None:
        """Use new settings. Rounds that pause to stay within the I/O limit continue at once.

        A new log.cleaner.dedupe.buffer.size or log.cleaner.io.buffer.load.factor holds for later
        rounds; a running round keeps its map of keys to offsets.
        """
        self._settings = settings
        self._throttle = Throttle(settings.max_bytes_per_second)
        for pause in list(self._paused):
            self._resume(pause)
        if self._next_check is not None:
            self._next_check = None
            self._check_all_logs()

    def stop(self) -> None:
        """Start no further cleaning of a log (round). A running round ends before its next step,
        and leaves the rest of its log as it was."""
        self._is_stopped = True

    def close(self) -> None:
        """Remove the segments that interrupted cleaning rounds were writing. Blocks. Call it after
        the helper threads have ended."""
        for running in self._running.values():
            if running.round is not None:
                with suppress(OSError):
                    running.round.drop()
        self._running.clear()

    # --- choosing a log to clean -----------------------------------------------------------------
    def _check_all_logs(self) -> None:
        """Look at all logs, some in each event-loop turn, and start to clean the dirtiest of the
        logs that are due (`Extent.is_due`), as many as log.cleaner.threads allows."""
        if not (self._is_checking or self._is_stopped):
            self._is_checking = True
            self.counts.last_check_ms = self._clock.monotonic_ms()
            for log in tuple(self.set_aside):
                if self._logs.get(log.topic_partition) is not log:
                    del self.set_aside[log]  # the topic was deleted, and perhaps created again
            self._check_next_logs(iter(tuple(self._logs.logs())), [])

    def _check_next_logs(
        self, logs: Iterator[PartitionLog], due: list[tuple[float, PartitionLog, Extent]]
    ) -> None:
        for _ in range(_LOGS_A_TURN):
            log = next(logs, None)
            if log is None:
                self._is_checking = False
                self._start_rounds(due)
                return
            extent = self._extent(log)
            if extent is not None and extent.is_due(log.config):
                due.append((extent.dirty_ratio, log, extent))
        self._timers.call_soon(lambda: self._check_next_logs(logs, due))

    def _extent(self, log: PartitionLog) -> Extent | None:
        if (
            not log.config.compact
            or log.is_offline
            or log.is_being_cut
            # Begin no round on a nearly full disk: a round needs space for the new segment before
            # the old segments are deleted.
            or log.log_directory.space.refuses_clients
            or log.topic_partition in self._running
            or log in self.set_aside
            or len(log.segments) < 2
        ):
            return None
        try:
            return extent_of(_facts_of(log), log.config, self._clock.now_ms())
        except (OSError, InvariantViolation) as error:
            if not _is_temporary(error):
                self._set_aside(log, error)
            elif self._failed_checks.allows(self._clock.monotonic_ms()):
                note = self._failed_checks.pop_suppressed_note()
                _log.warning("log=%s %s: %s%s", log.path, _NOT_CLEANED, error, note)
            return None

    def _start_rounds(self, due: list[tuple[float, PartitionLog, Extent]]) -> None:
        due.sort(key=lambda each: each[0], reverse=True)
        most = 0 if self._is_stopped else self._settings.threads
        free = max(most - len(self._running), 0)
        for _, log, extent in due[:free]:
            is_usable = not (log.is_offline or log.is_being_cut)
            if is_usable and log.topic_partition not in self._running:
                self._begin_round(log, extent)
        if len(self._running) < self._settings.threads and not self._is_stopped:
            self._schedule_check()

    def _schedule_check(self) -> None:
        if self._next_check is not None or self._is_stopped:
            return
        this = self._next_check = object()

        def check() -> None:
            if self._next_check is this:
                self._next_check = None
                self._check_all_logs()

        self._timers.call_later(self._settings.backoff_ms, check)

    # --- the steps of a cleaning round -----------------------------------------------------------
    def _begin_round(self, log: PartitionLog, extent: Extent) -> None:
        log.cleaning.begin_round()
        running = _Running(log, self._clock.monotonic_ms())
        self._running[log.topic_partition] = running
        hash_key = (self._chance.below(1 << 64), self._chance.below(1 << 64))
        map_bytes = self._settings.dedupe_buffer_bytes // self._settings.threads
        work = _work_of(log, extent, self._clock.now_ms())
        prepare = self._prepare

        def run_first_step() -> "Step | None":
            if prepare is not None and not prepare():
                return None
            from klog_broker.compaction.cleaning_round import CleaningRound
            from klog_broker.compaction.key_map import KeyMap

            key_map = KeyMap(
                map_bytes,
                self._settings.load_factor,
                hash_key,
                most_keys=extent.first_uncleanable_offset - extent.first_dirty_offset,
                max_decompressed_bytes=log.config.max_decompressed_bytes,
            )
            running.round = CleaningRound(work(), key_map)
            running.steps = running.round.steps()
            return _step(running.steps)

        self._helpers.submit(run_first_step, partial(self._on_step, running))

    def _run_next_step(self, running: "_Running") -> None:
        def step() -> "Step":
            assert running.steps is not None
            return _step(running.steps)

        if running.log.is_offline or self._is_stopped:
            self._give_up(running, None)
            return
        self._helpers.submit(step, partial(self._on_step, running))

    def _on_step(
        self, running: "_Running", step: "Step | None", error: BaseException | None
    ) -> None:
        if error is not None:
            self._on_round_failed(running, error)
            return
        if step is None:
            self._give_up(running, None)
            return
        from klog_broker.compaction.cleaning_round import Finished, Ready

        self._prepare = None
        if isinstance(step, Ready):
            self._swap(running, step)
        elif isinstance(step, Finished):
            self._on_round_finished(running, step.end_offset)
        else:
            now_ms = self._clock.monotonic_ms()
            pause_ms = self._throttle.pause_ms(step.bytes_read + step.bytes_written, now_ms)
            if pause_ms:
                pause = object()
                self._paused[pause] = running
                self._timers.call_later(pause_ms, partial(self._resume, pause))
            else:
                self._run_next_step(running)

    def _resume(self, pause: object) -> None:
        running = self._paused.pop(pause, None)
        if running is not None:
            self._run_next_step(running)

    def _swap(self, running: "_Running", ready: "Ready") -> None:
        sources = [(each.segment, each.size_bytes) for each in ready.sources]

        def swapped(error: BaseException | None) -> None:
            if error is not None:
                self._on_round_failed(running, error)
            else:
                self._run_next_step(running)

        try:
            running.log.cleaning.swap(ready.segment, sources, swapped)
        except (SourcesChanged, LogStorageError) as error:
            give_up = partial(self._give_up, running, error)
            self._helpers.submit(partial(remove_files, ready.segment), lambda _, __: give_up())

    def _on_round_finished(self, running: "_Running", end_offset: int) -> None:
        log = running.log
        log.cleaning.end_round(end_offset)
        del self._running[log.topic_partition]
        self._logs.checkpoint_cleaned()
        assert running.round is not None
        tally = running.round.tally
        now_ms = self._clock.monotonic_ms()
        counts = self.counts
        counts.rounds += 1
        counts.bytes_read += tally.bytes_read
        counts.bytes_kept += tally.bytes_kept
        counts.total_ms += now_ms - running.began_ms
        _log.info(
            "log=%s cleaned_to=%d bytes=%d kept_bytes=%d records=%d kept_records=%d keys=%d "
            "map_full=%s took_ms=%d",
            log.path,
            end_offset,
            tally.bytes_read,
            tally.bytes_kept,
            tally.records_read,
            tally.records_kept,
            tally.keys,
            tally.is_map_full,
            now_ms - running.began_ms,
        )
        self._apply_retention(log)
        self._check_all_logs()

    def _apply_retention(self, log: PartitionLog) -> None:
        """Apply retention at the end of a cleaning round to a log whose cleanup.policy has delete.
        The broker's periodic retention skips the log during a round, and the log's next round may
        begin soon."""
        if log.config.delete and not log.is_offline:
            try:
                log.apply_retention(self._clock.now_ms())
            except LogStorageError as error:
                _log.debug("log=%s retention failed: %s", log.path, error)

    # --- failed cleaning rounds ------------------------------------------------------------------
    def _on_round_failed(self, running: "_Running", error: BaseException) -> None:
        log = running.log
        if not (_is_temporary(error) or log.is_offline or log.cleaning.was_cut):
            self._set_aside(log, error)
        self._give_up(running, error)

    def _set_aside(self, log: PartitionLog, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {error}"
        self.set_aside[log] = reason
        _log.error(
            "log=%s set_aside=%s; the log cleaner cleans this log no more, and has lost no record "
            "of it; restart the broker to try again",
            log.path,
            reason,
        )

    def _give_up(self, running: "_Running", error: BaseException | None) -> None:
        """End a cleaning round early: remove the segment that it was writing, and look for logs to
        clean again later."""
        log = running.log
        cleaning = running.round

        def dropped(_: None, __: BaseException | None) -> None:
            log.cleaning.end_round()
            self._running.pop(log.topic_partition, None)
            self._apply_retention(log)
            # Log no warning if the round failed because the log was deleted or went offline: then
            # the files that the round reads are closed.
            is_news = not log.is_offline and log not in self.set_aside
            if error is not None and is_news:
                _log.warning("log=%s %s: %s", log.path, _NOT_CLEANED, error)
            self._schedule_check()

        self._helpers.submit(lambda: cleaning.drop() if cleaning is not None else None, dropped)


def _is_temporary(error: BaseException) -> bool:
    """Whether the cleaning of the log can succeed later, without a restart of the broker."""
    return isinstance(error, LogStorageError | SourcesChanged | ShortWrite) or (
        isinstance(error, OSError) and (is_exhausted(error) or error.errno in _DISK_FULL_ERRORS)
    )


def _step(steps: "Generator[Step, None, None]") -> "Step":
    """Run one step of a cleaning round in a helper thread, with a short interpreter switch
    interval.

    A step calls kernels (compiled functions) and codecs. Between these calls it executes Python
    code, which holds the GIL. With a short interval the event loop's thread gets the GIL back
    sooner.
    """
    with short_switch_interval():
        return next(steps)


class _Running:
    """A cleaning round that is running on one log."""

    def __init__(self, log: PartitionLog, began_ms: int) -> None:
        self.log = log
        self.began_ms = began_ms
        self.round: CleaningRound | None = None
        self.steps: Generator[Step, None, None] | None = None


def _work_of(log: PartitionLog, extent: Extent, now_ms: int) -> "Callable[[], Job]":
    """Collect the log's present segments for a cleaning round, in the loop's thread.

    Returns a function that makes the round's Job (its input: segments, settings, producers and
    transactions of the log); call that function in a helper thread.
    """
    segments, config = log.segments, log.config
    found = [(each, each.size_bytes, after.base_offset) for each, after in pairwise(segments)]
    last_of_producers = log.cleaning.last_of_producers()

    def aborted() -> list[AbortedEntry]:
        return [entry for each in segments for entry in each.transaction_index.read(-1)]

    def job() -> "Job":
        from klog_broker.compaction.cleaning_round import Job, SourceSegment

        return Job(
            [SourceSegment(*each) for each in found if each[2] <= extent.first_uncleanable_offset],
            extent,
            config,
            last_of_producers,
            aborted,
            log.cleaning.new_segment,
            log.cleaning.checks,
            now_ms,
        )

    return job


def _facts_of(log: PartitionLog) -> LogFacts:
    config = log.config
    looks_at_first = config.max_compaction_lag_ms < INT64_MAX
    looks_at_largest = config.min_compaction_lag_ms > 0
    return LogFacts(
        [
            SegmentFacts(
                segment.base_offset,
                segment.size_bytes,
                segment.retention_timestamp_ms if looks_at_largest else -1,
                segment.first_timestamp_ms if looks_at_first and segment.size_bytes else -1,
            )
            for segment in log.segments
        ],
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        log.flushed_offset,
        log.cleaned_offset,
    )
