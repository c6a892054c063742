"""Tracks which files of a log are synced, and what the next sync has to include."""

from collections.abc import Callable, Iterable
from pathlib import Path

from klog_broker.log.errors import LogStorageError
from klog_broker.log.segment.leader_epochs import UnsavedEpochs
from klog_broker.log.segment.segment import Segment
from klog_broker.log.state.flushes import FlushCallback, Flusher, FlushPlan
from klog_broker.log.state.log_state import LogState
from klog_broker.runtime.disk.files import File
from klog_broker.runtime.system.descriptors import is_exhausted
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.ids import Offset


class Durability:
    """How far a log is durable, and the files that still need a sync.

    Records before ``flushed_offset`` survive a power cut. Before ``recovery_point`` their index
    entries survive, too, so a start after a crash need not read these records.
    """

    def __init__(self, end_offset: Offset, recovery_point: Offset) -> None:
        self.flushed_offset = end_offset
        self.recovery_point = recovery_point
        # Grows when the log is truncated or emptied. A flush that was planned before a truncation
        # must not raise flushed_offset and recovery_point of the truncated log.
        self._cuts = 0
        # The next flush syncs the active segment's .log file (and its indexes, if asked), these
        # files of other segments, and these directories, in which file names are new.
        self._files: list[File] = []
        self._directories: list[Path] = []

    def add(self, files: Iterable[File], directory: Path) -> None:
        """Include the files of a rolled or closed segment, and the directory that has their names,
        in the next flush."""
        self._files += files
        if directory not in self._directories:
            self._directories.append(directory)

    def is_behind(self, end_offset: int) -> bool:
        """Whether a flush would make records or files durable."""
        return self.flushed_offset < end_offset or bool(self._files)

    def plan(
        self,
        active: Segment,
        end_offset: Offset,
        epochs: UnsavedEpochs | None,
        *,
        with_indexes: bool,
    ) -> FlushPlan | None:
        """Plan a flush of the appended records and the added files; None if there is nothing to do.

        ``with_indexes`` includes the indexes of the active segment. The plan contains ``epochs``,
        the unsaved leader epochs, if the flush raises the recovery point, or if ``with_indexes`` is
        true. A plan that was not carried out, because no file descriptor was free, must be given to
        :meth:`put_back`. After any other failed sync the contents of the files on the disk are
        unknown, so the data directory goes offline, unless the log is deleted.
        """
        behind = self.recovery_point if with_indexes else self.flushed_offset
        if behind >= end_offset and not (self._files or self._directories):
            if not with_indexes or epochs is None:
                return None
            return FlushPlan((), (), end_offset, end_offset, self._cuts, epochs)
        files, self._files = self._files, []
        directories, self._directories = self._directories, []
        # The recovery point can rise to the active segment: the files of rolled segments and their
        # indexes were added to ``_files``, so this flush or an earlier one syncs them.
        recovery_point = max(active.base_offset, self.recovery_point)
        if with_indexes:
            files += active.sync_files()
            recovery_point = end_offset
            if active.transaction_index.is_new:
                active.transaction_index.is_new = False
                directories.append(active.directory)
        elif active.size_bytes:
            files.append(active.log_file)
        if not with_indexes and recovery_point == self.recovery_point:
            epochs = None
        return FlushPlan(
            tuple(files), tuple(directories), end_offset, recovery_point, self._cuts, epochs
        )

    def is_fully_synced(self, end_offset: int) -> bool:
        """Whether all records before ``end_offset``, their indexes, and the files and directories
        that were added (:meth:`add`) are synced."""
        return self.recovery_point >= end_offset and not (self._files or self._directories)

    def put_back(self, plan: FlushPlan) -> None:
        """Include the files and directories of the flush plan in the next plan, because no file
        descriptor was free to sync them."""
        self._files = [*plan.files, *self._files]
        self._directories = [*plan.directories, *self._directories]

    def drop_files(self) -> None:
        """Forget the files and directories that need a sync, because the log will not be flushed
        again."""
        self._files, self._directories = [], []

    def note_flushed(self, plan: FlushPlan) -> bool:
        """Raise ``flushed_offset`` and ``recovery_point``, because the plan was carried out.

        Returns False, and changes nothing, if the log was truncated or emptied since the plan was
        made.
        """
        if plan.cuts != self._cuts:
            return False
        self.flushed_offset = max(self.flushed_offset, plan.flushed_offset)
        self.recovery_point = max(self.recovery_point, plan.recovery_point)
        return True

    def truncate(self, end_offset: Offset) -> None:
        """Lower ``flushed_offset`` and ``recovery_point``, because the log is truncated and ends at
        ``end_offset`` now."""
        self._cuts += 1
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)

    def start_over(self, offset: Offset) -> None:
        """Set ``flushed_offset`` and ``recovery_point`` of a log that was emptied and synced, and
        starts and ends at ``offset`` now."""
        self._cuts += 1
        self.flushed_offset = self.recovery_point = offset


