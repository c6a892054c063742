"""Who is told of what happens to a log."""

from typing import Protocol, TypeVar

LogT_contra = TypeVar("LogT_contra", contravariant=True)


class LogListener(Protocol[LogT_contra]):
    """The host of a log: it decides how far readers may see, and it tells those who wait.

    Called in the loop, after the change; each call must be cheap, for appends make it.
    """

    def log_end_grew(self, log: LogT_contra) -> None:
        """Records were appended: once for each commit of them."""

    def log_flushed(self, log: LogT_contra) -> None:
        """``flushed_offset`` grew."""

    def high_watermark_grew(self, log: LogT_contra) -> None:
        """``set_high_watermark`` raised it."""

    def log_start_grew(self, log: LogT_contra) -> None:
        """``log_start_offset`` grew: older records are gone."""

    def log_went_offline(self, log: LogT_contra) -> None:
        """Every method of the log raises LogStorageError from now on."""
