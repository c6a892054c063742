"""Kafka's rule for readers of committed records: which batches of a response are aborted."""

from collections import deque
from collections.abc import Sequence

from pyspark_klog.protocol.apis.fetch import AbortedTransaction
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.control import ControlType, control_type_of


class Aborted:
    """Filters the batches of one response, in order.

    A listed producer's batches are aborted from the first offset of its transaction up to its abort
    marker.
    """

    def __init__(self, listed: Sequence[AbortedTransaction]) -> None:
        self._coming = deque(sorted(listed, key=lambda each: each.first_offset))
        self._producers: set[int] = set()

    def shows(self, batch: BatchView) -> bool:
        """Whether the next batch is visible."""
        while self._coming and self._coming[0].first_offset <= batch.last_offset:
            self._producers.add(self._coming.popleft().producer_id)
        if batch.is_control:
            if any(control_type_of(each.key) is ControlType.ABORT for each in batch.records()):
                self._producers.discard(batch.producer_id)
            return True
        return not (batch.is_transactional and batch.producer_id in self._producers)