class LogFlushing:
    """Flushes one log: plans what to sync, and handles the outcome.

    ``on_flushed`` is called in the loop's thread each time that a flush has raised
    ``flushed_offset``.
    """

    def __init__(
        self,
        state: LogState,
        helpers: Helpers,
        *,
        recovery_point: Offset,
        on_flushed: Callable[[], None],
    ) -> None:
        self._state = state
        self._on_flushed = on_flushed
        self._durability = Durability(state.log_end_offset, recovery_point)
        self._is_deleted = False
        self._planned_ns = 0
        directory = state.log_directory
        self._flusher = Flusher(
            state.files,
            helpers,
            noted=lambda: directory.sync_notes.note_sync(state.path.name),
            plan=self._plan,
            on_flushed=self._flushed,
            on_postponed=self._put_back,
            on_failed=self._failed,
            on_refused=self._refused,
        )

    @property
    def flushed_offset(self) -> Offset:
        """Records before this offset survive a power cut."""
        return self._durability.flushed_offset

    @property
    def recovery_point(self) -> Offset:
        """The offset from which on a start after a crash checks every byte."""
        return self._durability.recovery_point

    @property
    def has_unflushed(self) -> bool:
        return self._durability.is_behind(self._state.log_end_offset)

    @property
    def awaits_flush(self) -> bool:
        """Whether a flush failed for want of a file descriptor, and has to be started again."""
        return self._flusher.is_postponed and not self._state.is_offline

    @property
    def waiting(self) -> int:
        """How many callbacks wait for a flush."""
        return self._flusher.waiting

    def when_flushed(self, offset: int, callback: FlushCallback) -> None:
        """Call back with None once the records before ``offset`` are synced, and start a flush if
        they are not. Call back with a LogStorageError if the log is or goes offline, is deleted, or
        is truncated below ``offset`` before the sync."""
        if self._state.is_offline:
            try:
                self._state.check_online()
            except LogStorageError as error:
                callback(error)
            return
        if offset <= self.flushed_offset:
            callback(None)
            return
        self._flusher.wait(offset, callback)
        self.start_flush()

    def start_flush(self, *, with_indexes: bool = False) -> None:
        """Start a flush of all appended records, unless the log is offline, or is being truncated
        or emptied. With ``with_indexes`` the flush also syncs the indexes, and so raises the
        recovery point."""
        if not self._state.is_offline:
            self._flusher.start_flush(with_indexes=with_indexes)

    def start_flush_if_due(self) -> None:
        """Start a flush if flush.messages asks for one; for use after an append or a new config."""
        state = self._state
        if state.log_end_offset - self._durability.flushed_offset >= state.config.flush_messages:
            self._flusher.start_flush()

    def flush_now(self) -> None:
        """Sync all appended records and their indexes, unless the log is offline. Blocks. Raises
        LogStorageError if a sync fails."""
        self._flusher.flush_now()

    def sync_now(self) -> Callable[[], None]:
        """Do the syncs of :meth:`flush_now`, which block. Returns a function for the loop's thread,
        which handles the outcome and raises LogStorageError if a sync, or the write of the leader
        epochs, failed."""
        return self._flusher.sync_now()

    @property
    def is_fully_synced(self) -> bool:
        """Whether no flush is running, and no file of any segment needs a sync."""
        is_idle = not self._flusher.is_running
        return is_idle and self._durability.is_fully_synced(self._state.log_end_offset)

    def add(self, files: Iterable[File]) -> None:
        """Include these files, and the log's directory with its file names, in the next flush."""
        self._durability.add(files, self._state.path)

    def note_cut(self, end_offset: Offset) -> Callable[[], None]:
        """Lower the flushed offset and the recovery point, because the log is truncated to
        ``end_offset``. Fails the flush callbacks for records after that offset.

        Returns a function for a helper thread, which waits until the running sync, if any, has
        ended.
        """
        self._durability.truncate(end_offset)
        self._flusher.fail_waiters_after(
            end_offset,
            LogStorageError(f"{self._state.topic_partition} was truncated to offset {end_offset}"),
        )
        return self._flusher.wait_for_run()

    def note_start_over(self, offset: Offset) -> None:
        """Set the flushed offset and the recovery point of a log that starts over, empty, at
        ``offset``.

        Call :meth:`note_cut` before the old segments are removed, and this method once the new,
        empty segment is synced.
        """
        self._durability.start_over(offset)

    def fail_waiters(self, error: LogStorageError) -> None:
        """Call all callbacks that wait for a flush, with the error: the records that they wait for
        may be lost."""
        self._flusher.fail_waiters(error)

    def abandon(self, error: LogStorageError) -> None:
        """Fail all flush callbacks, because the log is deleted. From now on, a flush that misses a
        file does not take the data directory offline."""
        self._is_deleted = True
        self._flusher.fail_waiters(error)

    def drop_files(self) -> None:
        """Forget the files that still need a sync, because the log was deleted or has failed."""
        self._durability.drop_files()

    def _put_back(self, plan: FlushPlan) -> None:
        if not self._state.is_offline:
            self._durability.put_back(plan)

    def _plan(self, with_indexes: bool) -> FlushPlan | None:
        state = self._state
        if state.is_offline or state.is_being_cut:
            return None
        epochs = state.epochs.unsaved() if state.epochs.is_dirty else None
        self._planned_ns = state.log_directory.monotonic_ns()
        return self._durability.plan(
            state.active, state.log_end_offset, epochs, with_indexes=with_indexes
        )

    def _flushed(self, plan: FlushPlan) -> Offset:
        directory = self._state.log_directory
        directory.flushes.add(directory.monotonic_ns() - self._planned_ns)
        before = self._durability.flushed_offset
        if self._durability.note_flushed(plan) and plan.epochs is not None:
            self._state.epochs.mark_saved(plan.epochs)
        if self._durability.flushed_offset > before:
            self._on_flushed()
        return self._durability.flushed_offset

    def _failed(self, error: BaseException) -> LogStorageError:
        if isinstance(error, OSError) and (is_exhausted(error) or self._is_due_to_deletion(error)):
            return self._refused(error)
        return self._state.log_directory.go_offline(error)

    def _refused(self, error: OSError) -> LogStorageError:
        """Return the LogStorageError for a flush that found no free file descriptor, whose log is
        deleted, or that could not write the leader epochs. If the epochs could not be written for a
        reason other than a full disk or a lack of descriptors, the data directory goes offline."""
        state = self._state
        if self._is_due_to_deletion(error):
            return LogStorageError(f"{state.topic_partition} was deleted")
        return state.log_directory.error_for(error, state.topic_partition)

    def _is_due_to_deletion(self, error: OSError) -> bool:
        """Whether a file is missing because the log's directory was renamed for its deletion.

        A deleted log needs no sync.
        """
        return self._is_deleted and isinstance(error, FileNotFoundError)
