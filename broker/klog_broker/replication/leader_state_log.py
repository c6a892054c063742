"""LeaderStateLog: a coordinator's access to the log of the partition that stores its state, in
__consumer_offsets or __transaction_state. Implements StateLog, the interface through which a
coordinator uses that log."""

from klog_broker.log.validation.append_rules import AppendOrigin
from klog_broker.replication.errors import (
    EndReason,
    LeadershipEnded,
    NotEnoughReplicas,
    TooLittleFreeSpace,
)
from klog_broker.replication.leader import Leader
from klog_broker.runtime.system.clock import Clock
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.records.control import EndTransactionMarker


class LeaderStateLog:
    """The log of a partition of __consumer_offsets or __transaction_state during one leadership of
    this broker. Loop thread only."""

    def __init__(self, leader: Leader, clock: Clock) -> None:
        self._leader = leader
        self._log = leader.log
        self._clock = clock
        self.read = leader.log.read
        """Reads batches from the log; the method ``PartitionLog.read``."""

    @property
    def topic_partition(self) -> TopicPartition:
        return self._leader.topic_partition

    @property
    def leader_epoch(self) -> int:
        return self._leader.leader_epoch

    @property
    def log_start_offset(self) -> Offset:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> Offset:
        """The high watermark: clients may see the coordinator's state from records before this
        offset."""
        return self._log.high_watermark

    @property
    def ended(self) -> EndReason | None:
        """Why the leadership has ended; None while it lasts."""
        return self._leader.ended

    def append(self, records: bytearray) -> Offset:
        """Append one batch; returns the log end offset after the batch. min.insync.replicas is
        checked, in the same way as for Produce with acks=all.

        Raises LogError, or BrokerError with the error for the partition's clients
        (NOT_ENOUGH_REPLICAS, NOT_LEADER_OR_FOLLOWER); the log has not changed then.
        """
        now_ms = self._clock.now_ms()
        try:
            self._leader.append(
                records, acks_all=True, now_ms=now_ms, origin=AppendOrigin.COORDINATOR
            )
        except (NotEnoughReplicas, TooLittleFreeSpace, LeadershipEnded) as error:
            raise _refused(error) from None
        return self._log.log_end_offset

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        *,
        transaction_version: int,
    ) -> Offset:
        """Append the marker that ends a producer's transaction; returns the log end offset after
        the marker. Raises the errors of :meth:`append`."""
        try:
            return self._leader.append_marker(
                producer_id,
                producer_epoch,
                marker,
                transaction_version=transaction_version,
                now_ms=self._clock.now_ms(),
            )
        except (NotEnoughReplicas, TooLittleFreeSpace, LeadershipEnded) as error:
            raise _refused(error) from None

    def append_plain(self, batch: bytearray, record_count: int, now_ms: int) -> Offset:
        """Append one batch, in most cases without validating it (``PartitionLog.append_plain``):
        the coordinator has completed the batch's header (with `finish_plain_batch`, at the time
        `now_ms`). Returns the log end offset after the batch. Raises the errors of
        :meth:`append`."""
        try:
            self._leader.append_plain(batch, record_count, now_ms, now_ms=now_ms)
        except (NotEnoughReplicas, TooLittleFreeSpace, LeadershipEnded) as error:
            raise _refused(error) from None
        return self._log.log_end_offset


def _refused(error: NotEnoughReplicas | TooLittleFreeSpace | LeadershipEnded) -> BrokerError:
    is_over = isinstance(error, LeadershipEnded)
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_over else ErrorCode.NOT_ENOUGH_REPLICAS
    return BrokerError(code, str(error))
