"""A log in memory with no more than replication needs: (offset, epoch, value). A power cut may
lose unflushed records."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from klog_broker.log.errors import OffsetOutOfRange, StaleLeaderEpoch
from klog_broker.log.read.read_results import EpochEndOffset
from klog_broker.log.segment.leader_epochs import LeaderEpochs
from pyspark_klog.ids import LeaderEpoch, Offset
from tests.support.runtime.memory_files import MemoryFiles

_RECORD = struct.Struct(">qiiq")  # as a batch: its offset and its length come first
_NO_FILES = MemoryFiles()


class ModelRecord(NamedTuple):
    epoch: int
    value: int


class ModelLog:
    """A FollowedLog. Flushed records survive a power cut; unflushed records may survive."""

    def __init__(self, start_offset: int = 0) -> None:
        self.records: dict[int, ModelRecord] = {}
        self.changes = 0
        self.log_start_offset = self.log_end_offset = Offset(start_offset)
        self.flushed_offset = self.high_watermark = Offset(start_offset)
        self.compacted_before = Offset(0)
        self.epochs = LeaderEpochs(_NO_FILES, Path("/log"))

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return self.epochs.latest

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        return EpochEndOffset(*self.epochs.end_offset_for(leader_epoch, self.log_end_offset))

    # --- growing ---------------------------------------------------------------------------------
    def append_value(self, epoch: int, value: int) -> None:
        self.changes += 1
        self.epochs.add_epoch(epoch, self.log_end_offset)
        self.records[self.log_end_offset] = ModelRecord(epoch, value)
        self.log_end_offset = Offset(self.log_end_offset + 1)

    def read(self, offset: int, count: int) -> memoryview:
        found = range(offset, min(offset + count, self.log_end_offset))
        return memoryview(
            b"".join(_RECORD.pack(each, _RECORD.size, *self.records[each]) for each in found)
        )

    def append_as_follower(self, records: memoryview, leader_epoch: int) -> None:
        """Append as PartitionLog does, with all checks before the first change."""
        told = list(_RECORD.iter_unpack(records))
        if not told or told[0][0] != self.log_end_offset:
            raise OffsetOutOfRange(f"{told[:1]} cannot follow {self.log_end_offset}")
        self.check_epochs((epoch for _, _, epoch, _ in told), leader_epoch)
        for _, _, epoch, value in told:
            self.append_value(epoch, value)

    def check_epochs(self, epochs: Iterable[int], leader_epoch: int) -> None:
        if any(each > leader_epoch for each in epochs):
            raise StaleLeaderEpoch(f"newer than {leader_epoch}")

    def flush(self) -> None:
        self.flushed_offset = self.log_end_offset

    # --- getting shorter -------------------------------------------------------------------------
    def truncate(self, offset: int) -> None:
        self.changes += 1
        assert offset >= self.log_start_offset
        for each in range(offset, self.log_end_offset):
            del self.records[each]
        end = self.log_end_offset = Offset(min(offset, self.log_end_offset))
        self.epochs.truncate_from_end(end)
        self.flushed_offset = min(self.flushed_offset, end)
        self.high_watermark = min(self.high_watermark, end)

    def start_over(self, offset: int) -> None:
        self.changes += 1
        self.records.clear()
        self.epochs.clear()
        self.log_start_offset = self.log_end_offset = Offset(offset)
        self.flushed_offset = self.high_watermark = Offset(offset)

    def raise_start(self, offset: int) -> None:
        self.changes += 1
        for each in range(self.log_start_offset, offset):
            del self.records[each]
        if offset > self.log_start_offset:
            self.log_start_offset = Offset(offset)
            self.epochs.truncate_from_start(offset)

    # --- a new life ------------------------------------------------------------------------------
    def start_again(self, end_offset: int, high_watermark: int) -> None:
        """Restart with the log up to ``end_offset`` and the watermark of the last checkpoint."""
        self.truncate(end_offset)
        self.high_watermark = Offset(
            max(self.log_start_offset, min(high_watermark, self.log_end_offset))
        )
        self.epochs.clear()
        for offset in range(self.log_start_offset, self.log_end_offset):
            self.epochs.add_epoch(self.records[offset].epoch, offset)
