"""Follows transactions during a pass over a log (KIP-98; Kafka's CleanedTransactionMetadata).

The records of aborted transactions are removed at once. A marker is removed only if a whole round
found no batch of its transaction, and then only after the marker's delete horizon.
"""

from collections import deque
from collections.abc import Iterable

from pyspark_klog.records.control import ControlType
from pyspark_klog.storage.transaction_index import AbortedEntry


class CleanedTransactions:
    """Follows the transactions in one pass over a log's batches, in offset order.

    ``aborted`` are the aborted transactions that may have batches in the pass.
    """

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        self._aborted = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        # By producer id: the producer's aborted transaction that has begun and not ended at the
        # offset which the pass has reached, and whether the pass has met a batch of it.
        self._aborting: dict[int, tuple[AbortedEntry, bool]] = {}
        self._committing: set[int] = set()
        self._retained: list[AbortedEntry] = []

    def pop_retained(self) -> list[AbortedEntry]:
        """Return the aborted transactions whose markers the pass has met since the last call, if it
        met a batch of the transaction before.

        Consumers still need the rows of these transactions in the transaction index.
        """
        retained, self._retained = self._retained, []
        return retained

    def is_void(self, producer_id: int, last_offset: int) -> bool:
        """Record that the pass has met this batch of a transaction; returns whether the transaction
        was aborted."""
        self._begin_up_to(last_offset)
        found = self._aborting.get(producer_id)
        if found is None:
            self._committing.add(producer_id)
            return False
        self._aborting[producer_id] = (found[0], True)
        return True

    def is_last_trace(
        self, producer_id: int, offset: int, control_type: ControlType | None
    ) -> bool:
        """Record that the pass has met a marker; returns whether the log has no batch of its
        transaction any more.

        ``control_type`` is None for a control batch whose record an earlier round has removed.
        """
        self._begin_up_to(offset)
        if control_type is None:
            return True
        if control_type is ControlType.ABORT:
            found = self._aborting.pop(producer_id, None)
            if found is None or not found[1]:
                return True
            self._retained.append(found[0])
            return False
        if control_type is ControlType.COMMIT:
            was_seen = producer_id in self._committing
            self._committing.discard(producer_id)
            return not was_seen
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[0].first_offset <= offset:
            entry = self._aborted.popleft()
            self._aborting.setdefault(entry.producer_id, (entry, False))
