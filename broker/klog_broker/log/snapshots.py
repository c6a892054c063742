"""The producer snapshots of a partition's directory: writing, choosing, removing."""

import logging
from pathlib import Path

from klog_broker.log.producer_state import ProducerStates
from klog_broker.log.record_checks import RecordChecks
from klog_broker.log.recovery import refill_windows, replay_producers
from klog_broker.log.segment import Segment
from klog_broker.runtime.files import File, Files
from pyspark_klog.ids import Offset
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.names import Suffix, parse_segment_file_name, segment_file_name
from pyspark_klog.storage.producer_snapshot import (
    decode_producer_snapshot,
    encode_producer_snapshot,
)

_log = logging.getLogger("klog.log")


class ProducerSnapshots:
    """The .snapshot files; one is taken at each roll and at the close."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory

    def path(self, offset: int) -> Path:
        return self._directory / segment_file_name(offset, Suffix.PRODUCER_SNAPSHOT)

    def offsets(self) -> list[Offset]:
        """Those that there are, rising."""
        names = (parse_segment_file_name(name) for name in self._files.list_dir(self._directory))
        return sorted(name[0] for name in names if name and name[1] is Suffix.PRODUCER_SNAPSHOT)

    def write(self, states: ProducerStates, offset: int) -> tuple[File, ...]:
        """Write without syncing; returns the file, to be synced later.

        None at all if the disk has no room: a snapshot only saves reading the log again.
        """
        data = encode_producer_snapshot(states.snapshot())
        path = self.path(offset)
        try:
            file = self._files.open(path, create=True)
            file.truncate(0)
            if file.pwrite(data, 0) == len(data):
                return (file,)
        except OSError as error:
            _log.warning("snapshot=%s not_written=%s", path, error)
        self._files.remove(path)
        return ()

    def load(
        self,
        states: ProducerStates,
        segments: tuple[Segment, ...],
        log_start_offset: int,
        end_offset: int,
        checks: RecordChecks,
    ) -> None:
        """Bring ``states`` to where they were at ``end_offset``: snapshot, windows, replay."""
        self._restore_newest(states, log_start_offset, end_offset)
        refill_windows(states, segments, log_start_offset)
        replay_producers(states, segments, end_offset, checks)

    def _restore_newest(
        self, states: ProducerStates, log_start_offset: int, end_offset: int
    ) -> None:
        """Restore the newest good snapshot that is not past ``end_offset``, else none at the start.

        Later ones, of a tail that was lost, and damaged ones are removed.
        """
        for offset in reversed(self.offsets()):
            path = self.path(offset)
            if offset <= end_offset:
                try:
                    entries = decode_producer_snapshot(self._files.read_bytes(path))
                    seen_ms = self._files.open(path, writable=False).modified_ms()
                    states.restore(entries, offset, seen_ms=seen_ms)
                    return
                except StorageFormatError as error:
                    _log.warning("snapshot=%s removed=%s", path, error)
            self._files.remove(path)
        states.clear(log_start_offset)

    def remove_strays(self, base_offsets: set[Offset]) -> None:
        """Keep those at a segment's start, and the newest."""
        for offset in self.offsets()[:-1]:
            if offset not in base_offsets:
                self._files.remove(self.path(offset))
