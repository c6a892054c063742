"""Makes and deletes the logs of partitions, in the loop's thread or in a helper thread.

The loop's thread describes the change of a partition's log as a NewLog or a Removal. The ``run``
method of this object does the work on the disk, in either thread. The loop's thread removes a log
from the LogManager before its Removal runs, and adds a new log after its NewLog has run.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.log.errors import InconsistentTopicId, LogStorageError
from klog_broker.log.log_config import LogConfig
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.recovery.log_loading import LoadedLog, load_log
from klog_broker.log.validation.record_checks import RecordChecks
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.ids import (
    NO_TOPIC_ID,
    TopicId,
    TopicPartition,
)
from pyspark_klog.storage import names
from pyspark_klog.storage.text_files import encode_partition_metadata, encode_topic_id

AddLog = Callable[[LogDirectory, Path, TopicPartition, TopicId, LoadedLog, LogConfig], PartitionLog]


@dataclass(frozen=True, slots=True)
class NewLog:
    """A log that is about to be made. Immutable, so that any thread may make it."""

    topic_partition: TopicPartition
    topic_id: TopicId
    config: LogConfig
    directory: LogDirectory
    checks: RecordChecks
    now_ms: int
    path_when_deleted: Path
    """If making the log fails and its directory cannot be removed, the directory is renamed to this
    path."""

    @property
    def path(self) -> Path:
        return self.directory.path / names.partition_directory_name(self.topic_partition)

    def run(self, files: Files) -> LoadedLog:
        """Make the log's files, durably. Blocks.

        After an OSError the directory is removed, or renamed to ``path_when_deleted``, as far as
        the disk allows. Raises InconsistentTopicId if the directory exists and is not empty; then
        the directory stays unchanged.
        """
        path = self.path
        if files.exists(path) and files.list_dir(path):
            raise InconsistentTopicId(
                f"{path} already exists and is not empty; move the folder away, or, if the broker "
                f"is standalone, start it once with --adopt to use the folder's records"
            )
        try:
            files.make_dirs(path)
            files.write_atomically(
                path / names.PARTITION_METADATA, encode_partition_metadata(self.topic_id)
            )
            loaded = load_log(
                files,
                path,
                config=self.config,
                checks=self.checks,
                is_clean=True,
                recovery_point=0,
                log_start_offset=0,
                high_watermark=0,
                cleaned_offset=None,
                now_ms=self.now_ms,
                notes=self.directory.sync_notes,
            )
            self.directory.sync_names()
        except OSError:
            # Remove the incomplete log: it is empty, but the next start would find and keep it.
            try:
                files.remove_tree(path)
            except OSError:
                # Without a free file descriptor the files cannot be listed, and so not be removed.
                # Rename the directory: the next start removes a renamed one.
                with suppress(OSError):
                    files.rename(path, self.path_when_deleted)
            raise
        return loaded


@dataclass(frozen=True, slots=True)
class Removal:
    """The deletion of a log: its directory is to be renamed to ``path_when_deleted``."""

    directory: LogDirectory
    path: Path
    path_when_deleted: Path

    def run(self, files: Files) -> None:
        """Rename the log's directory, durably. Blocks. Raises OSError if the disk fails."""
        files.rename(self.path, self.path_when_deleted)
        self.directory.sync_names()


