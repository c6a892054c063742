"""Group commit: runs one sync at a time for each log, and calls back all callers waiting for it.

The loop's thread plans a sync (which files, up to which offset), a helper thread carries it out,
and the loop's thread handles the outcome. Records that are appended meanwhile go with the next
sync, so one sync serves many Produce responses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from klog_broker.log.errors import LogStorageError, remove_tracebacks
from klog_broker.log.segment.leader_epochs import UnsavedEpochs
from klog_broker.runtime.disk.files import File, Files
from klog_broker.runtime.system.descriptors import is_exhausted
from klog_broker.runtime.threads.helpers import Helpers
from klog_broker.runtime.threads.locks import make_lock
from pyspark_klog.ids import Offset

FlushCallback = Callable[[BaseException | None], None]
Noted = Callable[[], AbstractContextManager[None]]


class FlushPlan(NamedTuple):
    """The files to sync, and the flushed offset and the recovery point of the log once they are
    synced."""

    files: tuple[File, ...]
    directories: tuple[Path, ...]
    flushed_offset: Offset
    recovery_point: Offset
    cuts: int
    """The value, when this flush plan was made, of a counter that grows when the log is truncated
    or emptied."""
    epochs: UnsavedEpochs | None = None
    """Leader epochs to be written after the syncs. The recovery point must not pass an epoch's
    start before the epoch is in leader-epoch-checkpoint."""

    def without_epochs(self) -> FlushPlan:
        """Return the outcome of this flush plan if its leader epochs could not be written. Recovery
        point 0 leaves the log's recovery point unchanged, because a plan can only raise it."""
        return self._replace(recovery_point=Offset(0), epochs=None)


class _Run:
    """A flush plan that is carried out once, by the first thread that calls ``perform``.

    Usually this is a helper thread; otherwise a thread that cannot go on without the sync, for
    example in close().
    """

    def __init__(self, files: Files, plan: FlushPlan, noted: Noted) -> None:
        self.plan = plan
        self._files = files
        self._noted = noted
        self._lock = make_lock()
        self._is_over = False
        self._error: BaseException | None = None
        self.epochs_error: OSError | None = None
        """Why the leader epochs of the flush plan could not be written; None if they were written,
        or before the attempt."""

    def perform(self) -> None:
        """Sync all files, or wait until another thread has synced them. Blocks.

        Raises the exception of the sync, in every thread that calls this.
        """
        with self._lock:
            if not self._is_over:
                self._is_over = True
                try:
                    with self._noted():
                        for file in self.plan.files:
                            file.sync()
                        for directory in self.plan.directories:
                            self._files.sync_dir(directory)
                    self._write_epochs()
                except BaseException as error:
                    self._error = error
            if self._error is not None:
                raise self._error

    def drop_files(self) -> None:
        """Release the files, in the loop's thread, after the flush.

        The traceback of a failed sync refers to the files and to this object, and this object
        refers to the error. Without this method, all of them would stay in memory until a garbage
        collection.
        """
        self.plan = self.plan._replace(files=(), directories=())
        if self._error is not None:
            remove_tracebacks(self._error)

    def _write_epochs(self) -> None:
        if self.plan.epochs is not None:
            try:
                self.plan.epochs.write()
            except OSError as error:
                self.epochs_error = error


