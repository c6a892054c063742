"""Bugs in syncing files, and in recovery at a start."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from klog_broker.log.append.log_writer import LogWriter
from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.log.directory.sync_notes import SyncNotes
from klog_broker.log.errors import LogStorageError
from klog_broker.log.maintenance import record_removal, retention
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.recovery import segment_recovery
from klog_broker.log.segment.segment import Segment
from klog_broker.log.state.flushes import _Run
from pyspark_klog.storage import names
from tests.simulation.mutants.mutant import Mutant


def _no_sync(_original: Any) -> Any:
    def perform(_run: Any) -> None:
        """A flush reports success without a sync."""

    return perform


def _old_epoch(original: Any) -> Any:
    def begin_epoch(log: Any, leader_epoch: int) -> None:
        """A log keeps its first leader epoch, whatever epoch its leader gets."""
        if log.leader_epoch < 0:
            original(log, leader_epoch)

    return begin_epoch


def _keeps_torn_tail(original: Any) -> Any:
    def index_all(segment: Any, digest: Any, checks: Any, *, check_crc: bool, **more: Any) -> None:
        original(segment, digest, checks, check_crc=False, **more)

    return index_all


def _always_clean(_original: Any) -> Any:
    def remove_clean_marker(directory: Any) -> bool:
        """A clean marker stays once it was written."""
        return bool(directory.files.exists(directory.path / names.CLEAN_SHUTDOWN_MARKER))

    return remove_clean_marker


def _trusts_the_cache(_original: Any) -> Any:
    def is_suspect(_notes: Any, _log: str) -> bool:
        """Data that can be read is taken for synced."""
        return False

    return is_suspect


def _notes_afterwards(_original: Any) -> Any:
    @contextmanager
    def noted(notes: Any, log: str) -> Iterator[None]:
        """A sync is noted only when it has failed, if the process still lives."""
        try:
            yield
        except OSError:
            notes._note(log)
            raise
        notes._synced(log)

    return noted


def _takes_too_early(original: Any) -> Any:
    def by_time(log: Any) -> int:
        """Retention by time counts a second too early."""
        return int(original[0](log._replace(now_ms=log.now_ms + 1_000)))

    return (by_time, *original[1:])


def _takes_one_more(original: Any) -> Any:
    def deletable_segments(log: Any) -> int:
        """Retention deletes one segment more, if there is one."""
        count = original(log)
        return min(count + 1, len(log.segments)) if count else 0

    return deletable_segments


def _may_always_go(_original: Any) -> Any:
    def may_go(_log: Any, segment: Any) -> bool:
        """Retention may delete segments above the high watermark."""
        return bool(segment.size_bytes > 0)

    return may_go


def _counts_failed_write(original: Any) -> Any:
    def write(writer: Any, *args: Any, **kwargs: Any) -> None:
        """Ignores a failed write, so that the commit follows."""
        with suppress(LogStorageError):
            original(writer, *args, **kwargs)

    return write


def _leaves_files_open(_original: Any) -> Any:
    def close(segment: Any) -> None:
        """The log file stays open until a garbage collection finds its last reference."""
        segment.close_indexes()

    return close


MUTANTS = (
    Mutant("flush acknowledged before sync", _Run, "perform", _no_sync),
    Mutant("epoch kept after unclean stop", PartitionLog, "begin_epoch", _old_epoch),
    Mutant("torn tail kept", segment_recovery, "_index_all", _keeps_torn_tail),
    Mutant("clean marker kept", LogDirectory, "remove_clean_marker", _always_clean),
    Mutant("failed sync forgotten", SyncNotes, "is_suspect", _trusts_the_cache),
    Mutant("sync noted when it has failed", SyncNotes, "note_sync", _notes_afterwards),
    Mutant("retention a second early", retention, "DELETE_POLICIES", _takes_too_early),
    Mutant("retention takes one more", record_removal, "deletable_segments", _takes_one_more),
    Mutant("retention above the watermark", retention, "_may_go", _may_always_go),
    Mutant("files of deleted logs stay open", Segment, "close", _leaves_files_open),
    Mutant("failed write acknowledged", LogWriter, "write", _counts_failed_write),
)
