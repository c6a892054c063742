"""Who is told of what happens to a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from klog_broker.log.partition_log import PartitionLog


class LogListener(Protocol):
    """The host of a log: it decides how far readers may see, and it tells those who wait.

    Called in the loop, after the change; each call must be cheap, for appends make it.
    """

    def log_end_grew(self, log: PartitionLog) -> None:
        """Records were appended: once for each commit of them."""

    def log_flushed(self, log: PartitionLog) -> None:
        """``flushed_offset`` grew."""

    def high_watermark_grew(self, log: PartitionLog) -> None:
        """``set_high_watermark`` raised it."""

    def log_went_offline(self, log: PartitionLog) -> None:
        """Every method of the log raises LogStorageError from now on."""
