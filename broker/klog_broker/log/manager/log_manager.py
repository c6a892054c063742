"""Owns the data directories and all logs of a broker: loads, creates, closes and deletes the logs,
and does periodic work on them, such as retention."""

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.log.directory.directory_owner import check_owners, complete_meta
from klog_broker.log.directory.free_space import FreeSpaceMonitor
from klog_broker.log.directory.partition_folders import (
    DirectoryFolders,
    check_unique_partitions,
    find_folders,
    folders_of_topics,
)
from klog_broker.log.errors import LogDirectoryError, LogStorageError, OutOfDescriptors
from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.checkpoints import ALL_CHECKPOINTS, Checkpoint
from klog_broker.log.manager.directory_closing import close_in_parallel
from klog_broker.log.manager.directory_loading import DirectoryLoading, load_in_parallel
from klog_broker.log.manager.housekeeping import Housekeeping, LogManagerSettings
from klog_broker.log.manager.partition_changes import PartitionChanges
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.recovery.loading_progress import LoadingTally, ScanTotal
from klog_broker.log.recovery.log_loading import LoadedLog
from klog_broker.log.state.log_listener import LogListener
from klog_broker.log.validation.kernel_checks import kernel_checks
from klog_broker.log.validation.plain_checks import PlainChecks
from klog_broker.log.validation.record_checks import RecordChecks
from klog_broker.metrics.topic_counts import CountsByTopic
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.descriptors import describe_exhaustion, is_exhausted
from klog_broker.runtime.threads.helpers import Helpers
from klog_broker.runtime.threads.parallel_work import ParallelWork, run_in_order
from pyspark_klog.ids import (
    BrokerId,
    DirectoryId,
    TopicId,
    TopicPartition,
)
from pyspark_klog.storage import names

_log = logging.getLogger("klog.log")
__all__ = ["LogManager", "LogManagerSettings"]


