"""What the transactions of a log's producers mean for its readers."""

from klog_broker.log.log_state import LogState
from pyspark_klog.ids import Offset


class LogTransactions:
    """Up to where everything is decided.

    No transaction can be begun yet, so that none is ever open.
    """

    def __init__(self, state: LogState) -> None:
        self._state = state

    @property
    def last_stable_offset(self) -> Offset:
        """Where the oldest open transaction begins, and the high watermark if none is open before
        it: up to here read_committed reads (KIP-98)."""
        return self._state.high_watermark
