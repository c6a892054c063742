"""Computes the last stable offset of a log, and finds its aborted transactions for readers."""

from klog_broker.log.errors import DamagedLog
from klog_broker.log.read.log_reader import region_end_offset
from klog_broker.log.segment.segment import Segment
from klog_broker.log.state.log_state import LogState
from klog_broker.runtime.disk.files import ReadRegion
from pyspark_klog.ids import Offset
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.transaction_index import AbortedEntry


class LogTransactions:
    """The last stable offset and the aborted transactions of one log."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._transactions = state.producers.transactions

    @property
    def last_stable_offset(self) -> Offset:
        """The offset up to which read_committed consumers read.

        The first offset of the oldest undecided transaction if this is below the high watermark, or
        the log start offset if that is higher; else the high watermark.
        """
        state = self._state
        first = self._transactions.first_unstable_offset
        if first >= state.high_watermark:
            return state.high_watermark
        # Retention and DeleteRecords can have deleted the transaction's first records: consumers
        # then read from the log start offset.
        return Offset(max(first, state.log_start_offset))

    def aborted_in(
        self, segment: Segment, region: ReadRegion, from_offset: int, *, may_block: bool
    ) -> list[AbortedEntry]:
        """Return the aborted transactions among the offsets from ``from_offset`` to the end of
        ``region``, a byte range of the segment's .log file. The list can include transactions that
        begin shortly after this byte range."""
        state = self._state
        log = state.segments
        index = log.index_for(segment.base_offset)
        if not any(each.transaction_index.rows for each in log.segments[index:]):
            return []
        end = log.end_of(index, state.log_end_offset)
        upper_offset = min(region_end_offset(segment, region, end), self.last_stable_offset)
        return self.aborted(from_offset, upper_offset, may_block=may_block)

    def aborted(
        self, from_offset: int, upper_offset: int, *, may_block: bool = True
    ) -> list[AbortedEntry]:
        """Return the aborted transactions among the offsets from ``from_offset`` to
        ``upper_offset`` (exclusive), ordered by their markers."""
        self._state.check_online()
        segments = self._state.segments
        found: list[AbortedEntry] = []
        for segment in segments.segments[segments.index_for(from_offset) :]:
            index = segment.transaction_index
            if not index.rows:
                continue
            try:
                for entry in index.read(from_offset, may_block=may_block):
                    if entry.first_offset < upper_offset:
                        found.append(entry)
                    if entry.last_stable_offset >= upper_offset:
                        return found
            except StorageFormatError as error:
                raise DamagedLog(f"{segment.log_file.path}: {error}") from error
        return found
