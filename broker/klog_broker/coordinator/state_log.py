"""A partition of a state topic as its coordinator sees it: what it appends to and reads from."""

from typing import Protocol

from klog_broker.log.answers import ReadInfo
from pyspark_klog.ids import Offset, TopicPartition


class StateLog(Protocol):
    """A partition that this broker leads. Loop thread only."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def high_watermark(self) -> Offset:
        """What lies before it may be shown."""

    @property
    def ended(self) -> object | None:
        """Why this broker leads the partition no longer (resigned, offline, deleted); None while
        it does. It never becomes None again."""

    def append(self, records: bytearray) -> Offset:
        """Append one batch, for a coordinator; returns the log's end behind it.

        Raises LogError, or BrokerError with the partition's error (NOT_ENOUGH_REPLICAS,
        NOT_LEADER_OR_FOLLOWER); nothing has changed then.
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
        """As :meth:`PartitionLog.read`."""
