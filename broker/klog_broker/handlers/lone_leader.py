"""Leading without anybody else: this broker's epochs and watermarks until replication has them.

What is appended may be seen at once, or once it is synced where replies wait for that. After an
unclean stop an epoch begins that is newer than any that the store or the log knows.
"""

from collections.abc import Callable

from klog_broker.log.errors import LogStorageError, OutOfDescriptors
from klog_broker.log.partition_log import PartitionLog
from pyspark_klog.ids import LeaderEpoch


class LoneLeader:
    """The listener of all logs. ``changed`` is called with a log that somebody may wait for."""

    def __init__(self, changed: Callable[[PartitionLog], None]) -> None:
        self._changed = changed

    def log_end_grew(self, log: PartitionLog) -> None:
        if not log.config.replies_wait_for_flush:
            log.set_high_watermark(log.log_end_offset)

    def log_flushed(self, log: PartitionLog) -> None:
        if log.config.replies_wait_for_flush:
            log.set_high_watermark(log.flushed_offset)

    def high_watermark_grew(self, log: PartitionLog) -> None:
        self._changed(log)

    def log_went_offline(self, log: PartitionLog) -> None:
        self._changed(log)


def lead(log: PartitionLog, stored_epoch: LeaderEpoch) -> None:
    """Lead a log that was made, or is led already. LogStorageError."""
    log.begin_epoch(max(stored_epoch, log.leader_epoch))
    advance(log)


def lead_found(log: PartitionLog, stored_epoch: LeaderEpoch) -> None:
    """Lead a log that was loaded, after an unclean stop in a durably newer epoch. LogStorageError.
    Blocks."""
    if log.was_unclean:
        log.begin_epoch(LeaderEpoch(max(stored_epoch, log.leader_epoch) + 1))
        try:
            log.flush()
        except OutOfDescriptors:
            raise
        except LogStorageError as error:
            raise log.log_directory.go_offline(error) from error
    lead(log, stored_epoch)


def advance(log: PartitionLog) -> None:
    """Let readers see what they may by the log's settings."""
    waits = log.config.replies_wait_for_flush
    log.set_high_watermark(log.flushed_offset if waits else log.log_end_offset)
