"""Which parts of a log are synced, and what the next sync has to include."""

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
    """Records before ``flushed_offset`` survive a power cut. Before ``recovery_point`` their index
    entries do so, too: a start after a crash need not read them."""

    def __init__(self, end_offset: Offset, recovery_point: Offset) -> None:
        self.flushed_offset = end_offset
        self.recovery_point = recovery_point
        # How often the log was cut: the outcome of a plan from before a cut does not count.
        self._cuts = 0
        # To be synced besides the active segment's files, and directories with new names in them.
        self._files: list[File] = []
        self._directories: list[Path] = []

    def add(self, files: Iterable[File], directory: Path) -> None:
        """Include files and directory in the next flush: a segment was rolled or closed."""
        self._files += files
        if directory not in self._directories:
            self._directories.append(directory)

    def is_behind(self, end_offset: int) -> bool:
        """Whether a flush would make anything durable."""
        return self.flushed_offset < end_offset or bool(self._files)

    def plan(
        self,
        active: Segment,
        end_offset: Offset,
        epochs: UnsavedEpochs | None,
        *,
        with_indexes: bool,
    ) -> FlushPlan | None:
        """Everything that is not synced, in one plan; None if there is nothing. ``epochs`` are part
        of it if the recovery point moves, or ``with_indexes``. If the plan fails the directory goes
        offline; a plan that was not tried is given to :meth:`put_back`."""
        behind = self.recovery_point if with_indexes else self.flushed_offset
        if behind >= end_offset and not (self._files or self._directories):
            if not with_indexes or epochs is None:
                return None
            return FlushPlan((), (), end_offset, end_offset, self._cuts, epochs)
        files, self._files = self._files, []
        directories, self._directories = self._directories, []
        # Segments before the active one were synced with their indexes when they were rolled.
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

    def is_whole(self, end_offset: int) -> bool:
        """Whether everything is synced, indexes and files of other segments, too."""
        return self.recovery_point >= end_offset and not (self._files or self._directories)

    def put_back(self, plan: FlushPlan) -> None:
        """The plan could not be carried out for now: the next plan includes its work."""
        self._files = [*plan.files, *self._files]
        self._directories = [*plan.directories, *self._directories]

    def drop_files(self) -> None:
        """No flush follows."""
        self._files, self._directories = [], []

    def done(self, plan: FlushPlan) -> bool:
        """The plan was carried out; returns False if the log was cut since the plan was made."""
        if plan.cuts != self._cuts:
            return False
        self.flushed_offset = max(self.flushed_offset, plan.flushed_offset)
        self.recovery_point = max(self.recovery_point, plan.recovery_point)
        return True

    def truncate(self, end_offset: Offset) -> None:
        """The log was cut, and ends at ``end_offset`` now."""
        self._cuts += 1
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)

    def begin_anew(self, offset: Offset) -> None:
        """The log is empty, durably, and starts and ends at ``offset`` now."""
        self._cuts += 1
        self.flushed_offset = self.recovery_point = offset


class LogFlushing:
    """Flushes one log: plans what to sync, and takes the outcome. ``on_flushed`` is called in the
    loop, after ``flushed_offset`` grew."""

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
            noted=lambda: directory.sync_notes.noted(state.path.name),
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
        """From this offset on a start after a crash checks every byte."""
        return self._durability.recovery_point

    @property
    def has_unflushed(self) -> bool:
        return self._durability.is_behind(self._state.log_end_offset)

    @property
    def awaits_flush(self) -> bool:
        """Whether a flush was given up for want of a descriptor, and has to be begun again."""
        return self._flusher.is_postponed and not self._state.is_offline

    @property
    def waiting(self) -> int:
        """How many callbacks wait for a flush."""
        return self._flusher.waiting

    def when_flushed(self, offset: int, callback: FlushCallback) -> None:
        """PartitionLog.when_flushed."""
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
        self.start()

    def start(self, *, with_indexes: bool = False) -> None:
        """PartitionLog.start_flush."""
        if not self._state.is_offline:
            self._flusher.start(with_indexes=with_indexes)

    def start_if_due(self) -> None:
        """Begin a flush if flush.messages asks for one: after an append or a change of settings."""
        state = self._state
        if state.log_end_offset - self._durability.flushed_offset >= state.config.flush_messages:
            self._flusher.start()

    def flush_now(self) -> None:
        """Sync everything that has been appended, and the indexes. Blocks. LogStorageError."""
        self._flusher.flush_now()

    def sync_now(self) -> Callable[[], None]:
        """:meth:`Flusher.sync_now`."""
        return self._flusher.sync_now()

    @property
    def is_whole(self) -> bool:
        """Whether no file of a segment is left to be synced."""
        is_idle = not self._flusher.is_running
        return is_idle and self._durability.is_whole(self._state.log_end_offset)

    def add(self, files: Iterable[File]) -> None:
        """Include these files, and the names in the log's directory, in the next flush."""
        self._durability.add(files, self._state.path)

    def cut(self, end_offset: Offset) -> Callable[[], None]:
        """The log ends at ``end_offset`` now. Returns a function that waits, in a helper thread,
        for the sync that is under way. Those who wait for records behind it are told an error."""
        self._durability.truncate(end_offset)
        self._flusher.give_up_after(
            end_offset, LogStorageError(f"{self._state.topic_partition} was cut at {end_offset}")
        )
        return self._flusher.wait_for_run()

    def begun_anew(self, offset: Offset) -> None:
        """After :meth:`cut`: all files are gone, and the one that there is now is synced."""
        self._durability.begin_anew(offset)

    def fail(self, error: LogStorageError) -> None:
        """Tell all who wait for a flush that their records may be lost."""
        self._flusher.fail(error)

    def abandon(self, error: LogStorageError) -> None:
        """The log is deleted: tell all who wait for a flush; missing files are no failure now."""
        self._is_deleted = True
        self._flusher.fail(error)

    def drop_files(self) -> None:
        """The log was deleted or has failed: forget the files that were still to be synced."""
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
        if self._durability.done(plan) and plan.epochs is not None:
            self._state.epochs.saved(plan.epochs)
        if self._durability.flushed_offset > before:
            self._on_flushed()
        return self._durability.flushed_offset

    def _failed(self, error: BaseException) -> LogStorageError:
        if isinstance(error, OSError) and (is_exhausted(error) or self._is_of_deletion(error)):
            return self._refused(error)
        return self._state.log_directory.go_offline(error)

    def _refused(self, error: OSError) -> LogStorageError:
        """What could not be written stays to be written."""
        state = self._state
        if self._is_of_deletion(error):
            return LogStorageError(f"{state.topic_partition} was deleted")
        return state.log_directory.refuse(error, state.topic_partition)

    def _is_of_deletion(self, error: OSError) -> bool:
        """Whether the log's directory was renamed for its deletion: nothing needs a sync then."""
        return self._is_deleted and isinstance(error, FileNotFoundError)
