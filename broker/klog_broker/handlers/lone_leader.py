"""Leading without anybody else: this broker's watermarks until replication has them.

What is appended may be seen at once, or once it is synced where replies wait for that.
"""

from collections.abc import Callable

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
    """Lead a log in an epoch that the store has durably. LogStorageError; StaleLeaderEpoch."""
    log.begin_epoch(stored_epoch)
    advance(log)


def advance(log: PartitionLog) -> None:
    """Let readers see what they may by the log's settings."""
    waits = log.config.replies_wait_for_flush
    log.set_high_watermark(log.flushed_offset if waits else log.log_end_offset)
