"""The leader epochs in which the parts of the log were written, and their ends (KIP-101).

They are kept in leader-epoch-checkpoint. The file is written with each flush that moves the
recovery point, and when the log is closed. Epochs that the file lacks begin at or after the
recovery point, where recovery finds them again in the batches' headers (docs/decisions/0023).
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
    """New contents for the file; any thread may write them."""

    files: Files
    path: Path
    entries: tuple[EpochStart, ...]

    def write(self) -> None:
        """Write the file, durably. Blocks. OSError."""
        self.files.write_atomically(self.path, encode_leader_epochs(self.entries))


class LeaderEpochs:
    """The epochs and their start offsets; both rise."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / LEADER_EPOCH_CHECKPOINT
        self._entries: tuple[EpochStart, ...] = ()
        # The file's contents; None if they cannot be read.
        self._saved: tuple[EpochStart, ...] | None = ()

    def load(self) -> bool:
        """Read the file; False if it is damaged: the epochs must then be found in the log."""
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
        """Whether the file differs from the epochs in memory."""
        return self._entries != self._saved

    def unsaved(self) -> UnsavedEpochs:
        """The present epochs, to be written; afterwards :meth:`saved` must be called."""
        return UnsavedEpochs(self._files, self._path, self._entries)

    def saved(self, written: UnsavedEpochs) -> None:
        """``written`` is in the file now."""
        self._saved = written.entries

    def write(self) -> None:
        """Write the epochs to the file, durably. Blocks."""
        written = self.unsaved()
        written.write()
        self.saved(written)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return self._entries

    @property
    def latest(self) -> LeaderEpoch:
        """The newest epoch; -1 if there is none."""
        return self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH

    def note(self, epoch: int, start_offset: int) -> bool:
        """Note that an epoch begins at the offset; returns whether that was news.

        Entries that contradict it are dropped: equal or newer epochs, and those that begin at or
        after the offset.
        """
        last = self._entries[-1] if self._entries else None
        if last is not None and last.epoch == epoch and start_offset >= last.start_offset:
            return False
        kept = tuple(e for e in self._entries if e.epoch < epoch and e.start_offset < start_offset)
        self._entries = (*kept, EpochStart(LeaderEpoch(epoch), Offset(start_offset)))
        return True

    def clear(self) -> None:
        """Forget all of them."""
        self._entries = ()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[LeaderEpoch, Offset]:
        """The newest epoch not above ``epoch``, and its end; (-1, -1) if ``epoch`` is unknown."""
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
        """The epoch that ``offset`` was written in; -1 before the first one."""
        epoch = NO_LEADER_EPOCH
        for entry in self._entries:
            if entry.start_offset > offset:
                break
            epoch = entry.epoch
        return epoch

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that begin at or after ``end_offset``; returns whether there were any."""
        kept = tuple(e for e in self._entries if e.start_offset < end_offset)
        if len(kept) == len(self._entries):
            return False
        self._entries = kept
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """The log now begins at ``start_offset``: forget epochs that ended before it."""
        before = [e for e in self._entries if e.start_offset <= start_offset]
        if not before or (len(before) == 1 and before[0].start_offset == start_offset):
            return False
        after = tuple(e for e in self._entries if e.start_offset > start_offset)
        entries = (EpochStart(before[-1].epoch, Offset(start_offset)), *after)
        changed = entries != self._entries
        self._entries = entries
        return changed