class LogManager:
    """Owns the data directories and their logs. For the loop's thread, like PartitionLog, unless a
    method's docstring says otherwise."""

    def __init__(
        self,
        directories: Sequence[Path],
        *,
        files: Files,
        clock: Clock,
        helpers: Helpers,
        broker_id: BrokerId,
        cluster_id: str | None = None,
        settings: LogManagerSettings | None = None,
        default_config: LogConfig | None = None,
        chance: Chance | None = None,
    ) -> None:
        # Called when a data directory goes offline. A standalone broker has to stop once all data
        # directories are offline, a broker in a cluster as soon as one of them is.
        self.on_directory_offline: Callable[[Path, BaseException], None] | None = None
        # Notified of appends and other changes of each log that is loaded or made.
        self.listener: LogListener[PartitionLog] | None = None
        self.checks: RecordChecks = PlainChecks()
        self._files = files
        self._clock = clock
        self._helpers = helpers
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._default_config = default_config or LogConfig()
        self._chance = chance or Chance()
        self._directories = [LogDirectory(files, path, clock) for path in directories]
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self.counts = CountsByTopic()
        self._is_clean = True
        self._settings = settings or LogManagerSettings()
        self._housekeeping = Housekeeping(
            files, clock, helpers, self._settings, self._directories, self.logs
        )
        self.changes = PartitionChanges(
            self._logs,
            self._directories,
            files=files,
            clock=clock,
            chance=self._chance,
            helpers=helpers,
            checks=lambda: self.checks,
            add=self._add,
            remove_later=self._housekeeping.remove_later,
            removed=lambda log: self.counts.remove_log(log.topic_partition.topic),
        )
        for directory in self._directories:
            directory.on_offline = self._directory_went_offline

    # --- finding logs and directories ------------------------------------------------------------
    @property
    def cluster_id(self) -> str:
        """The cluster id: given to the constructor, read from a meta.properties, or, if all data
        directories are new, chosen at random by :meth:`load`."""
        if self._cluster_id is None:
            raise RuntimeError("the cluster id is not known before load()")
        return self._cluster_id

    @property
    def is_clean_start(self) -> bool:
        """Whether the last broker process closed all directories with logs properly."""
        return self._is_clean

    @property
    def directories(self) -> Sequence[LogDirectory]:
        """All directories of log.dirs, including empty and offline ones."""
        return tuple(self._directories)

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self._logs.get(topic_partition)

    def directory_of(self, topic_partition: TopicPartition) -> DirectoryId | None:
        """The id of the data directory that the partition's log is in; None without a log."""
        log = self._logs.get(topic_partition)
        return None if log is None else log.log_directory.directory_id

    def logs(self) -> Iterable[PartitionLog]:
        """All logs, including offline ones."""
        return tuple(self._logs.values())

    def use_kernels(self) -> None:
        """Check records in compiled code from now on. Compiles the code now unless it is cached."""
        self.checks = kernel_checks()

    # --- loading the logs ------------------------------------------------------------------------
    def load(
        self,
        config_of: Callable[[str, TopicId], LogConfig] | None = None,
        admit: Callable[[Sequence[DirectoryFolders]], None] | None = None,
        *,
        parallel_work: ParallelWork = run_in_order,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Lock the directories, load all logs in them, and recover logs that were not closed.

        Blocks. ``admit`` is called with the folders in the directories before any log is opened or
        changed; it raises an error, which is raised here, if the broker must not start with these
        folders. Loading does not increase leader epochs: the metadata
        store must do so for each log whose ``was_unclean`` is true.

        Raises LogDirectoryError if a directory cannot be used, for example because another broker
        uses it, or because its meta.properties names another cluster or broker; OSError if no file
        descriptor is free; LoadingCancelled once ``is_wanted()`` is False.
        """
        config_of = config_of or (lambda _topic, _topic_id: self._default_config)
        try:
            for directory in self._directories:
                directory.lock_directory()
            self._cluster_id = check_owners(
                self._directories, self._broker_id, self._cluster_id, self._chance
            )
            found = [each for each in map(self._find_folders, self._directories) if each]
            check_unique_partitions(
                partition for folders in found for partition in folders.partitions
            )
            if admit is not None:
                admit(found)
            total = ScanTotal()
            loadings = []
            for folders in found:
                directory = folders.directory
                try:
                    complete_meta(directory, self.cluster_id, self._broker_id, self._chance)
                    tally = LoadingTally(
                        directory.path, len(folders.partitions), self._clock, total, is_wanted
                    )
                    loadings.append(
                        DirectoryLoading.start_loading(
                            folders,
                            config_of,
                            files=self._files,
                            checks=self.checks,
                            now_ms=self._clock.now_ms(),
                            tally=tally,
                        )
                    )
                    self._housekeeping.remove_later(folders.deleted, 0)
                except OSError as error:
                    if is_exhausted(error):
                        raise
                    directory.go_offline(error)
            load_in_parallel(loadings, parallel_work, self._settings.recovery_threads_per_data_dir)
            for loading in loadings:
                self._take_loaded(loading)
            self._housekeeping.measure_free_space()
        except BaseException:
            self.release_locks()
            raise

    def _find_folders(self, directory: LogDirectory) -> DirectoryFolders | None:
        try:
            return find_folders(self._files, directory)
        except PermissionError as error:
            raise LogDirectoryError(directory.unusable_reason(error)) from None
        except OSError as error:
            if is_exhausted(error):
                raise
            directory.go_offline(error)
            return None

    def _take_loaded(self, loading: DirectoryLoading) -> None:
        self._is_clean &= loading.is_clean or not loading.logs
        # Add the logs in the order of their folders: threads may have loaded them in another order.
        for log in loading.logs:
            if log.loaded is not None:
                self._add(
                    loading.directory,
                    log.path,
                    log.topic_partition,
                    log.topic_id,
                    log.loaded,
                    log.config,
                )
        if loading.has_failed:
            return
        if loading.has_outdated_checkpoints:
            self._replace_checkpoints(loading.directory)
        if not loading.directory.is_offline:
            loading.directory.sync_notes.remove_old_notes()
            loading.tally.log_totals()

    def _replace_checkpoints(self, directory: LogDirectory) -> None:
        """Rewrite the checkpoints of a directory, because a log was truncated or deleted after they
        were written.

        Without this rewrite, records that are appended later could lie before a recovery point or
        log start offset of the removed records: after a crash, they would not be checked, or would
        not be part of the log.
        """
        for name in ALL_CHECKPOINTS:
            found = Checkpoint(name, self._logs_in(directory))
            try:
                directory.replace_checkpoint(name, found.offsets, found.bounds)
            except OSError as error:
                directory.error_for(error, name)

    def _logs_in(self, directory: LogDirectory) -> list[PartitionLog]:
        return [log for log in self._logs.values() if log.log_directory is directory]

    def _add(
        self,
        directory: LogDirectory,
        path: Path,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        loaded: LoadedLog,
        config: LogConfig,
    ) -> PartitionLog:
        log = self._logs[topic_partition] = PartitionLog(
            topic_partition,
            topic_id,
            path,
            loaded,
            log_directory=directory,
            config=config,
            helpers=self._helpers,
            checks=lambda: self.checks,
            remove_later=self._housekeeping.remove_later,
            chance=self._chance,
            renew_checkpoints=self._housekeeping.renew_checkpoints,
            counts=self.counts.add_log(topic_partition.topic),
        )
        log.listener = self.listener
        log.last_flush_ms = self._clock.monotonic_ms()
        return log

    # --- making and deleting logs ----------------------------------------------------------------
    def create(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig
    ) -> PartitionLog:
        """Return the log of the partition; make it durably if there is none.

        Raises InconsistentTopicId or LogStorageError. Blocks (fsync) if the log has to be made, or
        if its folder lacks the topic id.
        """
        return self.changes.create(topic_partition, topic_id, config)

    def check_complete(self) -> None:
        """Raise LogStorageError if a directory is offline.

        A missing log may lie in the offline directory, and must not be made again, empty, in
        another directory.
        """
        for directory in self._directories:
            if directory.is_offline:
                raise directory.storage_error()

    def folders_of(self, topics: Iterable[str]) -> dict[str, list[tuple[int, Path]]]:
        """Return partition number and path of each folder in the online directories that has the
        name of a partition of one of these topics.

        The keys are the topics. Folders that klog did not make are included. Raises
        LogStorageError. Blocks; can be called in any thread.
        """
        online = [directory for directory in self._directories if not directory.is_offline]
        try:
            return folders_of_topics(self._files, online, topics)
        except OSError as error:
            if is_exhausted(error):
                raise OutOfDescriptors(describe_exhaustion(error)) from error
            raise LogStorageError(f"the data directories cannot be read: {error}") from error

    def folder_exists(self, path: Path) -> bool:
        """Whether a folder from :meth:`folders_of` still exists. Blocks; can be called in any
        thread."""
        return self._files.exists(path)

    def sync_recovery_points(self) -> None:
        """Write the recovery points of all logs in online directories to the checkpoint files,
        durably. Blocks.

        Raises OSError.
        """
        name = names.RECOVERY_POINT_CHECKPOINT
        for directory in self._directories:
            if not directory.is_offline:
                rows = Checkpoint(name, self._logs_in(directory)).offsets
                directory.write_checkpoint(name, rows)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete the log of the partition if there is one. Raises LogStorageError. Blocks."""
        self.changes.delete(topic_partition)

    def renew_checkpoints(self, done: Callable[[], None]) -> None:
        """Rewrite the checkpoints, without deleted logs; then call ``done``.

        Call this after a log was deleted, before a new log of the same name may be made: otherwise
        the deleted log's offsets would count for the new log after a crash.
        """
        self._housekeeping.renew_checkpoints(done)

    def checkpoint_cleaned(self) -> None:
        """Write each log's cleaned offset to the checkpoint files of the log cleaner."""
        self._housekeeping.checkpoint_cleaned()

    def _directory_went_offline(self, directory: LogDirectory) -> None:
        for log in self._logs.values():
            if log.log_directory is directory:
                log.directory_went_offline()
        if self.on_directory_offline is not None and directory.error is not None:
            self.on_directory_offline(directory.path, directory.error)

    @property
    def free_space(self) -> FreeSpaceMonitor:
        """The monitor of the free space on the disks of the data directories."""
        return self._housekeeping.free_space

    def apply_settings(self, settings: LogManagerSettings) -> None:
        """Use these settings for the expiry of producers and for the floor of free disk space
        (log.dir.min.free.bytes)."""
        self._housekeeping.apply_settings(settings)

    # --- periodic work ---------------------------------------------------------------------------
    def start_periodic_work(self, loop: Loop) -> None:
        """From now on, call :meth:`run_due` in the event loop whenever periodic work is due."""
        self._housekeeping.start(loop)

    def next_deadline_ms(self) -> int:
        """The time on the monotonic clock at which periodic work, such as retention, is due:
        :meth:`run_due` must be called then."""
        return self._housekeeping.next_deadline_ms()

    def set_wake(self, wake: Callable[[], None]) -> None:
        """Call ``wake``, from now on, when the same work for each log, such as collecting offsets
        for a checkpoint, is unfinished, so that :meth:`run_due` should be called soon."""
        self._housekeeping.wake = wake

    def run_due(self) -> None:
        """Do the periodic work that is due; work that blocks is given to helper threads.

        The work includes retention, flushes by time, checkpoints, the expiry of producers, and the
        removal of files that were renamed for deletion.
        """
        self._housekeeping.run_due()

    # --- shutdown --------------------------------------------------------------------------------
    def close(self, parallel_work: ParallelWork = run_in_order) -> None:
        """Flush and close all logs; write the checkpoints and clean shutdown markers. Blocks.

        A directory that is offline or has an offline log, or that fails now, gets no marker: its
        logs are recovered at the next start.
        """
        by_directory = [self._logs_in(directory) for directory in self._directories]
        failed = close_in_parallel(by_directory, parallel_work)
        for directory, logs in zip(self._directories, by_directory, strict=True):
            if directory.is_offline and not logs:
                continue
            try:
                error = failed.get(directory)
                if error is not None:
                    raise error
                for name in ALL_CHECKPOINTS:
                    directory.write_checkpoint(name, Checkpoint(name, logs).offsets)
                directory.write_clean_marker()
            except (OSError, LogStorageError) as error:
                _log.error(
                    "log_dir=%s not closed, the next start recovers its logs: %s",
                    directory.path,
                    error,
                )
        self.release_locks()

    def release_locks(self) -> None:
        """Unlock the directories without closing the logs, as if the process had been killed: for
        a failed start, or a stop without a clean shutdown."""
        for directory in self._directories:
            directory.release_lock()
