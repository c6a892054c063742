"""`klog verify`: checks a data directory, or one partition's folder, without a broker."""

from pathlib import Path

from klog_broker.inspection.lines import Finding
from klog_broker.inspection.metadata_checks import check_known_data
from klog_broker.inspection.partition_checks import DirectoryFacts, PartitionCheck
from klog_broker.inspection.report import Report
from klog_broker.inspection.small_files import (
    SMALL_FILES,
    read_small,
    small_file_rows,
)
from klog_broker.metadata.local_file import FILE_NAME as KLOG_METADATA
from klog_broker.runtime.disk.lock_probe import lock_holder
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.storage import names
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.text_files import decode_offset_checkpoint

_CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
)
_MARKS = (*_CHECKPOINTS, names.META_PROPERTIES, KLOG_METADATA)
"""A folder with any of these files counts as a data directory."""
_OTHERS = (
    names.LOCK,
    names.CLEAN_SHUTDOWN_MARKER,
    names.CLEANER_CHECKPOINT,
    "bootstrap.checkpoint",
)


class NothingToVerify(KlogError):
    """The folder is neither a data directory nor a partition's folder; the message says which files
    `klog verify` looked for."""


def verify(path: Path, report: Report) -> None:
    """Check a data directory, or a partition's folder with the checkpoints of its data directory
    (if there is one).

    :raises NothingToVerify: if the folder is neither
    :raises OSError: if the folder does not exist, or if the folder or a file in it cannot be read
    """
    if _is_data_directory(path):
        _DataDirectory(path, report).check_all()
    elif _is_partition(path):
        around = path.absolute().parent
        if _is_data_directory(around):
            _DataDirectory(around, report).check_partition(path)
        else:
            PartitionCheck(path, DirectoryFacts(), report).run()
    else:
        raise NothingToVerify(
            f"{path} is no data directory (log.dirs) and no partition's folder: there is neither a "
            f"checkpoint nor a segment in it"
        )
    report.print_omitted_counts()


def _is_data_directory(path: Path) -> bool:
    return any((path / name).is_file() for name in _MARKS)


def _is_partition(path: Path) -> bool:
    return any(names.parse_segment_file_name(entry.name) for entry in path.iterdir())


class _DataDirectory:
    """Checks the files of a data directory, and the partitions in it."""

    def __init__(self, path: Path, report: Report) -> None:
        self._path = path
        self._report = report
        self._is_clean = (path / names.CLEAN_SHUTDOWN_MARKER).is_file()
        holder = lock_holder(path / names.LOCK)
        self._is_running = holder is not None
        if holder is not None:
            text = f"a broker runs on the directory (process {holder}): its last writes are not"
            report.note(path / names.LOCK, f"{text} checked")
        self._checkpoints = {name: self._checkpoint(name) for name in _CHECKPOINTS}

    def _checkpoint(self, name: str) -> dict[TopicPartition, Offset]:
        try:
            return decode_offset_checkpoint(read_small(self._path / name))
        except (FileNotFoundError, StorageFormatError):
            # No finding here: `check_all` reports a damaged checkpoint. The check of a single
            # partition ignores it.
            return {}

    def check_all(self) -> None:
        """Check the data directory's own files, then the partitions' folders in the order of their
        names."""
        partitions = []
        for entry in sorted(self._path.iterdir()):
            if entry.is_dir():
                if self._is_kept(entry):
                    partitions.append(entry)
            elif entry.name in SMALL_FILES:
                for what in small_file_rows(entry):
                    if isinstance(what, Finding):
                        self._report.add(what.level, entry, what.text)
            elif entry.name.endswith(names.TEMPORARY_SUFFIX):
                self._report.recoverable(entry, "a leftover of a write that was not finished")
            elif entry.name not in _OTHERS:
                self._report.note(entry, "not a file of a data directory")
        there = {names.parse_partition_directory_name(entry.name) for entry in partitions}
        for name, rows in self._checkpoints.items():
            for topic, partition in sorted(set(rows) - there):
                text = f"it has a row for {topic}-{partition}, but there is no such folder"
                self._report.note(self._path / name, text)
        check_known_data(self._path, there, self._report)
        for entry in partitions:
            self.check_partition(entry)

    def _is_kept(self, entry: Path) -> bool:
        """Return whether a folder is a partition's. Add a finding to the report for any other
        folder."""
        try:
            names.parse_partition_directory_name(entry.name)
        except StorageFormatError as error:
            if names.is_deleted_directory(entry.name):
                text = "a deleted partition; a broker removes it after file.delete.delay.ms"
                self._report.recoverable(entry, text)
            else:
                self._report.note(entry, str(error))
            return False
        return True

    def check_partition(self, path: Path) -> None:
        """Check one partition's folder, also against the partition's offsets in the checkpoints of
        the data directory."""
        try:
            partition = names.parse_partition_directory_name(path.absolute().name)
        except StorageFormatError:
            PartitionCheck(path, DirectoryFacts(is_running=self._is_running), self._report).run()
            return
        recovery_point, high_watermark, log_start_offset = (
            self._checkpoints[name].get(partition) for name in _CHECKPOINTS
        )
        if recovery_point is None and not self._is_clean:
            # After a crash, a log without a recovery point in the checkpoint file may never have
            # been synced.
            recovery_point = Offset(0)
        circumstances = DirectoryFacts(
            is_clean=self._is_clean,
            is_running=self._is_running,
            recovery_point=recovery_point,
            high_watermark=high_watermark,
            log_start_offset=log_start_offset,
        )
        PartitionCheck(path, circumstances, self._report).run()
