"""The leader epochs of a log, with their start offsets (KIP-101).

The file leader-epoch-checkpoint stores the epochs. If the epochs have changed, the log writes the
file with the next flush that moves the recovery point or syncs the indexes, at the latest when the
log is closed. Truncating or emptying the log writes the file, too. Epochs that the file lacks begin
at or after the recovery point, where recovery finds them again in the headers of batches
(docs/decisions/0023).
"""

from dataclasses import dataclass
from pathlib import Path

from klog_broker.runtime.disk.files import Files
from pyspark_klog.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.names import LEADER_EPOCH_CHECKPOINT
from pyspark_klog.storage.text_files import (
    EpochStart,
    decode_leader_epochs,
    encode_leader_epochs,
)

_UNDEFINED = (NO_LEADER_EPOCH, Offset(-1))


@dataclass(frozen=True, slots=True)
class UnsavedEpochs:
    """New contents of the leader-epoch-checkpoint file. Any thread may call :meth:`write`."""

    files: Files
    path: Path
    entries: tuple[EpochStart, ...]

    def write(self) -> None:
        """Replace the leader-epoch-checkpoint file atomically, and sync it. Blocks. Raises
        OSError."""
        self.files.write_atomically(self.path, encode_leader_epochs(self.entries))


class LeaderEpochs:
    """The leader epochs of one log and their start offsets, both in ascending order."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / LEADER_EPOCH_CHECKPOINT
        self._entries: tuple[EpochStart, ...] = ()
        # The epochs in the leader-epoch-checkpoint file; None if the file is damaged.
        self._saved: tuple[EpochStart, ...] | None = ()

    def load(self) -> bool:
        """Read the leader-epoch-checkpoint file, if there is one. Returns False if the file is
        damaged: the caller must then find the epochs in the log."""
        if not self._files.exists(self._path):
            return True
        self._saved = None
        try:
            entries = decode_leader_epochs(self._files.read_bytes(self._path))
        except StorageFormatError:
            return False
        rising: list[EpochStart] = []
        for entry in entries:
            if rising and entry.start_offset < rising[-1].start_offset:
                return False
            rising.append(entry)
        self._entries = self._saved = tuple(rising)
        return True

    @property
    def is_dirty(self) -> bool:
        """Whether the leader-epoch-checkpoint file differs from the epochs in memory."""
        return self._entries != self._saved

    def unsaved(self) -> UnsavedEpochs:
        """Return the current epochs, to be written to the leader-epoch-checkpoint file. The caller
        must call :meth:`mark_saved` after the write."""
        return UnsavedEpochs(self._files, self._path, self._entries)

    def mark_saved(self, written: UnsavedEpochs) -> None:
        """Record that the leader-epoch-checkpoint file now contains ``written``."""
        self._saved = written.entries

    def write(self) -> None:
        """Replace the leader-epoch-checkpoint file by the epochs in memory, and sync it. Blocks.
        Raises OSError."""
        written = self.unsaved()
        written.write()
        self.mark_saved(written)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return self._entries

    @property
    def latest(self) -> LeaderEpoch:
        """The newest epoch; -1 without any epoch."""
        return self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH

    def add_epoch(self, epoch: int, start_offset: int) -> bool:
        """Add an epoch that begins at ``start_offset``. Returns False if the epoch is already the
        newest one and begins at or before that offset.

        Drops entries that contradict the new one: equal or newer epochs, and epochs that begin at
        or after the offset.
        """
        last = self._entries[-1] if self._entries else None
        if last is not None and last.epoch == epoch and start_offset >= last.start_offset:
            return False
        kept = tuple(e for e in self._entries if e.epoch < epoch and e.start_offset < start_offset)
        self._entries = (*kept, EpochStart(LeaderEpoch(epoch), Offset(start_offset)))
        return True

    def clear(self) -> None:
        """Drop all epochs."""
        self._entries = ()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[LeaderEpoch, Offset]:
        """Return the newest epoch that is not newer than ``epoch``, and its end offset.

        If ``epoch`` is older than all epochs, returns ``epoch`` and the first start offset. If
        ``epoch`` is newer than all epochs or negative, or there are none, returns (-1, -1).
        """
        if epoch < 0 or not self._entries:
            return _UNDEFINED
        latest = self._entries[-1].epoch
        if epoch == latest:
            return latest, Offset(log_end_offset)
        if epoch > latest:
            return _UNDEFINED
        above = next(entry for entry in self._entries if entry.epoch > epoch)
        below = [entry for entry in self._entries if entry.epoch <= epoch]
        floor = below[-1].epoch if below else LeaderEpoch(epoch)
        return floor, above.start_offset

    def epoch_of(self, offset: int) -> LeaderEpoch:
        """Return the epoch in which ``offset`` was written; -1 before the first epoch."""
        epoch = NO_LEADER_EPOCH
        for entry in self._entries:
            if entry.start_offset > offset:
                break
            epoch = entry.epoch
        return epoch

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop epochs that begin at or after ``end_offset``. Returns whether there were any."""
        kept = tuple(e for e in self._entries if e.start_offset < end_offset)
        if len(kept) == len(self._entries):
            return False
        self._entries = kept
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drop epochs that ended at or before ``start_offset``, where the log now begins. The epoch
        in which ``start_offset`` was written then begins at ``start_offset``. Returns whether the
        entries changed."""
        before = [e for e in self._entries if e.start_offset <= start_offset]
        if not before or (len(before) == 1 and before[0].start_offset == start_offset):
            return False
        after = tuple(e for e in self._entries if e.start_offset > start_offset)
        entries = (EpochStart(before[-1].epoch, Offset(start_offset)), *after)
        changed = entries != self._entries
        self._entries = entries
        return changed
