"""The listener of a log: its methods are called after changes of the log."""

from typing import Protocol, TypeVar

LogT_contra = TypeVar("LogT_contra", contravariant=True)


class LogListener(Protocol[LogT_contra]):
    """The listener of a log, the broker's Partition object: sets the high watermark, and wakes
    waiting requests.

    All methods are called in the loop's thread, after the change of the log that their names state.
    Every append calls some of the methods, so all must be cheap.
    """

    def log_end_grew(self, log: LogT_contra) -> None:
        """Records were appended: called after each commit of a leader's batches, and once after a
        follower's append, which can commit batches to several segments."""

    def log_flushed(self, log: LogT_contra) -> None:
        """The log's ``flushed_offset`` has grown, after a sync."""

    def high_watermark_grew(self, log: LogT_contra) -> None:
        """``set_high_watermark`` raised the high watermark."""

    def log_start_grew(self, log: LogT_contra) -> None:
        """``log_start_offset`` grew: older records are deleted."""

    def log_went_offline(self, log: LogT_contra) -> None:
        """The log is offline: its methods that read or write records raise LogStorageError from now
        on."""
