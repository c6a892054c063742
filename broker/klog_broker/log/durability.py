"""What of a log is synced, what is not, and what the next sync has to take along."""

from collections.abc import Callable, Iterable
from pathlib import Path

from klog_broker.log.errors import LogStorageError
from klog_broker.log.flushing import FlushCallback, Flusher, FlushPlan
from klog_broker.log.leader_epochs import UnsavedEpochs
from klog_broker.log.log_state import LogState
from klog_broker.log.segment import Segment
from klog_broker.runtime.descriptors import is_exhausted
from klog_broker.runtime.files import File
from klog_broker.runtime.helpers import Helpers
from pyspark_klog.ids import Offset


class Durability:
    """``flushed_offset``: records before it survive a power cut. ``recovery_point``: their index
    entries, too, so that a start after a crash need not look at them."""

    def __init__(self, end_offset: Offset, recovery_point: Offset) -> None:
        self.flushed_offset = end_offset
        self.recovery_point = recovery_point
        # A plan from before the log was cut says nothing of what it is now.
        self._cuts = 0
        # Besides the active segment's: files, and directories with new names in them.
        self._files: list[File] = []
        self._directories: list[Path] = []

    def add(self, files: Iterable[File], directory: Path) -> None:
        """These are to be synced with the next flush: a segment was rolled or closed."""
        self._files += files
        if directory not in self._directories:
            self._directories.append(directory)

    def is_behind(self, end_offset: int) -> bool:
        """Whether there is something that a flush would make durable."""
        return self.flushed_offset < end_offset or bool(self._files)

    def plan(
        self,
        active: Segment,
        end_offset: Offset,
        epochs: UnsavedEpochs | None,
        *,
        with_indexes: bool,
    ) -> FlushPlan | None:
        """All that is not synced, once; None if there is nothing. ``epochs`` goes along if the
        recovery point moves, and ``with_indexes``. Its failure takes the directory offline;
        :meth:`put_back` is for what was not tried."""
        behind = self.recovery_point if with_indexes else self.flushed_offset
        if behind >= end_offset and not (self._files or self._directories):
            if not with_indexes or epochs is None:
                return None
            return FlushPlan((), (), end_offset, end_offset, self._cuts, epochs)
        files, self._files = self._files, []
        directories, self._directories = self._directories, []
        # What lies before the active segment is synced with its indexes when it is rolled.
        recovery_point = max(active.base_offset, self.recovery_point)
        if with_indexes:
            files += active.sync_files()
            recovery_point = end_offset
        elif active.size_bytes:
            files.append(active.log_file)
        if not with_indexes and recovery_point == self.recovery_point:
            epochs = None
        return FlushPlan(
            tuple(files), tuple(directories), end_offset, recovery_point, self._cuts, epochs
        )

    def put_back(self, plan: FlushPlan) -> None:
        """The plan could not be carried out for now: the next one takes its work along."""
        self._files = [*plan.files, *self._files]
        self._directories = [*plan.directories, *self._directories]

    def done(self, plan: FlushPlan) -> bool:
        """The plan was carried out; False if it says nothing of the log any more."""
        if plan.cuts != self._cuts:
            return False
        self.flushed_offset = max(self.flushed_offset, plan.flushed_offset)
        self.recovery_point = max(self.recovery_point, plan.recovery_point)
        return True

    def truncate(self, end_offset: Offset) -> None:
        """The log ends there now."""
        self._cuts += 1
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)


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
        directory = state.log_directory
        self._flusher = Flusher(
            state.files,
            helpers,
            noted=lambda: directory.sync_notes.noted(state.path.name),
            plan=self._plan,
            on_flushed=self._flushed,
            on_postponed=self._durability.put_back,
            on_failed=self._failed,
            on_refused=lambda error: directory.refuse(error, state.topic_partition),
        )

    @property
    def flushed_offset(self) -> Offset:
        """What lies before it survives a power cut."""
        return self._durability.flushed_offset

    @property
    def recovery_point(self) -> Offset:
        """From here on a start after a crash checks every byte."""
        return self._durability.recovery_point

    @property
    def has_unflushed(self) -> bool:
        return self._durability.is_behind(self._state.log_end_offset)

    @property
    def awaits_flush(self) -> bool:
        """Whether a flush that was begun has to be begun again: a descriptor was wanting."""
        return self._flusher.is_postponed and not self._state.is_offline

    @property
    def waiting(self) -> int:
        """How many wait for a flush."""
        return self._flusher.waiting

    def when_flushed(self, offset: int, callback: FlushCallback) -> None:
        """See PartitionLog.when_flushed, which this is."""
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
        """See PartitionLog.start_flush, which this is."""
        if not self._state.is_offline:
            self._flusher.start(with_indexes=with_indexes)

    def start_if_due(self) -> None:
        """After an append, or when the settings changed (flush.messages)."""
        state = self._state
        if state.log_end_offset - self._durability.flushed_offset >= state.config.flush_messages:
            self._flusher.start()

    def flush_now(self) -> None:
        """Sync all that has been appended, indexes too, here and now. Blocks. LogStorageError."""
        self._flusher.flush_now()

    def add(self, files: Iterable[File]) -> None:
        """These, and names of the log's directory, are to be synced with the next flush."""
        self._durability.add(files, self._state.path)

    def cut(self, end_offset: Offset) -> Callable[[], None]:
        """The log ends there now. Returns what waits, in a helper thread, for the sync that is
        under way."""
        self._durability.truncate(end_offset)
        return self._flusher.wait_for_run()

    def fail(self, error: LogStorageError) -> None:
        """Tell all who wait that their records may be lost."""
        self._flusher.fail(error)

    def abandon(self, error: LogStorageError) -> None:
        """The log is deleted: who waits is told so, and files that are gone are no failure."""
        self._is_deleted = True
        self._flusher.fail(error)

    def _plan(self, with_indexes: bool) -> FlushPlan | None:
        state = self._state
        if state.is_offline or state.is_being_cut:
            return None
        epochs = state.epochs.unsaved() if state.epochs.is_dirty else None
        return self._durability.plan(
            state.active, state.log_end_offset, epochs, with_indexes=with_indexes
        )

    def _flushed(self, plan: FlushPlan) -> None:
        before = self._durability.flushed_offset
        if self._durability.done(plan) and plan.epochs is not None:
            self._state.epochs.saved(plan.epochs)
        if self._durability.flushed_offset > before:
            self._on_flushed()

    def _failed(self, error: BaseException) -> LogStorageError:
        state = self._state
        if self._is_deleted and isinstance(error, FileNotFoundError):
            # Its directory has been renamed meanwhile: nothing of it is needed any more.
            return LogStorageError(f"{state.topic_partition} was deleted")
        if is_exhausted(error):
            assert isinstance(error, OSError)
            return state.log_directory.refuse(error, state.topic_partition)
        return state.log_directory.go_offline(error)
