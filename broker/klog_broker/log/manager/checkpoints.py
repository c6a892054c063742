"""The checkpoint files of a data directory: offsets of its logs, which start-up reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.ids import TopicPartition
from pyspark_klog.storage import names

_OFFSETS: dict[str, Callable[[PartitionLog], int | None]] = {
    names.RECOVERY_POINT_CHECKPOINT: lambda log: log.recovery_point,
    names.LOG_START_OFFSET_CHECKPOINT: lambda log: log.log_start_offset,
    names.HIGH_WATERMARK_CHECKPOINT: lambda log: log.high_watermark,
    names.CLEANER_CHECKPOINT: lambda log: log.cleaned_offset,
}
ALL_CHECKPOINTS = tuple(_OFFSETS)


class Checkpoint:
    """The content of the checkpoint file ``name``, with the present offsets of the logs."""

    def __init__(self, name: str, logs: Iterable[PartitionLog] = ()) -> None:
        self.name = name
        self.offsets: dict[TopicPartition, int] = {}
        """The rows to be written to the checkpoint file: an offset for each partition."""
        self.bounds: Mapping[TopicPartition, int] = self.offsets
        """The present offset of each log of the directory, of the kind that the file stores (such
        as the recovery point).

        If this checkpoint cannot be written, the older file may stay if each of its rows names a
        log in ``bounds`` and has an offset that is not above the log's offset in ``bounds``:
        start-up with lower offsets is safe.
        """
        self._offset_of = _OFFSETS[name]
        self._starts: dict[TopicPartition, int] | None = None
        if name == names.LOG_START_OFFSET_CHECKPOINT:
            self.bounds = self._starts = {}
        for log in logs:
            self.add_log(log)

    def add_log(self, log: PartitionLog) -> None:
        """Add the present offset of ``log``, of the kind that the checkpoint file stores. Adds no
        row if start-up needs none for this log."""
        offset = self._offset_of(log)
        if offset is None:
            return
        if self._starts is not None:
            self._starts[log.topic_partition] = offset
            if offset <= log.segments[0].base_offset:
                return  # no row: start-up finds this offset in the name of the first segment's file
        self.offsets[log.topic_partition] = offset


class Checkpoints:
    """Writes checkpoint files in helper threads, each only if its content has changed."""

    def __init__(self, helpers: Helpers) -> None:
        self._helpers = helpers
        self._written: dict[tuple[Path, str], Mapping[TopicPartition, int]] = {}
        self._writing: set[tuple[Path, str]] = set()
        # By checkpoint file: the calls of `replace_file` that wait for the end of the running write
        # of this file.
        self._waiting: dict[tuple[Path, str], list[Callable[[], None]]] = {}

    def write(self, directory: LogDirectory, found: Checkpoint) -> None:
        """Write the checkpoint if it has changed since its last write. Does nothing while the same
        file is being written."""
        key = (directory.path, found.name)
        if key in self._writing or self._written.get(key) == found.offsets:
            return
        # If the disk is full, the old file stays. Start-up with its lower offsets is safe.
        work = partial(directory.write_checkpoint, found.name, found.offsets)
        self._submit(directory, found, work, lambda: None)

    def replace_file(
        self, directory: LogDirectory, done: Callable[[], None], found: Checkpoint
    ) -> None:
        """Write the checkpoint, if it has changed since its last write, once no write of the same
        file is running; then call ``done``, even if the write failed with an OSError."""
        key = (directory.path, found.name)
        if key in self._writing:
            again = partial(self.replace_file, directory, done, found)
            self._waiting.setdefault(key, []).append(again)
            return
        if self._written.get(key) == found.offsets:
            done()
            return
        work = partial(directory.replace_checkpoint, found.name, found.offsets, found.bounds)
        self._submit(directory, found, work, done)

    def _submit(
        self,
        directory: LogDirectory,
        found: Checkpoint,
        work: Callable[[], None],
        done: Callable[[], None],
    ) -> None:
        key = (directory.path, found.name)
        self._writing.add(key)

        def written(_: None, error: BaseException | None) -> None:
            self._writing.discard(key)
            if error is None:
                self._written[key] = found.offsets
            elif isinstance(error, OSError):
                self._written.pop(key, None)
                directory.error_for(error, found.name)
            else:
                raise error
            done()
            for again in self._waiting.pop(key, []):
                again()

        self._helpers.submit(work, written)
