"""Writes, chooses, loads and removes the producer snapshots of a partition's directory."""

import logging
from collections.abc import Mapping
from pathlib import Path

from klog_broker.log.producers.producer_state import ProducerStates
from klog_broker.log.recovery.producer_replay import (
    NOTHING_UNINDEXED,
    refill_windows,
    replay_producers,
)
from klog_broker.log.recovery.segment_recovery import OnChunk, ignore_chunk
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
    """The .snapshot files of one log. A file is written whenever a segment is rolled, and, if
    needed, when the log is closed."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory

    def path(self, offset: int) -> Path:
        return self._directory / segment_file_name(offset, Suffix.PRODUCER_SNAPSHOT)

    def offsets(self) -> list[Offset]:
        """The offsets of the producer snapshots in the directory, in ascending order."""
        suffix = Suffix.PRODUCER_SNAPSHOT
        found = [each for each in self._files.list_dir(self._directory) if each.endswith(suffix)]
        names = map(parse_segment_file_name, found)
        return sorted(name[0] for name in names if name and name[1] is suffix)

    def remove_all(self) -> None:
        """Remove all producer snapshots, because the log starts over empty at another offset."""
        for offset in self.offsets():
            self._files.remove(self.path(offset))

    def has_snapshot(self, offset: int) -> bool:
        """Whether there is a producer snapshot at this offset."""
        return self._files.exists(self.path(offset))

    def write(self, states: ProducerStates, offset: int) -> tuple[File, ...]:
        """Write a snapshot without syncing; returns the file, to be synced later.

        Returns an empty tuple if the write fails, for example on a full disk: the log can do
        without a snapshot, which only saves reading the records again.
        """
        data = encode_producer_snapshot(states.snapshot())
        path = self.path(offset)
        try:
            file = self._files.open(path, create=True)
            file.truncate(0)
            if file.pwrite(data, 0) == len(data):
                return (file,)
        except OSError as error:
            _log.warning(
                "snapshot=%s not written, the next start may read more of the log: %s", path, error
            )
        try:
            self._files.remove(path)
        except OSError as error:
            _log.warning(
                "snapshot=%s is incomplete and cannot be removed, the next start ignores it: %s",
                path,
                error,
            )
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
        on_chunk: OnChunk = ignore_chunk,
    ) -> None:
        """Bring ``states`` to ``end_offset``: restore the newest snapshot, add each producer's
        earlier batches up to five, then replay the log after the snapshot.

        ``unindexed`` maps the base offset of a segment to the offset from which on its transaction
        index lacks rows. This method writes the missing rows.
        """
        self._restore_newest(states, log_start_offset, end_offset)
        # A snapshot does not name the transactions that ended before it. If the marker of such a
        # transaction can lie above the high watermark, the transaction must be found in the log,
        # because it still limits the last stable offset. No search is needed if no producer has a
        # coordinator epoch: then none of the producers has written a marker.
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
            # Replay the log also from an older snapshot, only to find the undecided transactions
            # and the missing index rows. ``states`` keep the producers of the newer snapshot, which
            # can know producers whose batches are deleted.
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
                states.transactions.copy_ended_from(older.transactions)
        states.transactions.advance_high_watermark(high_watermark)

    def _states_before(self, limit: int, first_offset: int) -> ProducerStates:
        """Return the states in the newest undamaged snapshot at or below ``limit``.

        Without such a snapshot the states are empty, and begin at ``first_offset``.
        """
        states = ProducerStates()
        states.clear(first_offset)
        for offset in reversed(self.offsets()):
            if offset <= limit and self._restore(states, offset):
                break
        return states

    def _restore_newest(
        self, states: ProducerStates, log_start_offset: int, end_offset: int
    ) -> None:
        """Restore the newest undamaged snapshot at or below ``end_offset``; without one, clear the
        states.

        Removes all newer snapshots: they are damaged, or describe lost records, because they are
        past ``end_offset``.
        """
        for offset in reversed(self.offsets()):
            if offset <= end_offset and self._restore(states, offset):
                return
            self._files.remove(self.path(offset))
        states.clear(log_start_offset)

    def _restore(self, states: ProducerStates, offset: int) -> bool:
        """Restore the producer snapshot at this offset; returns False if it is damaged."""
        path = self.path(offset)
        try:
            entries = decode_producer_snapshot(self._files.read_bytes(path))
        except StorageFormatError as error:
            _log.warning("snapshot=%s is damaged, ignoring it: %s", path, error)
            return False
        seen_ms = self._files.open(path, writable=False).modified_ms()
        states.restore(entries, offset, seen_ms=seen_ms)
        return True

    def remove_superfluous(self, base_offsets: set[Offset]) -> None:
        """Remove all producer snapshots but the newest and those at a segment's base offset."""
        for offset in self.offsets()[:-1]:
            if offset not in base_offsets:
                self._files.remove(self.path(offset))
