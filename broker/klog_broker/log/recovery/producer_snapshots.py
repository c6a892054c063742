"""The producer snapshots of a partition's directory: writing, choosing, removing."""

import logging
from collections.abc import Mapping
from pathlib import Path

from klog_broker.log.producers.producer_state import ProducerStates
from klog_broker.log.recovery.segment_recovery import (
    NOTHING_UNINDEXED,
    OnChunk,
    nobody,
    refill_windows,
    replay_producers,
)
from klog_broker.log.segment.segment import Segment
from klog_broker.log.validation.record_checks import RecordChecks
from klog_broker.runtime.disk.files import File, Files
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
        suffix = Suffix.PRODUCER_SNAPSHOT
        found = [each for each in self._files.list_dir(self._directory) if each.endswith(suffix)]
        names = map(parse_segment_file_name, found)
        return sorted(name[0] for name in names if name and name[1] is suffix)

    def remove_all(self) -> None:
        """Of a log that begins anew."""
        for offset in self.offsets():
            self._files.remove(self.path(offset))

    def is_there(self, offset: int) -> bool:
        """Whether one was taken at this offset."""
        return self._files.exists(self.path(offset))

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
        *,
        high_watermark: int,
        unindexed: Mapping[int, int] = NOTHING_UNINDEXED,
        on_chunk: OnChunk = nobody,
    ) -> None:
        """Bring ``states`` to where they were at ``end_offset``: snapshot, windows, replay.

        ``unindexed`` says from where on which segments' transaction indexes lack rows (by base
        offset): those are made.
        """
        self._restore_newest(states, log_start_offset, end_offset)
        # A snapshot does not name the transactions that ended before it: one whose marker lies
        # above the high watermark is to be found again. Who never had a marker has none there.
        lacks_ends = states.end_offset > high_watermark and any(
            entry.coordinator_epoch >= 0 for entry in states
        )
        refill_windows(states, segments, log_start_offset)
        limits = [*unindexed.values(), *([high_watermark] if lacks_ends else [])]
        needs_older = bool(limits) and min(limits) < states.end_offset
        replay_producers(
            states,
            segments,
            end_offset,
            checks,
            high_watermark=high_watermark,
            unindexed=NOTHING_UNINDEXED if needs_older else unindexed,
            on_chunk=on_chunk,
        )
        if needs_older:
            # Not for the states themselves: a newer snapshot can know of batches that are deleted.
            older = self._states_before(min(limits), segments[0].base_offset)
            replay_producers(
                older,
                segments,
                end_offset,
                checks,
                high_watermark=high_watermark,
                unindexed=unindexed,
                on_chunk=on_chunk,
            )
            if lacks_ends:
                states.transactions.take_ended(older.transactions)
        states.transactions.reach(high_watermark)

    def _states_before(self, limit: int, first_offset: int) -> ProducerStates:
        """Those of the newest snapshot that is not past the limit, or of none at the start."""
        states = ProducerStates()
        states.clear(first_offset)
        for offset in reversed(self.offsets()):
            if offset <= limit and self._restore(states, offset):
                break
        return states

    def _restore_newest(
        self, states: ProducerStates, log_start_offset: int, end_offset: int
    ) -> None:
        """Restore the newest good snapshot that is not past ``end_offset``, else none at the start.

        Later ones, of a tail that was lost, and damaged ones are removed.
        """
        for offset in reversed(self.offsets()):
            if offset <= end_offset and self._restore(states, offset):
                return
            self._files.remove(self.path(offset))
        states.clear(log_start_offset)

    def _restore(self, states: ProducerStates, offset: int) -> bool:
        """Restore the snapshot of this offset; False if it is damaged."""
        path = self.path(offset)
        try:
            entries = decode_producer_snapshot(self._files.read_bytes(path))
        except StorageFormatError as error:
            _log.warning("snapshot=%s unused=%s", path, error)
            return False
        seen_ms = self._files.open(path, writable=False).modified_ms()
        states.restore(entries, offset, seen_ms=seen_ms)
        return True

    def remove_strays(self, base_offsets: set[Offset]) -> None:
        """Keep those at a segment's start, and the newest."""
        for offset in self.offsets()[:-1]:
            if offset not in base_offsets:
                self._files.remove(self.path(offset))
