"""A partition of a state topic as its coordinator sees it: a log to append to and to read."""

from typing import Protocol

from klog_broker.log.read.read_results import ReadInfo
from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.records.control import EndTransactionMarker


class StateLog(Protocol):
    """A partition that this broker leads. Loop thread only."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def leader_epoch(self) -> int:
        """That of this leadership: as a coordinator's epoch it fences the coordinator before."""

    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def high_watermark(self) -> Offset:
        """Records before this offset may be shown to clients."""

    @property
    def ended(self) -> object | None:
        """Why this broker leads the partition no longer (resigned, offline, deleted); None while
        it leads. Once set it never becomes None again."""

    def append(self, records: bytearray) -> Offset:
        """Append one batch, for a coordinator; returns the log's end offset after it.

        Raises LogError, or BrokerError with the partition's error (NOT_ENOUGH_REPLICAS,
        NOT_LEADER_OR_FOLLOWER); in both cases the log has not changed.
        """

    def append_plain(self, batch: bytearray, record_count: int, now_ms: int) -> Offset:
        """As :meth:`append`, of a batch that finish_plain_batch has made, now."""

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        *,
        transaction_version: int,
    ) -> Offset:
        """End a producer's transaction in this log; returns the log's end behind the marker. Raises
        as :meth:`append` does."""

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int | None = None,
        min_one_batch: bool = False,
        may_block: bool = True,
    ) -> ReadInfo:
        """As :meth:`PartitionLog.read`."""