class PartitionChanges:
    """Creates and deletes logs, and adds them to ``logs``, the LogManager's dict, or removes them.

    For the loop's thread only. The async methods wait for an earlier change of the same partition.
    """

    def __init__(
        self,
        logs: dict[TopicPartition, PartitionLog],
        directories: Sequence[LogDirectory],
        *,
        files: Files,
        clock: Clock,
        chance: Chance,
        helpers: Helpers,
        checks: Callable[[], RecordChecks],
        add: AddLog,
        remove_later: Callable[[Iterable[Path], int], None],
        removed: Callable[[PartitionLog], None],
    ) -> None:
        self._logs = logs
        self._removed = removed
        self._directories = directories
        self._files = files
        self._clock = clock
        self._chance = chance
        self._helpers = helpers
        self._checks = checks
        self._add = add
        self._remove_later = remove_later
        self._making: dict[TopicPartition, LogDirectory] = {}
        """The partitions whose logs helper threads are making, each with its data directory."""
        self._changing: dict[TopicPartition, list[Callable[[], None]]] = {}
        """The partitions whose logs helper threads are making or deleting, each with the calls
        of this class's async methods that are postponed until this change ends."""

    def create(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig
    ) -> PartitionLog:
        """Return the log of the partition; make it in the directory with the fewest logs if needed.

        A new log is durable when this returns. Raises InconsistentTopicId or LogStorageError.
        Blocks (fsync) if the log has to be made, or if its folder lacks the topic id.
        """
        log = self._logs.get(topic_partition)
        if log is not None:
            self._check_topic_id(log, topic_id)
            return log
        new = self._new_log(topic_partition, topic_id, config)
        try:
            loaded = new.run(self._files)
        except OSError as error:
            raise new.directory.error_for(error, topic_partition) from error
        return self._adopt(new, loaded)

    def create_async(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        done: Callable[[PartitionLog | None, BaseException | None], None],
    ) -> None:
        """Do the same as :meth:`create`, but make a missing log in a helper thread.

        ``done(log, error)`` is called once, in the loop's thread: before this method returns,
        unless the log must be made, or another creation or deletion of this partition's log is
        running.
        """
        if topic_partition in self._changing:
            self._changing[topic_partition].append(
                partial(self.create_async, topic_partition, topic_id, config, done)
            )
            return
        try:
            if topic_partition in self._logs:
                log = self.create(topic_partition, topic_id, config)
                done(log, None)
                return
            new = self._new_log(topic_partition, topic_id, config)
        except (LogStorageError, InconsistentTopicId) as error:
            done(None, error)
            return
        self._changing[topic_partition] = []
        self._making[topic_partition] = new.directory

        def made(loaded: LoadedLog | None, error: BaseException | None) -> None:
            del self._making[topic_partition]
            log: PartitionLog | None = None
            if isinstance(error, OSError):
                error = new.directory.error_for(error, topic_partition)
            elif new.directory.is_offline:
                error = new.directory.storage_error()
            elif loaded is not None:
                log = self._adopt(new, loaded)
            self._changed(topic_partition, lambda: done(log, error))

        self._helpers.submit(lambda: new.run(self._files), made)

    def _new_log(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
    ) -> NewLog:
        directory = self._emptiest_directory()
        return NewLog(
            topic_partition,
            topic_id,
            config,
            directory,
            self._checks(),
            self._clock.now_ms(),
            self._path_when_deleted(directory, topic_partition),
        )

    def _adopt(self, new: NewLog, loaded: LoadedLog) -> PartitionLog:
        return self._add(
            new.directory, new.path, new.topic_partition, new.topic_id, loaded, new.config
        )

    def _changed(self, topic_partition: TopicPartition, done: Callable[[], None]) -> None:
        """End the creation or deletion of the partition's log: call ``done``, then begin the
        creations and deletions that have waited for this end."""
        waiting = self._changing.pop(topic_partition)
        done()
        for change in waiting:
            change()

    def _check_topic_id(self, log: PartitionLog, topic_id: TopicId) -> None:
        if log.topic_id == topic_id:
            return
        if log.topic_id != NO_TOPIC_ID:
            raise InconsistentTopicId(
                f"{log.path} belongs to the topic with id {encode_topic_id(log.topic_id)}, not to "
                f"{encode_topic_id(topic_id)}"
            )
        # The log's folder has no topic id, for example because a release of Kafka without topic ids
        # made it: store the topic id now.
        try:
            self._files.write_atomically(
                log.path / names.PARTITION_METADATA, encode_partition_metadata(topic_id)
            )
        except OSError as error:
            raise log.log_directory.error_for(error, log.topic_partition) from error
        log.topic_id = topic_id

    def _emptiest_directory(self) -> LogDirectory:
        online = [directory for directory in self._directories if not directory.is_offline]
        if not online:
            raise LogStorageError("every data directory is offline; restart the broker")
        counts = dict.fromkeys(online, 0)
        used = [log.log_directory for log in self._logs.values()]
        for directory in (*used, *self._making.values()):
            if directory in counts:
                counts[directory] += 1
        return min(online, key=lambda directory: counts[directory])

    def delete(self, topic_partition: TopicPartition) -> None:
        """Rename the log's directory, durably; remove its files after file.delete.delay.ms.

        Does nothing if there is no such log. Raises LogStorageError. Blocks (fsync).
        """
        log = self._logs.get(topic_partition)
        if log is None:
            return
        removal = self._removal(log)
        try:
            removal.run(self._files)
        except OSError as error:
            raise removal.directory.go_offline(error) from error
        self._remove_later([removal.path_when_deleted], log.config.file_delete_delay_ms)

    def delete_async(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        done: Callable[[BaseException | None], None],
    ) -> None:
        """Do the same as :meth:`delete`, in a helper thread, if the log has this topic id.

        If another creation or deletion of this partition's log is running, the deletion begins
        after its end. Once the deletion has begun, the log can no longer be read or written.
        ``done(error)`` is called once, in the loop's thread: before this method returns if there
        is no log to delete, or if the log's data directory is offline.
        """
        if topic_partition in self._changing:
            self._changing[topic_partition].append(
                partial(self.delete_async, topic_partition, topic_id, done)
            )
            return
        log = self._logs.get(topic_partition)
        if log is None or log.topic_id != topic_id:
            done(None)
            return
        delay_ms = log.config.file_delete_delay_ms
        try:
            removal = self._removal(log)
        except LogStorageError as error:
            done(error)
            return
        self._changing[topic_partition] = []

        def renamed(_: None, error: BaseException | None) -> None:
            if error is None:
                self._remove_later([removal.path_when_deleted], delay_ms)
            elif isinstance(error, OSError):
                error = removal.directory.go_offline(error)
            self._changed(topic_partition, lambda: done(error))

        self._helpers.submit(lambda: removal.run(self._files), renamed)

    def _removal(self, log: PartitionLog) -> Removal:
        """Remove the log from ``logs`` and close its files; returns the Removal, which renames its
        directory when run.

        Raises LogStorageError if the data directory is offline.
        """
        del self._logs[log.topic_partition]
        self._removed(log)
        directory = log.log_directory
        log.abandon()
        if directory.is_offline:
            raise directory.storage_error()
        path_when_deleted = self._path_when_deleted(directory, log.topic_partition)
        return Removal(directory, log.path, path_when_deleted)

    def _path_when_deleted(self, directory: LogDirectory, topic_partition: TopicPartition) -> Path:
        name = names.deleted_directory_name(topic_partition, self._chance.uuid())
        return directory.path / name
