"""A reader of records: checks the records of a Fetch response, and advances its positions."""

from __future__ import annotations

from typing import Any

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.fetch import PartitionData
from tests.simulation.checks.high_watermarks import BACK, EARLY
from tests.simulation.checks.records import batches_in, names_in
from tests.simulation.clients.aborted_transactions import Aborted
from tests.simulation.clients.base import WAKING, Client, check_code
from tests.simulation.world import Violation

GAPS = "a consumer misses nothing"
_SMALL_BYTES = 5_000
_PROMPT_MS = 4_000
"""The longest time that a small response may be under way."""


class Reader(Client):
    """A client with a position in each of its partitions.

    ``reads_committed``: its isolation level.
    """

    _expected: tuple[ErrorCode, ...] = ()

    def __init__(self, *given: Any, reads_committed: bool = False, **named: Any) -> None:
        super().__init__(*given, **named)
        self._reads_committed = reads_committed
        self._positions: dict[TopicPartition, int] = {}
        self._watermarks: dict[TopicPartition, int] = {}
        """The high watermarks that this connection has returned."""

    def _position_is_gone(self, partition: TopicPartition) -> None:
        """The broker has no record at the position."""
        raise Violation(
            GAPS, f"{self.name}: {partition} has no offset {self._positions[partition]}"
        )

    def _was_refused(self, partition: TopicPartition, code: ErrorCode) -> None:
        """The partition cannot be read now."""

    def _take(self, partition: TopicPartition, row: PartitionData, since_ms: int) -> int:
        code = check_code(
            self,
            row.error_code,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            *self._expected,
        )
        records = self.history.records
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._position_is_gone(partition)
            return 0
        if code is not ErrorCode.NONE:
            self._was_refused(partition, code)
            return 0
        told = self._watermarks.get(partition, 0)
        if row.high_watermark < min(told, records.lost_from(partition)):
            raise Violation(BACK, f"{partition}: watermark {row.high_watermark}")
        self._watermarks[partition] = row.high_watermark
        position, count = self._positions[partition], 0
        data = bytes(row.records or b"")
        is_small = len(data) < _SMALL_BYTES
        end = row.last_stable_offset if self._reads_committed else row.high_watermark
        aborted = Aborted(row.aborted_transactions or [])
        compaction = self.history.compaction
        is_compacted = compaction.is_compacted(partition)
        for batch in batches_in(data, f"{self.name}: {partition}"):
            is_shown = aborted.shows(batch)
            if is_compacted:
                for record in batch.records():
                    compaction.was_read(partition, record)
            for offset, name in names_in(batch):
                if offset < position:
                    continue
                if is_compacted:
                    compaction.was_skipped(partition, position, offset)
                elif offset != position:
                    raise Violation(GAPS, f"{partition}: {offset} came, not {position}")
                if offset >= end:
                    raise Violation(EARLY, f"{partition}: {offset} of {end}")
                known_ms = records.was_delivered(partition, offset, name)
                if self._reads_committed:
                    known_ms = self._judge(partition, offset, name, is_shown=is_shown)
                if is_small and self.world.now_ms - max(known_ms, since_ms) > _PROMPT_MS:
                    raise Violation(WAKING, f"{self.name} waited for {name!r} since {known_ms}")
                position, count = offset + 1, count + 1
            if is_compacted and batch.next_offset > position:
                compaction.was_skipped(partition, position, batch.next_offset)
                position = batch.next_offset
        self._positions[partition] = position
        return count

    def _judge(self, partition: TopicPartition, offset: int, name: bytes, *, is_shown: bool) -> int:
        """Report the record; return since when readers of committed records could have it."""
        transactions = self.history.transactions
        if transactions.was_read(name, is_shown=is_shown):
            self.machine.has_told("shown")
        return transactions.stable_since(partition, offset)
