"""What of a log is synced, what is not, and what the next sync has to take along."""

from collections.abc import Iterable
from pathlib import Path

from klog_broker.log.flushing import FlushPlan
from klog_broker.log.leader_epochs import UnsavedEpochs
from klog_broker.log.segment import Segment
from klog_broker.runtime.files import File
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
