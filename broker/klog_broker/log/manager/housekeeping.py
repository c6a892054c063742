"""Periodic work on all logs, such as retention, flushes by time, checkpoints, the expiry of
producers, and the removal of files that were renamed for deletion.

Work that blocks is done by helper threads, whose results come back to the loop's thread.
"""

import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.log.directory.free_space import MEASURE_INTERVAL_MS, FreeSpaceMonitor
from klog_broker.log.errors import LogStorageError
from klog_broker.log.log_config import INT64_MAX
from klog_broker.log.manager.checkpoints import ALL_CHECKPOINTS, Checkpoint, Checkpoints
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.storage import names

_log = logging.getLogger("klog.log")
# The longest time from the start of the broker to the first run of a periodic task, as in Kafka.
_FIRST_ROUND_MS = 30_000
# Check flush.ms of topics at least this often, even if log.flush.scheduler.interval.ms is at its
# default, "never".
_FLUSH_CHECK_MS = 1_000
# How often to close the indexes of inactive segments, and the descriptors of files that were not
# used in the meantime.
_UNUSED_FILES_MS = 60_000
# For how many logs one event-loop turn does a periodic task, such as collecting the offsets for a
# checkpoint: this takes some 0.2 ms.
LOGS_A_TURN = 100
# The longest pause between two runs of the periodic work. A pause normally ends when the next work
# is due, but a deletion or a new setting can make work due earlier than was known when the pause
# began.
_LONGEST_PAUSE_MS = 1000


@dataclass(frozen=True)
class LogManagerSettings:
    """The broker's settings that concern all logs. All but ``min_free_bytes``, which is klog's
    log.dir.min.free.bytes, are settings of Kafka."""

    retention_check_interval_ms: int = 300_000
    flush_scheduler_interval_ms: int = INT64_MAX
    flush_offset_checkpoint_interval_ms: int = 60_000
    flush_start_offset_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    recovery_threads_per_data_dir: int = 2
    min_free_bytes: int = 0


class _Periodic:
    """A periodic task, its interval, and its next due time on the monotonic clock."""

    def __init__(self, run: Callable[[], None], interval_ms: int, now_ms: int) -> None:
        self.run = run
        self.interval_ms = interval_ms
        self.due_ms = now_ms + min(interval_ms, _FIRST_ROUND_MS)


