"""Loads the logs of the data directories in parallel.

num.recovery.threads.per.data.dir limits how many logs of a directory are loaded at once. The
directories do not wait for each other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.log.directory.partition_folders import DirectoryFolders
from klog_broker.log.log_config import LogConfig
from klog_broker.log.recovery.loading_progress import LoadingTally
from klog_broker.log.recovery.log_loading import LoadedLog, load_log
from klog_broker.log.validation.record_checks import RecordChecks
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.system.descriptors import is_exhausted
from klog_broker.runtime.threads.parallel_work import ParallelWork
from pyspark_klog.ids import Offset, TopicId, TopicPartition
from pyspark_klog.storage import names


@dataclass
class LogToLoad:
    """A partition's folder, the function that loads its log, and the loaded log."""

    path: Path
    topic_partition: TopicPartition
    topic_id: TopicId
    config: LogConfig
    load: Callable[[], LoadedLog]
    loaded: LoadedLog | None = None


@dataclass
class DirectoryLoading:
    """A data directory whose logs are being loaded.

    Once the disk has failed (``has_failed``), no further log of the directory is loaded.
    """

    directory: LogDirectory
    tally: LoadingTally
    is_clean: bool
    recovery_points: dict[TopicPartition, Offset]
    """The recovery points in the checkpoint file that the previous broker process wrote."""
    checkpointed: frozenset[TopicPartition]
    """All partitions that any checkpoint file of the directory names."""
    logs: list[LogToLoad] = field(default_factory=list)
    has_failed: bool = False

    @classmethod
    def start_loading(
        cls,
        folders: DirectoryFolders,
        config_of: Callable[[str, TopicId], LogConfig],
        *,
        files: Files,
        checks: RecordChecks,
        now_ms: int,
        tally: LoadingTally,
    ) -> Self:
        """Read the checkpoints that the previous broker process wrote, and remove its clean
        shutdown marker. Blocks. Raises OSError."""
        directory = folders.directory
        directory.sync_notes.open()
        is_clean = directory.remove_clean_marker()
        recovery_points = directory.read_checkpoint(names.RECOVERY_POINT_CHECKPOINT)
        starts = directory.read_checkpoint(names.LOG_START_OFFSET_CHECKPOINT)
        watermarks = directory.read_checkpoint(names.HIGH_WATERMARK_CHECKPOINT)
        cleaned = directory.read_checkpoint(names.CLEANER_CHECKPOINT)
        if not is_clean:
            # The previous broker process may have made files in this directory and been killed
            # before it synced their names.
            files.sync_dir(directory.path)
        checkpointed = frozenset().union(recovery_points, starts, watermarks, cleaned)
        loading = cls(directory, tally, is_clean, recovery_points, checkpointed)
        for topic_partition, topic_id, path in folders.partitions:
            config = config_of(topic_partition.topic, topic_id)
            load = partial(
                load_log,
                files,
                path,
                config=config,
                checks=checks,
                is_clean=is_clean,
                recovery_point=recovery_points.get(topic_partition, 0),
                log_start_offset=starts.get(topic_partition, 0),
                high_watermark=watermarks.get(topic_partition, 0),
                cleaned_offset=cleaned.get(topic_partition),
                now_ms=now_ms,
                notes=directory.sync_notes,
                tally=tally,
            )
            loading.logs.append(LogToLoad(path, topic_partition, topic_id, config, load))
        return loading

    def load(self, log: LogToLoad) -> LoadedLog | OSError | None:
        """Load a log. Blocks; can be called in any thread.

        Returns the OSError if the disk fails, and None if the directory had failed before.
        """
        if self.has_failed:
            return None
        self.tally.add_checked_bytes(log.path, 0)
        try:
            return log.load()
        except OSError as error:
            if is_exhausted(error):
                raise
            self.has_failed = True
            return error

    def set_loaded(self, number: int, loaded: LoadedLog | OSError | None) -> None:
        """Store the result of :meth:`load` for the log with the index ``number``. An OSError takes
        the data directory offline."""
        if isinstance(loaded, OSError):
            self.directory.go_offline(loaded)
        else:
            self.logs[number].loaded = loaded

    @property
    def has_outdated_checkpoints(self) -> bool:
        """Whether a checkpoint names a missing log, or has a recovery point past the end of its
        log."""
        ends = {
            each.topic_partition: each.loaded.recovery_point
            for each in self.logs
            if each.loaded is not None
        }
        return not self.checkpointed <= ends.keys() or any(
            ends[each] < point for each, point in self.recovery_points.items()
        )


def load_in_parallel(loadings: Sequence[DirectoryLoading], run: ParallelWork, threads: int) -> None:
    """Load all logs. Raises OSError if no file descriptor is free, and LoadingCancelled if the
    broker is asked to stop."""
    works = [[partial(each.load, log) for log in each.logs] for each in loadings]
    run(works, threads, lambda group, number, loaded: loadings[group].set_loaded(number, loaded))