class Flusher:
    """Runs one log's flushes, one at a time. Each sync runs within the context manager ``noted()``:
    the file klog-syncs names the log during the sync, and after a failed sync, so that the next
    start knows of the failure.

    ``plan(with_indexes)`` returns the next flush plan, or None if nothing needs a sync.
    ``on_flushed(plan)`` is called after a successful sync; it returns the offset up to which all
    records are synced.
    """

    def __init__(
        self,
        files: Files,
        helpers: Helpers,
        *,
        noted: Noted,
        plan: Callable[[bool], FlushPlan | None],
        on_flushed: Callable[[FlushPlan], Offset],
        on_postponed: Callable[[FlushPlan], None],
        on_failed: Callable[[BaseException], LogStorageError],
        on_refused: Callable[[OSError], LogStorageError],
    ) -> None:
        self._files = files
        self._helpers = helpers
        self._noted = noted
        self._plan = plan
        self._on_flushed = on_flushed
        self._on_postponed = on_postponed
        self._on_failed = on_failed
        self._on_refused = on_refused
        self._waiters: deque[tuple[int, FlushCallback]] = deque()
        self._needs_another = False
        self._again_with_indexes = False
        self._running: _Run | None = None
        self.is_postponed = False
        """The last flush failed because no file descriptor was free; the next flush includes the
        files that it should have synced."""

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def wait(self, offset: int, callback: FlushCallback) -> None:
        """Call ``callback`` once the records before ``offset`` are synced. ``offset`` must not be
        lower than the offset of an earlier callback that still waits."""
        self._waiters.append((offset, callback))

    def start_flush(self, *, with_indexes: bool = False) -> None:
        """Start a flush; if one is running, start another one once that flush has succeeded."""
        if self.is_running:
            self._needs_another = True
            self._again_with_indexes |= with_indexes
            return
        plan = self._plan(with_indexes)
        self.is_postponed = False
        if plan is None:
            return
        run = self._running = _Run(self._files, plan, self._noted)
        self._helpers.submit(run.perform, lambda _, error: self._on_run_ended(run, error))

    def flush_now(self) -> None:
        """Sync all appended records and their indexes, after the running flush. Blocks.

        Raises LogStorageError if a sync fails, and also if only the leader epochs could not be
        written.
        """
        self.sync_now()()

    def sync_now(self) -> Callable[[], None]:
        """Sync all appended records and their indexes, after the running flush. Blocks. No other
        thread may use the log during the call.

        Returns a function, to be called in the loop's thread, that handles the outcome of the sync,
        and raises the LogStorageError of a failure.
        """
        run: _Run | None = None
        failure: OSError | None = None
        try:
            if self._running is not None:
                self._running.perform()
            plan = self._plan(True)
            if plan is not None:
                run = _Run(self._files, plan, self._noted)
                run.perform()
        except OSError as error:
            failure = error

        def finish_flush() -> None:
            if failure is not None:
                if run is not None:
                    self._postpone_if_exhausted(run, failure)
                    run.drop_files()
                raise self._on_failed(failure) from failure
            refusal = None if run is None else self._apply_run(run)
            if run is not None and refusal is not None:
                raise refusal from run.epochs_error

        return finish_flush

    def wait_for_run(self) -> Callable[[], None]:
        """Return a function that waits, in a helper thread, for the running sync to end.

        The function blocks. If the sync fails, the function raises its OSError. If the sync fails
        only because no file descriptor was free, the function returns: that sync, too, has ended,
        and no thread uses the files.
        """
        run = self._running

        def wait() -> None:
            try:
                if run is not None:
                    run.perform()
            except OSError as error:
                if not is_exhausted(error):
                    raise

        return wait

    def _apply_run(self, run: _Run) -> LogStorageError | None:
        """Call the callbacks that wait for the records which this flush (``run``) has synced.
        Returns the error if the plan's leader epochs could not be written."""
        plan, refusal = run.plan, None
        if run.epochs_error is not None:
            refusal = self._on_refused(run.epochs_error)
            plan = plan.without_epochs()
        # If the log was truncated after the plan was made, records that are not synced may have
        # taken offsets below plan.flushed_offset. So release only the callbacks up to the offset
        # that on_flushed returns.
        self.release_waiters(self._on_flushed(plan))
        return refusal

    def _on_run_ended(self, run: _Run, error: BaseException | None) -> None:
        self._running = None
        is_postponed = self._postpone_if_exhausted(run, error)
        run.drop_files()
        if is_postponed:
            return
        if error is not None:
            self.fail_waiters(self._on_failed(error))
            return
        self._apply_run(run)
        again, self._needs_another = self._needs_another or bool(self._waiters), False
        with_indexes, self._again_with_indexes = self._again_with_indexes, False
        if again:
            self.start_flush(with_indexes=with_indexes)

    def _postpone_if_exhausted(self, run: _Run, error: BaseException | None) -> bool:
        if not is_exhausted(error):
            return False
        self.is_postponed = True
        self._on_postponed(run.plan)
        return True

    def release_waiters(self, flushed_offset: int) -> None:
        """Call the callbacks that wait for the sync of records before an offset of at most
        ``flushed_offset``."""
        waiters = self._waiters
        while waiters and waiters[0][0] <= flushed_offset:
            waiters.popleft()[1](None)

    def fail_waiters_after(self, offset: int, error: LogStorageError) -> None:
        """Call the callbacks that wait for the sync of records after ``offset``, with the error:
        the log was truncated, and these records are gone."""
        gone = [callback for reached, callback in self._waiters if reached > offset]
        self._waiters = deque(each for each in self._waiters if each[0] <= offset)
        for callback in gone:
            callback(error)

    def fail_waiters(self, error: LogStorageError) -> None:
        """Call all callbacks that wait for a sync, with the error: the records that they wait for
        may be lost."""
        waiters, self._waiters = self._waiters, deque()
        for _, callback in waiters:
            callback(error)
