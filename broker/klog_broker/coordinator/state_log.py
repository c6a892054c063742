"""The interface through which a coordinator appends to and reads a state topic's partition."""

from typing import Protocol

from klog_broker.log.read.read_results import ReadInfo
from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.records.control import EndTransactionMarker


class StateLog(Protocol):
    """The log of a state topic's partition that this broker leads. Loop thread only."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def leader_epoch(self) -> int:
        """The partition's leader epoch. Transaction markers carry it as the coordinator epoch, so
        that partitions reject the markers of an earlier coordinator."""

    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def high_watermark(self) -> Offset:
        """The offset before which all records may be shown to clients."""

    @property
    def ended(self) -> object | None:
        """Why this broker no longer leads the partition (resigned, offline, deleted).

        The value is None while this broker leads; once set, it never becomes None again.
        """

    def append(self, records: bytearray) -> Offset:
        """Append one batch that a coordinator wrote; returns the log end offset after the batch.

        Raises LogError, or BrokerError with the partition's error (NOT_ENOUGH_REPLICAS,
        NOT_LEADER_OR_FOLLOWER); in both cases the log has not changed.
        """

    def append_plain(self, batch: bytearray, record_count: int, now_ms: int) -> Offset:
        """Append a batch whose header finish_plain_batch has written, as :meth:`append` does."""

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        *,
        transaction_version: int,
    ) -> Offset:
        """Append the marker that ends a producer's transaction; returns the log end offset.

        Raises as :meth:`append` does.
        """

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int | None = None,
        min_one_batch: bool = False,
        may_block: bool = True,
    ) -> ReadInfo:
        """Find the batches from ``offset`` on, up to ``max_bytes`` and before ``end_offset``.

        :meth:`PartitionLog.read` describes the arguments and errors.
        """