class Housekeeping:
    """Does the periodic work (retention, checkpoints and others) on all logs, which ``logs()``
    returns."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        helpers: Helpers,
        settings: LogManagerSettings,
        directories: Sequence[LogDirectory],
        logs: Callable[[], Iterable[PartitionLog]],
    ) -> None:
        self._files = files
        self._clock = clock
        self._helpers = helpers
        self._settings = settings
        self._directories = directories
        self._logs = logs
        self._removals: list[tuple[int, int, Path]] = []
        self._removal_count = 0
        self._retention_left: deque[PartitionLog] = deque()
        # Unfinished walks. A walk does the same work for each log, such as collecting its offset
        # for a checkpoint file, over several event-loop turns. Each walk ends before the next
        # begins, so the newest offsets are the last that are written to a checkpoint file.
        self._walks: deque[Iterator[object]] = deque()
        self._to_renew: list[Callable[[], None]] = []
        """Callbacks of `renew_checkpoints` that wait for the next rewrite of the checkpoints."""
        self._is_woken = False
        self.wake: Callable[[], None] | None = None
        """Makes the event loop call :meth:`run_due` soon, because a walk over all logs is
        unfinished.

        While this is None, :meth:`next_deadline_ms` returns the present time for such a walk, so
        that the caller of :meth:`run_due` repeats the call immediately.
        """
        self._checkpoints = Checkpoints(helpers)
        self.free_space = FreeSpaceMonitor(files, helpers, [(d.path, d.space) for d in directories])
        now_ms = clock.monotonic_ms()
        flush_ms = min(settings.flush_scheduler_interval_ms, _FLUSH_CHECK_MS)
        work = (
            (self._begin_retention, settings.retention_check_interval_ms),
            (lambda: self._walk(self._flush_by_time()), flush_ms),
            (self._checkpoint_recovery_points, settings.flush_offset_checkpoint_interval_ms),
            (self._checkpoint_starts, settings.flush_start_offset_checkpoint_interval_ms),
            (self._checkpoint_watermarks, settings.high_watermark_checkpoint_interval_ms),
            (
                lambda: self._walk(self._expire_producers()),
                settings.producer_id_expiration_check_interval_ms,
            ),
            (lambda: self._walk(self._rest_unused()), _UNUSED_FILES_MS),
        )
        self._periodic = [_Periodic(run, interval_ms, now_ms) for run, interval_ms in work]
        self._looks = _Periodic(self.measure_free_space, MEASURE_INTERVAL_MS, now_ms)
        self._periodic.append(self._looks)

    def apply_settings(self, settings: LogManagerSettings) -> None:
        """Use these settings for the expiry of producers and for the floor of free disk space
        (log.dir.min.free.bytes).

        The configured intervals between the runs of periodic tasks stay: as in Kafka they do not
        change while the broker runs.
        """
        self._settings = settings
        self.measure_free_space()

    def start(self, loop: Loop) -> None:
        """From now on, call :meth:`run_due` in the event loop whenever periodic work is due."""

        def run() -> None:
            self.run_due()
            schedule()

        def schedule() -> None:
            pause_ms = self.next_deadline_ms() - loop.now_ms()
            loop.call_later(min(max(pause_ms, 1), _LONGEST_PAUSE_MS), run)

        self.wake = lambda: loop.call_soon(self.run_due)
        schedule()

    def next_deadline_ms(self) -> int:
        """The time on the monotonic clock at which periodic work, such as retention, is due:
        :meth:`run_due` must be called then."""
        if self._retention_left or (self._walks and not self._is_woken):
            return self._clock.monotonic_ms()
        next_ms = min(periodic.due_ms for periodic in self._periodic)
        return min(next_ms, self._removals[0][0]) if self._removals else next_ms

    def run_due(self) -> None:
        """Do the periodic work that is due. Work on many logs is spread over several calls."""
        self._is_woken = False
        if self._walks:
            self._walk_on()
        now_ms = self._clock.monotonic_ms()
        for periodic in self._periodic:
            if periodic.due_ms <= now_ms:
                periodic.due_ms = now_ms + periodic.interval_ms
                periodic.run()
        if self._retention_left:
            self._apply_retention(self._retention_left.popleft())
        while self._removals and self._removals[0][0] <= now_ms:
            self._remove(heapq.heappop(self._removals)[2])

    def remove_later(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Remove these files or directories, which no log uses any more, after ``delay_ms``."""
        due_ms = self._clock.monotonic_ms() + delay_ms
        for path in paths:
            self._removal_count += 1
            heapq.heappush(self._removals, (due_ms, self._removal_count, path))

    def _remove(self, path: Path) -> None:
        def work() -> None:
            if self._files.is_dir(path):
                self._files.remove_tree(path)
            else:
                self._files.remove(path)

        def on_removed(_: None, error: BaseException | None) -> None:
            if error is not None:
                # The next start-up removes the files that are left.
                _log.warning("path=%s not removed, the next start tries again: %s", path, error)

        self._helpers.submit(work, on_removed)

    # --- walks over all logs ---------------------------------------------------------------------
    def _walk(self, steps: Iterator[object]) -> None:
        """Run ``steps``, a periodic task with one step for each log. If no other such walk over the
        logs is running, take the first LOGS_A_TURN steps now, and the rest in later event-loop
        turns."""
        self._walks.append(steps)
        if len(self._walks) == 1:
            self._walk_on()

    def _walk_on(self) -> None:
        left = LOGS_A_TURN
        while self._walks and left > 0:
            walk = self._walks[0]
            for _ in walk:
                left -= 1
                if left <= 0:
                    break
            else:
                self._walks.popleft()
        if self._walks and not self._is_woken and self.wake is not None:
            self._is_woken = True
            self.wake()

    def _online(self) -> Iterator[PartitionLog]:
        return (log for log in self._logs() if not log.is_offline)

    def _begin_retention(self) -> None:
        """Start a retention round, in which each event-loop turn works on one log.

        Renaming the old segments of one log takes milliseconds, and there can be many logs.
        """
        self._retention_left = deque(self._logs())

    def _apply_retention(self, log: PartitionLog) -> None:
        if log.is_offline:
            return
        try:
            log.apply_retention(self._clock.now_ms())
        except LogStorageError as error:
            # LogDirectory has logged a failure of the disk already. A log that is being truncated
            # or emptied gets its retention in the next round.
            _log.debug("log=%s retention failed: %s", log.path, error)

    def _flush_by_time(self) -> Iterator[None]:
        now_ms = self._clock.monotonic_ms()
        for log in self._logs():
            yield
            if log.awaits_cut:
                log.retry_cut()
            if log.awaits_flush:
                log.start_flush()
            if log.config.flush_ms == INT64_MAX or log.is_offline:
                continue
            if not log.has_unflushed:
                log.last_flush_ms = now_ms
            elif now_ms - log.last_flush_ms >= log.config.flush_ms:
                log.last_flush_ms = now_ms
                log.start_flush()

    def _expire_producers(self) -> Iterator[None]:
        now_ms = self._clock.now_ms()
        for log in self._online():
            yield
            log.expire_producers(now_ms, self._settings.producer_id_expiration_ms)

    def measure_free_space(self) -> None:
        """Start to measure the free space of the disks. Called periodically, at start-up, and after
        a change of settings."""
        self.free_space.start_measurement(self._settings.min_free_bytes)
        self._looks.interval_ms = self.free_space.pause_ms

    def _rest_unused(self) -> Iterator[None]:
        self._files.close_unused()
        for log in self._online():
            yield
            log.close_unused_indexes()

    # --- checkpoints -----------------------------------------------------------------------------
    def _checkpoint_recovery_points(self) -> None:
        self._walk(self._flush_indexes())
        self._write_checkpoints(names.RECOVERY_POINT_CHECKPOINT)

    def _flush_indexes(self) -> Iterator[None]:
        for log in self._online():
            yield
            if log.flushed_offset > log.recovery_point:
                # Some flushes sync only the records. Flush their index entries, too, so that the
                # recovery point can rise in the next checkpoint.
                log.start_flush(with_indexes=True)

    def renew_checkpoints(self, done: Callable[[], None]) -> None:
        """Rewrite the checkpoints so that they name only existing logs; then call ``done``.

        A deleted log's checkpoints must not count for the next log of its name, because a start
        after a crash would trust records that were never synced. Calls that arrive while a renewal
        is running share the next one, because after the failure of a leader many logs may be
        truncated at once. ``done`` is called in the loop's thread.
        """
        self._to_renew.append(done)
        if len(self._to_renew) == 1:
            self._walk(self._renew())

    def _renew(self) -> Iterator[None]:
        served, self._to_renew = self._to_renew, []
        left = 1

        def one_is_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                for done in served:
                    done()

        for name in ALL_CHECKPOINTS:
            for directory in self._directories:
                if not directory.is_offline:
                    left += 1
                    write = partial(self._checkpoints.replace_file, directory, one_is_done)
                    yield from self._collect_checkpoint(name, directory, write)
        one_is_done()

    def _collect_checkpoint(
        self, name: str, directory: LogDirectory, write: Callable[[Checkpoint], None]
    ) -> Iterator[None]:
        """Collect a checkpoint's rows, log by log, then write it."""
        found = Checkpoint(name)
        for log in self._logs():
            yield
            if log.log_directory is directory:
                found.add_log(log)
        write(found)

    def _checkpoint_starts(self) -> None:
        self._write_checkpoints(names.LOG_START_OFFSET_CHECKPOINT)

    def _checkpoint_watermarks(self) -> None:
        self._write_checkpoints(names.HIGH_WATERMARK_CHECKPOINT)

    def checkpoint_cleaned(self) -> None:
        """Write each log's cleaned offset to the cleaner checkpoint. Without this file, the cleaner
        would clean all logs again from their start."""
        self._write_checkpoints(names.CLEANER_CHECKPOINT)

    def _write_checkpoints(self, name: str) -> None:
        for directory in self._directories:
            if not directory.is_offline:
                write = partial(self._checkpoints.write, directory)
                self._walk(self._collect_checkpoint(name, directory, write))
